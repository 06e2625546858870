//! The official JSON-Schema-Test-Suite through our validation, and the `jsonschema` crate beside it.
//!
//! `tests/data/json-schema-test-suite` holds the required tests of the dialects we honour, as the source package of
//! Python's `jsonschema` 4.25.1 carries them, with their licence. `EXCEPTIONS.tsv` lists every group whose schema we
//! refuse, what we call it, and why.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use portcullis_gauntlet::{CompiledSchema, SchemaRole};
use serde_json::{Value, json};

const SUITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/json-schema-test-suite");
const DIALECTS: [(&str, &str); 3] = [
    ("draft2020-12", "https://json-schema.org/draft/2020-12/schema"),
    ("draft2019-09", "https://json-schema.org/draft/2019-09/schema"),
    ("draft7", "http://json-schema.org/draft-07/schema#"),
];

/// One group: its place in the suite, its schema as we take it, its tests.
struct Group {
    name: String,
    schema: Value,
    tests: Vec<Value>,
}

fn groups() -> Vec<Group> {
    let mut groups = Vec::new();
    for (dialect, address) in DIALECTS {
        let mut files: Vec<_> = std::fs::read_dir(Path::new(SUITE).join(dialect))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            let stem = file.file_stem().unwrap().to_str().unwrap();
            for group in serde_json::from_str::<Vec<Value>>(&text).unwrap() {
                // A tool's schema is an object. What a boolean says, an object around it says too; and the older
                // dialects, whose tests do not all name themselves, are named.
                let mut schema = match &group["schema"] {
                    Value::Bool(_) => json!({"allOf": [group["schema"]]}),
                    schema => schema.clone(),
                };
                schema.as_object_mut().unwrap().entry("$schema").or_insert(address.into());
                // Of two reasons to refuse a schema, the first in it is told: in one order, whatever features are on.
                schema.sort_all_objects();
                let name = format!("{dialect}/{stem}: {}", group["description"].as_str().unwrap());
                groups.push(Group { name, schema, tests: group["tests"].as_array().unwrap().clone() });
            }
        }
    }
    groups
}

fn exceptions() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(Path::new(SUITE).join("EXCEPTIONS.tsv")).unwrap();
    let row = |line: &str| {
        let columns: Vec<&str> = line.split('\t').collect();
        assert_eq!(columns.len(), 3, "group, violation, reason: {line}");
        (columns[0].to_owned(), columns[1].to_owned())
    };
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(row).collect()
}

#[test]
fn the_official_suite_passes_but_for_what_is_refused_by_design() {
    // GNT-S1, GNT-S2, GNT-S3, GNT-S7
    let mut exceptions = exceptions();
    let mut wrong = String::new();
    let mut passed = BTreeMap::<String, usize>::new();
    for group in groups() {
        let compiled = CompiledSchema::compile(&group.schema, SchemaRole::Output);
        match (compiled, exceptions.remove(&group.name)) {
            (Err(error), expected) if expected.as_deref() == Some(error.violation()) => {}
            (Err(error), _) => {
                writeln!(wrong, "{}\t{}\t{error}", group.name, error.violation()).unwrap();
            }
            (Ok(_), Some(_)) => writeln!(wrong, "{}: listed as refused, and is not", group.name).unwrap(),
            (Ok(schema), None) => {
                for test in &group.tests {
                    let verdict = schema.validate(&test["data"]);
                    if verdict.is_ok() != test["valid"].as_bool().unwrap() {
                        writeln!(wrong, "{}: {}: {verdict:?}", group.name, test["description"]).unwrap();
                    }
                    *passed.entry(group.name.split('/').next().unwrap().to_owned()).or_default() += 1;
                }
            }
        }
    }
    for name in exceptions.keys() {
        writeln!(wrong, "{name}: listed, and not in the suite").unwrap();
    }
    assert!(wrong.is_empty(), "{} lines:\n{wrong}", wrong.lines().count());
    assert!(passed["draft2020-12"] > 1_000, "the suite is there: {passed:?}");
}

#[test]
fn every_value_of_the_suite_is_judged_as_the_jsonschema_crate_judges_it() {
    // gauntlet §11, `validate_diff`: each schema against the values of all groups, not only its own
    let groups = groups();
    let values: Vec<&Value> =
        groups.iter().flat_map(|group| &group.tests).map(|test| &test["data"]).collect();
    let mut compared = 0usize;
    for (index, group) in groups.iter().enumerate() {
        let Ok(ours) = CompiledSchema::compile(&group.schema, SchemaRole::Output) else { continue };
        let theirs =
            jsonschema::options().should_validate_formats(false).offline().build(&group.schema).unwrap();
        for value in values.iter().skip(index % 7).step_by(7) {
            let verdict = ours.validate(value);
            assert_eq!(verdict.is_ok(), theirs.is_valid(value), "{}: {value}: {verdict:?}", group.name);
            compared += 1;
        }
    }
    assert!(compared > 100_000, "{compared}");
}

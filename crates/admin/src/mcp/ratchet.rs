//! The lists that administration publishes may shrink but not grow unseen (SURF-68, ADM-83).
//!
//! `PORTCULLIS_UPDATE_BASELINES=1` writes down what they are now; a larger budget is then a change that somebody reads.

use std::path::{Path, PathBuf};

use portcullis_gateway::control::{SurfaceParts, ToolPart};
use portcullis_gateway::exposure::Mode;
use portcullis_gateway::surface::baseline::Baseline;
use portcullis_gateway::surface::instructions::check_prefix;
use portcullis_gateway::surface::offered::Effect;
use portcullis_gateway::surface::{Budgeting, Routability, Surface, SurfaceOptions};
use serde_json::{Value, json};

use super::{HEAD, NOTE, catalogue, instructions};
use crate::registry::Registry;

/// What is published of these definitions.
fn published(definitions: &[Value]) -> Surface {
    let part = |definition: &Value| {
        let hints = &definition["annotations"];
        let effect = match (&hints["readOnlyHint"], &hints["destructiveHint"]) {
            (Value::Bool(true), _) => Some(Effect::ReadOnly),
            (_, Value::Bool(true)) => Some(Effect::Destructive),
            _ => None,
        };
        ToolPart { server: "portcullis".into(), effect, definition: definition.to_string() }
    };
    let parts = SurfaceParts {
        principal: String::new(),
        profile: None,
        mode: Mode::Passthrough,
        tools: definitions.iter().map(part).collect(),
        servers: Vec::new(),
        records: false,
        stand_ins: Vec::new(),
        prune: Default::default(),
        beside: Default::default(),
    };
    let options = SurfaceOptions {
        routability: Routability::Lint,
        mode: Budgeting::Report,
        ..SurfaceOptions::default()
    };
    let mut surface = parts.compile(options.profile("claude-code"), &options);
    surface.instructions = instructions();
    surface
}

fn lists() -> [(&'static str, Vec<Value>); 2] {
    let registry = Registry::build(crate::tools::modules()).unwrap();
    let all: Vec<Value> = registry.tools().map(crate::tool::ToolDef::wire).collect();
    [("gateway", catalogue::meta_tools()), ("passthrough", all)]
}

fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("baselines").join(format!("{name}.json"))
}

#[test]
fn the_lists_of_administration_do_not_grow_unseen() {
    // SURF-66, SURF-67, SURF-68, ADM-80, ADM-82, ADM-83
    for (name, definitions) in lists() {
        let surface = published(&definitions);
        // What ADM-80 and ADM-82 allow: tools come and go, and within that they may.
        let most = if name == "gateway" { 2_048 } else { 84 << 10 };
        if std::env::var_os("PORTCULLIS_UPDATE_BASELINES").is_some() {
            let baseline = Baseline { budget_bytes: most, ..Baseline::of(&surface, None, None).unwrap() };
            std::fs::write(kept(name), serde_json::to_string_pretty(&baseline).unwrap() + "\n").unwrap();
        }
        let baseline: Baseline = serde_json::from_slice(&std::fs::read(kept(name)).unwrap()).unwrap();
        assert_eq!(baseline.check(&surface), Vec::<String>::new(), "{name}");
        assert!(baseline.budget_bytes <= most, "{name}: {}", baseline.budget_bytes);
    }
}

#[test]
fn every_way_to_grow_the_lists_of_administration_is_caught() {
    // SURF-68: each cause by itself
    for (name, definitions) in lists() {
        let baseline = Baseline::of(&published(&definitions), None, None).unwrap();
        let caught = |change: &dyn Fn(&mut Vec<Value>), cause: &str| {
            let mut changed = definitions.clone();
            change(&mut changed);
            let causes = baseline.check(&published(&changed));
            assert!(causes.iter().any(|one| one.contains(cause)), "{name}: {cause}: {causes:?}");
        };
        let more = |tool: &mut Value, words: &str| {
            tool["description"] = json!(format!("{} {words}", tool["description"].as_str().unwrap()));
        };
        let again = "Give a reason that names why, and set confirm.";
        caught(&|tools| more(&mut tools[0], "And a little more."), "over the budget");
        caught(&|tools| (0..2).for_each(|at| more(&mut tools[at], again)), "bytes of repeated sentences");
        caught(&|tools| drop(tools.remove(1)), "is gone");
        caught(&|tools| more(&mut tools[0], "The output is hidden from the model."), "L001");
        caught(&|tools| more(&mut tools[0], "See `nowhere_at_all`."), "L007");
        let mut without = published(&definitions);
        without.instructions.clear();
        assert_eq!(baseline.check(&without), ["there are no instructions"]);
        without.instructions = "A sentence that goes on. ".repeat(30);
        assert!(baseline.check(&without)[0].starts_with("instructions: "), "{:?}", baseline.check(&without));
    }
}

#[test]
fn the_instructions_of_administration_are_whole_within_512_characters() {
    // SURF-11, SURF-12, SURF-13, ADM-80
    assert!(HEAD.is_ascii() && HEAD.len() <= 512 && HEAD.ends_with('.'), "{}", HEAD.len());
    assert!(NOTE.is_ascii() && NOTE.len() <= 480, "{}", NOTE.len());
    let whole = instructions();
    assert_eq!(check_prefix(&whole, 512), Ok(()));
    assert_eq!((whole[..512].trim_end(), &whole[512..513]), (HEAD, "\n"));
    for topic in ["tool_browse", "typed", "page with offset and limit", "confirm: true and a reason"] {
        assert!(HEAD.contains(topic), "{topic}");
    }
}

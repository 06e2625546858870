//! What the gauntlet costs: `name TAB seconds` per call on stdout, and the same inputs for the original's script in
//! the file named by PORTCULLIS_BENCH_INPUTS. `cargo xtask bench gauntlet` runs both and compares.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::{DeclarationVersion, Item, Sha256Digest, ToolId};
use portcullis_gauntlet::{
    Args, CapMode, Capabilities, CompiledSchema, Gauntlet, Grants, Raw, RawResult, ResultKind, SchemaRole,
    ToolSpec, screen,
};
use serde_json::{Map, Value, json};

const MIB: usize = 1 << 20;

fn texts() -> Vec<(&'static str, String)> {
    let fill = |unit: &str| unit.repeat(MIB / unit.len());
    let nested = |n: usize| "__sys".repeat(n / 10) + "__system__" + &"tem__".repeat(n / 10);
    let references = |n: usize| "&amp;lt;|im_end| &#60; ".repeat(n / 23);
    let prose = "It's a plain sentence about R and D, said \"so\", with no markup in it; 3 > 2 holds too, as ever. And more. ";
    vec![
        ("clean ASCII", fill("The quick brown fox jumps over the lazy dog, again and again. ")),
        ("prose, specials", fill(prose)),
        ("JSON-like, 10 % quotes", fill("\"name\": \"a value in some words of it\", ")),
        ("JSON-like, 20 % quotes", fill("\"name\":\"value one\",\"other\":\"value two\",")),
        ("Cyrillic", fill("Съешь ещё этих мягких французских булок, да выпей чаю. ")),
        ("CJK", fill("これは日本語の文章です。漢字と仮名が混ざっています。")),
        ("emoji", fill("🙂🎉 ok 🚀 ")),
        ("nested markers, n", nested(MIB / 2)),
        ("nested markers, 2n", nested(MIB)),
        ("references, n", references(MIB / 2)),
        ("references, 2n", references(MIB)),
    ]
}

/// A schema as large as one may be (GNT-S4): 512 properties in all, hundreds of references, thousands of enum members.
fn at_the_caps() -> Value {
    let word = |n: usize| json!(format!("w{n:04}"));
    let definitions: Map<String, Value> = (0..80)
        .map(|n| {
            (
                format!("d{n}"),
                json!({"type": "string", "enum": (n * 50..n * 50 + 50).map(word).collect::<Vec<_>>()}),
            )
        })
        .collect();
    let properties: Map<String, Value> = (0..512)
        .map(|n| match n % 4 {
            0 => {
                (format!("p{n}"), json!({"type": "string", "pattern": format!("^[a-z]{{1,{}}}$", n / 8 + 1)}))
            }
            1 => (format!("p{n}"), json!({"anyOf": [{"type": "integer", "minimum": n}, {"type": "null"}]})),
            _ => (format!("p{n}"), json!({"$ref": format!("#/$defs/d{}", n % 80)})),
        })
        .collect();
    json!({"type": "object", "properties": properties, "$defs": definitions})
}

/// The mean CPU time of one call over some 400 ms of it, as the original is measured too.
fn measure(name: &str, mut work: impl FnMut()) {
    // `cargo bench ... -- gauntlet` measures that one alone, for a profiler.
    if std::env::args().skip(1).find(|arg| !arg.starts_with('-')).is_some_and(|wanted| wanted != name) {
        return;
    }
    let cpu = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
    };
    work();
    let (mut calls, mut batch, start) = (0u32, 1u32, cpu());
    let spent = loop {
        for _ in 0..batch {
            work();
        }
        calls += batch;
        let spent = cpu() - start;
        if spent >= Duration::from_millis(400) {
            break spent;
        }
        // Reading the clock must not be what is measured.
        if spent < Duration::from_millis(40) {
            batch = batch.saturating_mul(2);
        }
    };
    println!("{name}\t{:.12}", spent.as_secs_f64() / f64::from(calls));
}

fn main() {
    let gauntlet = Gauntlet::default();
    let texts = texts();
    let input = json!({"type": "object", "additionalProperties": false, "required": ["path"], "properties": {
        "path": {"type": "string", "maxLength": 4096},
        "limit": {"type": "integer", "minimum": 1},
        "deep": {"type": "boolean"},
    }});
    let arguments = json!({"path": "/srv/project/notes.txt", "limit": 20, "deep": false});
    let bad = json!({"path": 7, "limit": 0, "deep": false});
    let note = "a plain note without anything special in it";
    let row = |n: usize| json!({"id": n, "name": format!("row number {n}"), "note": note, "ok": true});
    let item = json!({"type": "object", "required": ["id", "name"], "properties": {
        "id": {"type": "integer"}, "name": {"type": "string"}, "note": {"type": "string"}, "ok": {"type": "boolean"},
    }});
    let output = json!({"type": "object", "required": ["rows"], "properties": {"rows": {"type": "array", "items": item}}});
    let structured = json!({"rows": (0..20).map(row).collect::<Vec<_>>()});
    let content = json!([{"type": "text", "text": structured.to_string()}]);
    let result = json!({"content": content, "structuredContent": structured}).to_string();
    if let Some(path) = std::env::var_os("PORTCULLIS_BENCH_INPUTS") {
        let given: Map<String, Value> =
            texts.iter().map(|(name, text)| ((*name).to_owned(), text.as_str().into())).collect();
        let inputs = json!({
            "texts": given, "input_schema": input, "arguments": arguments, "bad_arguments": bad,
            "output_schema": output, "result": result,
        });
        std::fs::write(path, inputs.to_string()).expect("the file for the inputs can be written");
    }

    let (source, mut copy) = (vec![b'x'; MIB], vec![0u8; MIB]);
    measure("memcpy", || {
        copy.copy_from_slice(black_box(&source));
        black_box(&copy);
    });
    for (name, text) in &texts {
        measure(name, || drop(black_box(gauntlet.clean_text(Raw::new(black_box(text))))));
    }
    let version = DeclarationVersion { counter: 1, sha256: Sha256Digest::of(b"bench") };
    let name = Item::Tool("rows".parse().expect("a name"));
    let compile = |schema: &Value, role| CompiledSchema::compile(schema, role).expect("a plain schema");
    let spec = Arc::new(ToolSpec {
        tool: ToolId::new("bench".parse().expect("a name"), name, "1".parse().expect("a version"), version),
        permissions: Vec::new(),
        ceiling: Arc::new(Capabilities::parse(CapMode::Cleared, ["mcp.call:bench/*"]).expect("a grant")),
        scopes_bound: false,
        input: compile(&input, SchemaRole::Input),
        output: Some(compile(&output, SchemaRole::Output)),
        result: ResultKind::Tool,
        any_root: true,
        max_request_bytes: MIB,
        max_response_bytes: MIB,
    });
    measure("validation", || drop(black_box(spec.input.validate(black_box(&arguments)))));
    measure("validation error", || drop(black_box(spec.input.validate(black_box(&bad)))));
    let large = at_the_caps();
    measure("compiling at the caps", || drop(black_box(compile(black_box(&large), SchemaRole::Output))));
    let (text, raw) = (arguments.to_string(), bytes::Bytes::from(result));
    measure("gauntlet", || {
        let args = Args::parse(text.as_bytes(), MIB).expect("good arguments");
        let screened = screen(&spec, &Grants::Declared, args).expect("good arguments");
        black_box(gauntlet.finish(screened, RawResult::new(raw.clone())).expect("a good result"));
    });
}

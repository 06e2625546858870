//! The gauntlet as a caller sees it.

mod properties;
mod results;
mod sanitising;
mod schemas;
mod screening;
mod tables;

use std::sync::Arc;

use portcullis_core::{DeclarationVersion, Item, Sha256Digest, ToolId};
use portcullis_gauntlet::{Args, CompiledSchema, GauntletError, SchemaRole, ToolSpec};
use serde_json::Value;

/// A tool `demo/echo` with these schemas.
fn tool(input: &Value, output: Option<&Value>) -> Arc<ToolSpec> {
    let declaration = DeclarationVersion { counter: 1, sha256: Sha256Digest::of(b"demo") };
    Arc::new(ToolSpec {
        tool: ToolId::new(
            "demo".parse().unwrap(),
            Item::Tool("echo".parse().unwrap()),
            "1.0".parse().unwrap(),
            declaration,
        ),
        result: portcullis_gauntlet::ResultKind::Tool,
        input: CompiledSchema::compile(input, SchemaRole::Input).unwrap(),
        output: output.map(|schema| CompiledSchema::compile(schema, SchemaRole::Output).unwrap()),
        max_request_bytes: 64 * 1024,
        max_response_bytes: 1024 * 1024,
    })
}

fn args(value: &Value) -> Args {
    Args::parse(value.to_string().as_bytes(), 64 * 1024).unwrap()
}

/// What compiling refuses: the word, and the place in the schema.
fn refused(schema: &Value) -> (&'static str, String) {
    let error = CompiledSchema::compile(schema, SchemaRole::Input).expect_err(&schema.to_string());
    let details = error.details();
    let place = details.get("schema_path").and_then(Value::as_str).unwrap_or_default().to_owned();
    (error.violation(), place)
}

/// The pointers of an error's list, in its order.
fn pointers(error: &GauntletError) -> Vec<String> {
    let details = error.details();
    let errors = details["errors"].as_array().unwrap().iter();
    errors.map(|e| e["pointer"].as_str().unwrap().to_owned()).collect()
}

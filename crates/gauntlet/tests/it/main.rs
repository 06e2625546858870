//! The gauntlet as a caller sees it.

mod advertising;
mod binding;
mod budget;
mod fuzz;
mod properties;
mod results;
mod sanitising;
mod schemas;
mod screening;
mod suite;
mod tables;
mod tasks;

use std::sync::Arc;

use bytes::Bytes;
use portcullis_core::{DeclarationVersion, Item, Sha256Digest, ToolId};
use portcullis_gauntlet::{
    Args, CapMode, Capabilities, CompiledSchema, Gauntlet, GauntletError, RawResult, SafeResult, SchemaRole,
    ToolSpec, screen,
};
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
        permissions: Vec::new(),
        scopes_bound: false,
        ceiling: Arc::new(Capabilities::parse(CapMode::Cleared, ["mcp.call:demo/*"]).unwrap()),
        any_root: true,
        max_request_bytes: 64 * 1024,
        max_response_bytes: 1024 * 1024,
    })
}

/// The result `text` of a call without arguments, as the default gauntlet lets it pass.
fn finish(spec: &Arc<ToolSpec>, text: Bytes) -> Result<SafeResult, GauntletError> {
    finish_with(&Gauntlet::default(), spec, text)
}

fn finish_with(gauntlet: &Gauntlet, spec: &Arc<ToolSpec>, text: Bytes) -> Result<SafeResult, GauntletError> {
    // Only what comes back is looked at here, so a tool that takes anything stands in for one with arguments.
    let lenient = Arc::new(ToolSpec {
        tool: spec.tool.clone(),
        input: CompiledSchema::compile(&serde_json::json!({"type": "object"}), SchemaRole::Input).unwrap(),
        permissions: spec.permissions.clone(),
        ceiling: spec.ceiling.clone(),
        scopes_bound: false,
        output: spec.output.clone(),
        result: spec.result,
        any_root: spec.any_root,
        max_request_bytes: spec.max_request_bytes,
        max_response_bytes: spec.max_response_bytes,
    });
    gauntlet.finish(
        screen(&lenient, &portcullis_gauntlet::Grants::Declared, Args::empty()).unwrap(),
        RawResult::new(text),
    )
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

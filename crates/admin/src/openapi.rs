//! The description of the HTTP API, made of the registry: what it says is what handlers take and give (ADM-12).

use serde_json::{Map, Value, json};

use crate::registry::Registry;
use crate::tool::{Class, ToolDef};

/// An OpenAPI 3.1 document of every tool that has something behind it.
pub fn document(registry: &Registry, version: &str) -> Value {
    let mut paths = Map::new();
    for tool in registry.tools().filter(|tool| tool.is_wired()) {
        paths.insert(format!("/api/admin/{}", tool.name()), json!({"post": operation(tool)}));
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Portcullis administration", "version": version},
        "paths": paths,
        "security": [{"operator": []}],
        "components": {
            "securitySchemes": {"operator": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": error_schema(), "Refused": refused_schema(), "UnknownTool": unknown_schema()},
            "responses": responses(),
        },
    })
}

fn operation(tool: &ToolDef) -> Value {
    let mut answers = json!({
        "200": {"description": "Done.", "content": {"application/json": {"schema": ok_schema(tool)}}},
        "400": {"$ref": "#/components/responses/Error"},
        "401": {"$ref": "#/components/responses/Refused"},
        "404": {"$ref": "#/components/responses/NotFound"},
        "409": {"$ref": "#/components/responses/Error"},
        "413": {"$ref": "#/components/responses/Refused"},
        "415": {"$ref": "#/components/responses/Refused"},
        "501": {"$ref": "#/components/responses/Error"},
        "503": {"$ref": "#/components/responses/Error"},
    });
    if tool.class() == Class::Admin {
        answers["202"] = json!({
            "description": "Another operator must agree first.",
            "content": {"application/json": {"schema": pending_schema()}},
        });
    }
    answers["403"] = json!({"$ref": "#/components/responses/Forbidden"});
    json!({
        "operationId": tool.name(),
        "summary": tool.description(),
        "tags": [tool.domain()],
        "requestBody": {
            "required": true,
            "content": {"application/json": {"schema": tool.input_schema()}},
        },
        "responses": answers,
    })
}

fn ok_schema(tool: &ToolDef) -> Value {
    let data = tool.data_schema().cloned().unwrap_or(json!({}));
    let page = json!({
        "type": "object",
        "properties": {
            "total": {"type": "integer"}, "offset": {"type": "integer"}, "limit": {"type": "integer"},
        },
        "required": ["total", "offset", "limit"],
        "additionalProperties": false,
    });
    json!({
        "type": "object",
        "properties": {"status": {"const": "ok"}, "data": data, "pagination": page},
        "required": ["status", "data"],
        "additionalProperties": false,
    })
}

fn pending_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "status": {"const": "ok"},
            "data": {
                "type": "object", "properties": {"pending_approval": {"type": "string"}},
                "required": ["pending_approval"],
            },
        },
        "required": ["status", "data"],
    })
}

fn error_schema() -> Value {
    let text = json!({"type": "string"});
    json!({
        "type": "object",
        "properties": {
            "status": {"const": "error"}, "error_type": text, "message": text, "tool": text, "request_id": text,
            "domain_code": {
                "enum": [
                    "invalid_argument", "guardrail_violated", "not_found", "conflict", "not_supported", "unavailable",
                    "handler_failure",
                ],
            },
            "violation": {"enum": ["missing_actor", "missing_confirm", "missing_reason", "self_approval"]},
        },
        "required": ["status", "error_type", "message", "domain_code", "tool", "request_id"],
        "additionalProperties": false,
    })
}

/// What is refused before there is a tool to name.
fn refused_schema() -> Value {
    json!({
        "type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"],
        "additionalProperties": false,
    })
}

fn unknown_schema() -> Value {
    json!({
        "type": "object",
        "properties": {"code": {"const": -32602}, "message": {"const": "Unknown tool"}},
        "required": ["code", "message"],
        "additionalProperties": false,
    })
}

fn responses() -> Value {
    let schema = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let answer = |description: &str, schema: Value| json!({"description": description, "content": {"application/json": {"schema": schema}}});
    let either = |one: &str, other: &str| json!({"anyOf": [schema(one), schema(other)]});
    json!({
        "Error": answer("Refused or failed.", schema("Error")),
        "Refused": answer("Refused at the door.", schema("Refused")),
        "Forbidden": answer("A guardrail, or another site.", either("Error", "Refused")),
        "NotFound": answer("Absent, or not for this operator to see.", either("Error", "UnknownTool")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wired_tool_is_described_by_its_own_schemas() {
        let registry = Registry::build(crate::tools::modules()).unwrap();
        let document = document(&registry, "1");
        let paths = document["paths"].as_object().unwrap();
        assert_eq!(paths.len(), registry.tools().filter(|tool| tool.is_wired()).count());
        let list = &paths["/api/admin/portcullis_servers_list"]["post"];
        assert_eq!(
            &list["requestBody"]["content"]["application/json"]["schema"],
            registry.get("servers_list").unwrap().input_schema()
        );
        assert!(list["responses"].get("202").is_none());
        assert!(paths["/api/admin/portcullis_servers_set_state"]["post"]["responses"]["202"].is_object());
    }
}

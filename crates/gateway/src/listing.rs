//! `tools/list`: the accepted definitions, byte for byte but for the name and our mark.

use bytes::Bytes;
use portcullis_governance::registry::{Registry, ToolEntry};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::edge::Era;
use crate::result::{Members, member, write_members};

/// How long a modern client may keep the list.
const TTL_MS: u64 = 60_000;

/// Renders the result of `tools/list` for one era, in a fixed order.
pub(crate) fn render(registry: &Registry, era: Era) -> Bytes {
    let mut out = b"{\"tools\":[".to_vec();
    for (index, entry) in registry.tools().iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_definition(&mut out, entry);
    }
    out.extend_from_slice(b"],\"_meta\":");
    let outcomes: serde_json::Map<String, Value> = (registry.servers())
        .map(|server| {
            let outcome = if !server.is_active() {
                let reason = server.record.halt.as_deref().unwrap_or("halted by an operator");
                json!({"status": "halted", "reason": reason})
            } else {
                json!({"status": "ok", "tools": server.declaration.tools().len()})
            };
            (server.record.server_identity.to_string(), outcome)
        })
        .collect();
    let mut meta = json!({"io.portcullis/servers": outcomes});
    if registry.tools().is_empty() {
        // Never an unexplained empty list.
        meta["io.portcullis/empty"] = json!("no server is registered; run `portcullis mcp add`");
    }
    serde_json::to_writer(&mut out, &meta).expect("meta is plain JSON");
    if era == Era::Modern {
        out.extend_from_slice(
            format!(",\"resultType\":\"complete\",\"ttlMs\":{TTL_MS},\"cacheScope\":\"private\"").as_bytes(),
        );
    }
    out.push(b'}');
    out.into()
}

/// One definition: the server's own bytes with the name replaced and the canonical id added to `_meta`.
fn write_definition(out: &mut Vec<u8>, entry: &ToolEntry) {
    let members: Members<'_> =
        serde_json::from_str(entry.tool.definition().get()).expect("accepted definitions are objects");
    let name = json!(entry.wire_name).to_string();
    let mut meta = member(&members, "_meta")
        .and_then(|raw| serde_json::from_str::<serde_json::Map<String, Value>>(raw.get()).ok())
        .unwrap_or_default();
    meta.retain(|key, _| !key.starts_with("io.portcullis/"));
    meta.insert("io.portcullis/tool_id".into(), json!(entry.tool.id()));
    let meta = Value::Object(meta).to_string();
    let raw = |text: &str| RawValue::from_string(text.to_owned()).expect("rendered JSON");
    let (name, meta) = (raw(&name), raw(&meta));
    write_members(out, &members, &[("name", Some(&name)), ("_meta", Some(&meta))]);
}

//! The paths an operator wants to see of a tool's results, instead of a summary (CTX-41).

use portcullis_core::canon::to_jcs;
use serde_json::{Map, Value};

use crate::envelope::NewArtifact;

/// Paths into a JSON document; `*` stands for every element or member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keep(Vec<Vec<String>>);

/// The text is not a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a path: expected something like /items/*/id")]
pub struct KeepError(String);

impl Keep {
    /// Reads paths such as `/items/*/id`.
    pub fn parse<S: AsRef<str>>(paths: &[S]) -> Result<Self, KeepError> {
        let one = |path: &S| {
            let path = path.as_ref();
            let rest = path.strip_prefix('/').ok_or_else(|| KeepError(path.to_owned()))?;
            let segments = rest.split('/').map(|segment| segment.replace("~1", "/").replace("~0", "~"));
            Ok(segments.collect())
        };
        paths.iter().map(one).collect::<Result<_, _>>().map(Self)
    }

    /// The canonical text of what is kept, of the first JSON artifact in which there is anything.
    pub(crate) fn project(&self, artifacts: &[NewArtifact<'_>]) -> Option<String> {
        let json = artifacts.iter().filter(|artifact| artifact.media_type == "application/json");
        json.filter_map(|artifact| serde_json::from_slice::<Value>(&artifact.bytes).ok())
            .find_map(|document| self.of(&document))
            .and_then(|kept| String::from_utf8(to_jcs(&kept).ok()?).ok())
    }

    fn of(&self, document: &Value) -> Option<Value> {
        let paths: Vec<&[String]> = self.0.iter().map(Vec::as_slice).collect();
        pick(document, &paths)
    }
}

/// What the paths select of a value; elements in which nothing is selected are left out.
fn pick(value: &Value, paths: &[&[String]]) -> Option<Value> {
    if paths.iter().any(|path| path.is_empty()) {
        return Some(value.clone());
    }
    let below = |name: &str| -> Vec<&[String]> {
        let here = paths.iter().filter(|path| path[0] == "*" || path[0] == name);
        here.map(|path| &path[1..]).collect()
    };
    match value {
        Value::Object(members) => {
            let kept: Map<String, Value> = members
                .iter()
                .filter_map(|(name, value)| {
                    let below = below(name);
                    Some((name.clone(), pick(value, &below).filter(|_| !below.is_empty())?))
                })
                .collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) => {
            let kept = items.iter().enumerate().filter_map(|(at, item)| {
                let below = below(&at.to_string());
                pick(item, &below).filter(|_| !below.is_empty())
            });
            let kept: Vec<Value> = kept.collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_select_and_everything_else_is_left_out() {
        // CTX-41
        let keep = Keep::parse(&["/items/*/id", "/total"]).unwrap();
        let document =
            json!({"items": [{"id": 1, "body": "x"}, {"body": "y"}, {"id": 3}], "total": 3, "next": 4});
        assert_eq!(keep.of(&document), Some(json!({"items": [{"id": 1}, {"id": 3}], "total": 3})));
        assert_eq!(keep.of(&json!({"other": 1})), None);
        assert!(Keep::parse(&["items"]).is_err());
    }
}

//! Arguments that a server wants to see in headers too (`x-mcp-header`), so that what stands before it can route by
//! them without reading the message (PRO §4).
//!
//! Which ones is part of the declared schema and read at acceptance; what they say comes from the arguments that were
//! decided about, never from a header that a client sent.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

const KEYWORD: &str = "x-mcp-header";
const PREFIX: &str = "Mcp-Param-";

/// One argument that is repeated in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirrored {
    header: String,
    path: Vec<String>,
}

/// Finds them in a schema; the error says what is wrong with one, and where.
pub fn read(schema: &Value) -> Result<Vec<Mirrored>, String> {
    let mut found = Vec::new();
    walk(schema, &mut Vec::new(), &mut found)?;
    let mut names: Vec<String> = found.iter().map(|mirrored| mirrored.header.to_ascii_lowercase()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("two arguments want the header {}", pair[0])),
        None => Ok(found),
    }
}

fn walk(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Mirrored>) -> Result<(), String> {
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        path.push(name.clone());
        if let Some(header) = property.get(KEYWORD) {
            let at = format!("/{}", path.join("/"));
            let header = header.as_str().filter(|header| is_token(header));
            let header =
                header.ok_or_else(|| format!("{at}: {KEYWORD} is not a name that a header can have"))?;
            if !matches!(property["type"].as_str(), Some("string" | "integer" | "boolean")) {
                return Err(format!("{at}: only a text, an integer or a boolean can go into a header"));
            }
            found.push(Mirrored { header: format!("{PREFIX}{header}"), path: path.clone() });
        }
        walk(property, path, found)?;
        path.pop();
    }
    Ok(())
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 128
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

impl Mirrored {
    /// The header's name.
    pub fn header(&self) -> &str {
        &self.header
    }

    /// What the header says of these arguments; nothing if they lack the one it is about.
    pub fn value(&self, arguments: &Value) -> Option<String> {
        Some(encoded(&self.meant(arguments)?))
    }

    /// Whether what a client put into the header, decoded, is what its arguments say.
    pub fn agrees(&self, arguments: &Value, decoded: Option<&str>) -> bool {
        self.meant(arguments).as_deref() == decoded
    }

    fn meant(&self, arguments: &Value) -> Option<String> {
        let argument = self.path.iter().try_fold(arguments, |value, name| value.get(name))?;
        match argument {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(truth) => Some(truth.to_string()),
            _ => None,
        }
    }
}

/// What a header can carry as it is stays as it is; the rest travels as `=?base64?…?=`.
pub fn encoded(text: &str) -> String {
    let plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        && text.trim() == text
        && !text.is_empty()
        && !text.starts_with("=?base64?");
    if plain { text.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "where": {"type": "object", "properties": {"zone": {"type": "integer", "x-mcp-header": "Zone"}}},
            "query": {"type": "string"},
        }})
    }

    #[test]
    fn headers_say_what_the_arguments_say() {
        let mirrored = read(&schema()).unwrap();
        let values = |arguments: Value| -> Vec<(String, String)> {
            let pairs = mirrored.iter().map(|one| (one.header().to_owned(), one.value(&arguments)));
            pairs.filter_map(|(header, value)| Some((header, value?))).collect()
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            values(json!({"region": "us-west1", "where": {"zone": 7}, "query": "x"})),
            [pair("Mcp-Param-Region", "us-west1"), pair("Mcp-Param-Zone", "7")]
        );
        assert_eq!(values(json!({"query": "x"})), []);
        // PRO §6: what would end the header, or begin another, cannot.
        for (text, sent) in [
            ("a\r\nX: y", "=?base64?YQ0KWDogeQ==?="),
            ("世界", "=?base64?5LiW55WM?="),
            (" a", "=?base64?IGE=?="),
            ("", "=?base64??="),
            ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
        ] {
            assert_eq!(values(json!({"region": text})), [pair("Mcp-Param-Region", sent)]);
        }
        assert!(mirrored[0].agrees(&json!({"region": "a"}), Some("a")));
        assert!(!mirrored[0].agrees(&json!({"region": "a"}), Some("b")));
        assert!(!mirrored[0].agrees(&json!({"region": "a"}), None));
        assert!(!mirrored[0].agrees(&json!({}), Some("a")) && mirrored[0].agrees(&json!({}), None));
    }

    #[test]
    fn what_cannot_be_a_header_is_refused_at_acceptance() {
        let with = |property: Value| read(&json!({"properties": {"a": property}})).unwrap_err();
        assert!(with(json!({"type": "string", "x-mcp-header": "a b"})).contains("/a"));
        assert!(with(json!({"type": "string", "x-mcp-header": ""})).contains("name"));
        assert!(with(json!({"type": "string", "x-mcp-header": "a\r\nb"})).contains("name"));
        assert!(with(json!({"type": "string", "x-mcp-header": 7})).contains("name"));
        assert!(with(json!({"type": "object", "x-mcp-header": "A"})).contains("only"));
        // Numbers are written in many ways, and a header must say what the message says.
        assert!(with(json!({"type": "number", "x-mcp-header": "A"})).contains("only"));
        let two = json!({"properties": {"a": {"type": "string", "x-mcp-header": "R"}, "b": {"type": "string", "x-mcp-header": "r"}}});
        assert!(read(&two).unwrap_err().contains("mcp-param-r"));
    }
}

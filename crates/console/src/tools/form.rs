//! A form for a tool's arguments, made of its input schema: a field for each property, of the kind its schema says.
//!
//! What a form cannot say (objects, lists, alternatives) is written as JSON. Nothing is judged here: what comes out is
//! what the operator typed, and the gauntlet says what is wrong with it.

use serde_json::{Map, Value};

/// In front of the names of arguments in an address, so that none can be mistaken for the page's own.
const PREFIX: &str = "arg.";

/// One field.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its name in the form.
    pub(crate) name: String,
    /// The argument's own name.
    pub(crate) label: String,
    pub(crate) required: bool,
    pub(crate) says: String,
    pub(crate) shape: Shape,
    /// What was typed.
    pub(crate) value: String,
}

/// What kind of field it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Text,
    Integer,
    Number,
    YesOrNo,
    OneOf(Vec<String>),
    Json,
}

/// The fields of a schema, those that must be given first.
pub(crate) fn of(schema: &Value) -> Vec<Field> {
    let required = |name: &str| {
        let list = schema["required"].as_array();
        list.is_some_and(|list| list.iter().any(|known| known == name))
    };
    let mut fields: Vec<Field> = (schema["properties"].as_object().into_iter().flatten())
        .map(|(name, property)| Field {
            name: format!("{PREFIX}{name}"),
            label: name.clone(),
            required: required(name),
            says: property["description"].as_str().unwrap_or_default().to_owned(),
            shape: shape(property),
            value: String::new(),
        })
        .collect();
    fields.sort_by_key(|field| !field.required);
    fields
}

fn shape(property: &Value) -> Shape {
    if let Some(words) = property["enum"].as_array() {
        let words: Option<Vec<String>> = words.iter().map(|word| word.as_str().map(str::to_owned)).collect();
        return words.map_or(Shape::Json, Shape::OneOf);
    }
    match property["type"].as_str() {
        Some("string") => Shape::Text,
        Some("integer") => Shape::Integer,
        Some("number") => Shape::Number,
        Some("boolean") => Shape::YesOrNo,
        _ => Shape::Json,
    }
}

/// The arguments that a filled form stands for; the fields keep what was typed. A field that was left empty is an
/// argument that is not given.
pub(crate) fn arguments(fields: &mut [Field], typed: &Map<String, Value>) -> Result<Value, String> {
    let mut arguments = Map::new();
    for field in fields {
        let text = typed.get(&field.name).and_then(Value::as_str).unwrap_or_default();
        text.clone_into(&mut field.value);
        if text.is_empty() {
            continue;
        }
        let value = match field.shape {
            Shape::Text | Shape::OneOf(_) => Value::from(text),
            Shape::YesOrNo => Value::from(text == "true"),
            Shape::Integer | Shape::Number | Shape::Json => serde_json::from_str(text.trim())
                .map_err(|_| format!("{}: this is no {}", field.label, field.shape.word()))?,
        };
        arguments.insert(field.label.clone(), value);
    }
    Ok(Value::Object(arguments))
}

impl Shape {
    fn word(&self) -> &'static str {
        match self {
            Shape::Integer | Shape::Number => "number",
            _ => "JSON",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({"type": "object", "required": ["path"], "properties": {
            "deep": {"type": "object"}, "kind": {"enum": ["a", "b"]}, "lines": {"type": "integer"},
            "path": {"type": "string", "description": "Which file."}, "sure": {"type": "boolean"},
        }})
    }

    #[test]
    fn each_property_has_a_field_of_its_kind_and_what_must_be_given_comes_first() {
        let fields = of(&schema());
        let told: Vec<(&str, bool)> =
            fields.iter().map(|field| (field.label.as_str(), field.required)).collect();
        assert_eq!(told[0], ("path", true));
        assert_eq!(told.len(), 5);
        let shape = |name: &str| &fields.iter().find(|field| field.label == name).unwrap().shape;
        assert_eq!(*shape("kind"), Shape::OneOf(vec!["a".into(), "b".into()]));
        assert_eq!(
            (shape("deep"), shape("sure"), shape("lines")),
            (&Shape::Json, &Shape::YesOrNo, &Shape::Integer)
        );
        assert_eq!(of(&json!(true)), []);
    }

    #[test]
    fn what_is_typed_becomes_arguments_and_what_is_not_typed_is_not_given() {
        let typed = json!({"arg.path": "/x", "arg.lines": "7", "arg.sure": "true", "arg.deep": "{\"a\":1}", "dry": "1"});
        let mut fields = of(&schema());
        let arguments = super::arguments(&mut fields, typed.as_object().unwrap()).unwrap();
        assert_eq!(arguments, json!({"path": "/x", "lines": 7, "sure": true, "deep": {"a": 1}}));
        assert_eq!(fields[0].value, "/x");
        let typed = json!({"arg.lines": "seven"});
        let wrong = super::arguments(&mut of(&schema()), typed.as_object().unwrap());
        assert_eq!(wrong, Err("lines: this is no number".into()));
    }
}

//! Values of arguments: what is written must be what is meant (ADM-22, ADM-23).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Complaints, place};

/// A value that can be read out of arguments.
pub trait ArgValue: Sized {
    /// Reads it; `None` exactly if something was complained about.
    fn read(value: &Value, at: &str, complaints: &mut Complaints) -> Option<Self>;

    /// Describes it.
    fn schema() -> Value;
}

/// The longest list in arguments.
const MOST_ITEMS: usize = 1000;

/// The longest text that may be blank.
const LONGEST_TEXT: usize = 64 << 10;

/// Any text, also an empty one.
impl ArgValue for String {
    fn read(value: &Value, at: &str, complaints: &mut Complaints) -> Option<Self> {
        match value.as_str() {
            Some(text) if text.len() <= LONGEST_TEXT => return Some(text.to_owned()),
            Some(_) => complaints.push(at, format!("must have at most {LONGEST_TEXT} bytes")),
            None => complaints.push(at, "must be a string"),
        }
        None
    }

    fn schema() -> Value {
        json!({"type": "string"})
    }
}

/// A whole number within bounds, written as one: no boolean, no text, no fraction, no exponent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Integer<const LEAST: i64, const MOST: i64>(pub i64);

/// Which version of a thing the caller looked at (ADM-56); 0 where it expects none.
pub type Version = Integer<0, 9_007_199_254_740_991>;

impl<const LEAST: i64, const MOST: i64> Integer<LEAST, MOST> {
    /// The number, where none below zero is meant.
    pub fn get(self) -> u64 {
        self.0.max(0).unsigned_abs()
    }
}

impl<const LEAST: i64, const MOST: i64> ArgValue for Integer<LEAST, MOST> {
    fn read(value: &Value, at: &str, complaints: &mut Complaints) -> Option<Self> {
        match integer_in(value, LEAST, MOST) {
            Ok(number) => Some(Self(number)),
            Err(text) => {
                complaints.push(at, text);
                None
            }
        }
    }

    fn schema() -> Value {
        json!({"type": "integer", "minimum": LEAST, "maximum": MOST})
    }
}

pub(super) fn integer_in(value: &Value, least: i64, most: i64) -> Result<i64, String> {
    match value.as_i64() {
        Some(number) if number < least => Err(format!("must be >= {least}")),
        Some(number) if number > most => Err(format!("must be <= {most}")),
        Some(number) => Ok(number),
        None => Err("must be an integer".into()),
    }
}

impl ArgValue for bool {
    fn read(value: &Value, at: &str, complaints: &mut Complaints) -> Option<Self> {
        if value.as_bool().is_none() {
            complaints.push(at, "must be true or false");
        }
        value.as_bool()
    }

    fn schema() -> Value {
        json!({"type": "boolean"})
    }
}

impl<T: ArgValue> ArgValue for Vec<T> {
    fn read(value: &Value, at: &str, complaints: &mut Complaints) -> Option<Self> {
        let Some(items) = value.as_array() else {
            complaints.push(at, "must be a list");
            return None;
        };
        if items.len() > MOST_ITEMS {
            complaints.push(at, format!("must have at most {MOST_ITEMS} items"));
            return None;
        }
        // All of them, so that all complaints are made.
        let read: Vec<Option<T>> = (items.iter().enumerate())
            .map(|(index, item)| T::read(item, &place(at, &index.to_string()), complaints))
            .collect();
        read.into_iter().collect()
    }

    fn schema() -> Value {
        json!({"type": "array", "items": T::schema()})
    }
}

impl<T: ArgValue> ArgValue for BTreeMap<String, T> {
    fn read(value: &Value, at: &str, complaints: &mut Complaints) -> Option<Self> {
        let Some(members) = value.as_object() else {
            complaints.push(at, "must be an object");
            return None;
        };
        let read: Vec<Option<(String, T)>> = (members.iter())
            .map(|(key, value)| {
                let at = place(at, &super::shown(key));
                T::read(value, &at, complaints).map(|value| (key.clone(), value))
            })
            .collect();
        read.into_iter().collect()
    }

    fn schema() -> Value {
        json!({"type": "object", "additionalProperties": T::schema()})
    }
}

/// An object that is not looked into here. How large and deep it may be is a matter of the whole call.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonObject(pub Map<String, Value>);

impl ArgValue for JsonObject {
    fn read(value: &Value, at: &str, complaints: &mut Complaints) -> Option<Self> {
        let object = value.as_object().cloned();
        if object.is_none() {
            complaints.push(at, "must be an object");
        }
        object.map(Self)
    }

    fn schema() -> Value {
        json!({"type": "object"})
    }
}

/// Any JSON value.
impl ArgValue for Value {
    fn read(value: &Value, _: &str, _: &mut Complaints) -> Option<Self> {
        Some(value.clone())
    }

    fn schema() -> Value {
        json!({})
    }
}

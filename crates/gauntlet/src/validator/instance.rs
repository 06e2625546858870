//! What is validated: a value that was built, or one that stands in a text and never is.

use std::borrow::Cow;

use serde_json::{Number, Value};

use super::number;
use crate::tape::{self, View};

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

/// A value to be validated. Asking one for what it is not yields nothing.
pub(crate) trait Instance<'i>: Copy {
    fn kind(self) -> Kind;

    /// Whether it is a number without a fraction (GNT-S7).
    fn is_integer(self) -> bool;

    fn number(self) -> Number;

    fn text(self) -> Cow<'i, str>;

    fn items(self) -> impl Iterator<Item = Self>;

    fn members(self) -> impl Iterator<Item = (Cow<'i, str>, Self)>;

    fn member(self, name: &str) -> Option<Self>;

    /// How many items or members it has.
    fn count(self) -> usize;

    /// For the questions that are about the whole of it.
    fn value(self) -> Cow<'i, Value>;
}

impl<'i> Instance<'i> for &'i Value {
    fn kind(self) -> Kind {
        match self {
            Value::Null => Kind::Null,
            Value::Bool(_) => Kind::Bool,
            Value::Number(_) => Kind::Number,
            Value::String(_) => Kind::String,
            Value::Array(_) => Kind::Array,
            Value::Object(_) => Kind::Object,
        }
    }

    fn is_integer(self) -> bool {
        self.as_number().is_some_and(number::is_integer)
    }

    fn number(self) -> Number {
        self.as_number().cloned().unwrap_or_else(|| 0.into())
    }

    fn text(self) -> Cow<'i, str> {
        Cow::Borrowed(self.as_str().unwrap_or_default())
    }

    fn items(self) -> impl Iterator<Item = Self> {
        self.as_array().into_iter().flatten()
    }

    fn members(self) -> impl Iterator<Item = (Cow<'i, str>, Self)> {
        self.as_object().into_iter().flatten().map(|(name, member)| (Cow::Borrowed(name.as_str()), member))
    }

    fn member(self, name: &str) -> Option<Self> {
        self.get(name)
    }

    fn count(self) -> usize {
        match self {
            Value::Array(items) => items.len(),
            Value::Object(members) => members.len(),
            _ => 0,
        }
    }

    fn value(self) -> Cow<'i, Value> {
        Cow::Borrowed(self)
    }
}

impl<'s> Instance<'s> for View<'_, 's> {
    fn kind(self) -> Kind {
        match self.kind() {
            tape::Kind::Null => Kind::Null,
            tape::Kind::Bool => Kind::Bool,
            tape::Kind::Number => Kind::Number,
            tape::Kind::String | tape::Kind::Name => Kind::String,
            tape::Kind::Array => Kind::Array,
            tape::Kind::Object => Kind::Object,
        }
    }

    fn is_integer(self) -> bool {
        self.kind() == tape::Kind::Number
            && (!self.raw().contains(['.', 'e', 'E']) || number::is_integer(&self.number()))
    }

    fn number(self) -> Number {
        self.number()
    }

    fn text(self) -> Cow<'s, str> {
        self.text()
    }

    fn items(self) -> impl Iterator<Item = Self> {
        self.items()
    }

    fn members(self) -> impl Iterator<Item = (Cow<'s, str>, Self)> {
        self.members().map(|(name, member)| (name.text(), member))
    }

    fn member(self, name: &str) -> Option<Self> {
        self.get(name)
    }

    fn count(self) -> usize {
        self.items().count() + self.members().count()
    }

    fn value(self) -> Cow<'s, Value> {
        Cow::Owned(self.value())
    }
}

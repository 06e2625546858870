//! Arguments: every tool has a struct, and its schema is made of the struct (ADM-12, ADM-20).
//!
//! A struct is declared with [`args!`](crate::args); reading it collects everything that is wrong before it gives up,
//! names places and never values, and takes no number for what is not written as one (ADM-21, ADM-22).

mod page;
mod text;
mod time;
mod value;

use serde_json::{Map, Value, json};

pub use page::{Page, Paged};
pub use text::{Ident, NonBlank};
pub use time::{Moment, TimeWindow};
pub use value::{ArgValue, Integer, JsonObject, Version};

/// What is wrong with arguments: where, and what.
#[derive(Debug, Default)]
pub struct Complaints(Vec<(String, String)>);

impl Complaints {
    /// Adds one.
    pub fn push(&mut self, at: &str, text: impl Into<String>) {
        let at = if at.is_empty() { "<arguments>" } else { at };
        self.0.push((at.to_owned(), text.into()));
    }

    /// All of them, or nothing.
    pub fn found(&self) -> Option<&[(String, String)]> {
        (!self.0.is_empty()).then_some(&self.0)
    }
}

/// The members of an object that is being read.
#[derive(Debug)]
pub struct Members<'v> {
    object: &'v Map<String, Value>,
    at: String,
    known: Vec<&'static str>,
    complaints: &'v mut Complaints,
}

impl<'v> Members<'v> {
    /// The members of `object`, which stands at `at`.
    pub fn new(object: &'v Map<String, Value>, at: &str, complaints: &'v mut Complaints) -> Self {
        Self { object, at: at.to_owned(), known: Vec::new(), complaints }
    }

    /// The value of a member, which counts as known from now on.
    pub fn member(&mut self, name: &'static str) -> Option<&'v Value> {
        self.known.push(name);
        self.object.get(name)
    }

    /// Where a member stands.
    pub fn place(&self, name: &str) -> String {
        place(&self.at, name)
    }

    /// Says what is wrong with a member.
    pub fn complain(&mut self, name: &str, text: impl Into<String>) {
        let at = self.place(name);
        self.complaints.push(&at, text);
    }

    /// Reads one value.
    pub fn read<T: ArgValue>(&mut self, name: &str, value: &Value) -> Option<T> {
        let at = self.place(name);
        T::read(value, &at, self.complaints)
    }

    /// Refuses every member that nobody asked for.
    pub fn refuse_unknown(&mut self) {
        let unknown: Vec<String> = self
            .object
            .keys()
            .filter(|key| !self.known.contains(&key.as_str()))
            .map(|key| shown(key))
            .collect();
        for key in unknown {
            self.complain(&key, "unknown field");
        }
    }
}

/// Names of members are the caller's text: shown as they are only where they look like names.
fn shown(key: &str) -> String {
    let plain = !key.is_empty()
        && key.len() <= 64
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    if plain { key.to_owned() } else { portcullis_core::name::printable(key) }
}

pub(crate) fn place(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}

/// A schema in the making.
#[derive(Debug, Default)]
pub struct Describe {
    properties: Map<String, Value>,
    required: Vec<Value>,
}

impl Describe {
    /// Adds a property.
    pub fn property(&mut self, name: &str, schema: Value, required: bool) {
        self.properties.insert(name.to_owned(), schema);
        if required {
            self.required.push(name.into());
        }
    }

    /// The schema of the object.
    pub fn finish(self) -> Value {
        let mut schema = json!({"type": "object"});
        if !self.properties.is_empty() {
            schema["properties"] = Value::Object(self.properties);
        }
        if !self.required.is_empty() {
            schema["required"] = Value::Array(self.required);
        }
        schema["additionalProperties"] = Value::Bool(false);
        schema
    }
}

/// The arguments of a tool. Made by [`args!`](crate::args).
pub trait ToolArgs: Sized + Send + 'static {
    /// Reads them; `None` exactly if something was complained about.
    fn read(members: &mut Members<'_>) -> Option<Self>;

    /// Describes them.
    fn describe(schema: &mut Describe);
}

/// One field of a struct of arguments: a value, a value that may be missing, or several fields at once.
pub trait Field: Sized {
    /// Takes it out of the members.
    fn take(name: &'static str, members: &mut Members<'_>) -> Option<Self>;

    /// Describes it.
    fn describe(name: &'static str, schema: &mut Describe);
}

impl<T: ArgValue> Field for T {
    fn take(name: &'static str, members: &mut Members<'_>) -> Option<Self> {
        match members.member(name) {
            Some(value) => members.read(name, value),
            None => {
                members.complain(name, "required");
                None
            }
        }
    }

    fn describe(name: &'static str, schema: &mut Describe) {
        schema.property(name, T::schema(), true);
    }
}

impl<T: ArgValue> Field for Option<T> {
    fn take(name: &'static str, members: &mut Members<'_>) -> Option<Self> {
        match members.member(name) {
            Some(value) => members.read(name, value).map(Some),
            None => Some(None),
        }
    }

    fn describe(name: &'static str, schema: &mut Describe) {
        schema.property(name, T::schema(), false);
    }
}

/// Declares a struct of arguments, with how it is read and how it is described.
#[macro_export]
macro_rules! args {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($field:ident : $kind:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone)]
        #[allow(missing_docs, clippy::allow_attributes)]
        $vis struct $name { $($vis $field: $kind),* }

        impl $crate::args::ToolArgs for $name {
            fn read(members: &mut $crate::args::Members<'_>) -> Option<Self> {
                $(let $field = <$kind as $crate::args::Field>::take(stringify!($field), members);)*
                members.refuse_unknown();
                Some(Self { $($field: $field?),* })
            }

            #[allow(unused_variables, clippy::allow_attributes)]
            fn describe(schema: &mut $crate::args::Describe) {
                $(<$kind as $crate::args::Field>::describe(stringify!($field), schema);)*
            }
        }

        impl $crate::args::ArgValue for $name {
            fn read(
                value: &serde_json::Value,
                at: &str,
                complaints: &mut $crate::args::Complaints,
            ) -> Option<Self> {
                let Some(object) = value.as_object() else {
                    complaints.push(at, "must be an object");
                    return None;
                };
                <Self as $crate::args::ToolArgs>::read(&mut $crate::args::Members::new(object, at, complaints))
            }

            fn schema() -> serde_json::Value {
                let mut schema = $crate::args::Describe::default();
                <Self as $crate::args::ToolArgs>::describe(&mut schema);
                schema.finish()
            }
        }
    };
}

/// Declares words of which an argument is one.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, clippy::allow_attributes)]
        $vis enum $name { $($variant),+ }

        #[allow(dead_code, clippy::allow_attributes)]
        impl $name {
            /// The word.
            $vis fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl $crate::args::ArgValue for $name {
            fn read(
                value: &serde_json::Value,
                at: &str,
                complaints: &mut $crate::args::Complaints,
            ) -> Option<Self> {
                match value.as_str() {
                    $(Some($word) => Some($name::$variant),)+
                    _ => {
                        complaints.push(at, concat!("must be one of", $(" ", $word),+));
                        None
                    }
                }
            }

            fn schema() -> serde_json::Value {
                serde_json::json!({"enum": [$($word),+]})
            }
        }
    };
}

args! {
    /// A tool without arguments.
    pub struct NoArgs {}
}

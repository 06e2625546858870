//! Tools that are named and have nothing behind them yet (ADM-15): hidden from lists, and answered with `not_supported`.
//!
//! Whatever arguments come with a call, the answer is the same, so none are described.

use serde_json::{Map, Value};

use crate::args::{ArgValue, Complaints, Describe, Members, ToolArgs};
use crate::registry::Module;
use crate::tool::{Class, unwired_tool};

const REASON: &str = "this gateway has nothing behind this tool yet";

const LATER: &[(&str, &str, Class)] = &[
    ("tasks", "list", Class::Read),
    ("tasks", "get", Class::Read),
    ("tasks", "cancel", Class::Admin),
    ("replicas", "drain", Class::Admin),
    ("reviews", "list", Class::Read),
    ("reviews", "put", Class::Write),
    ("signal_rules", "set", Class::Admin),
    ("proposals", "list", Class::Read),
    ("proposals", "submit", Class::Write),
    ("proposals", "apply", Class::Admin),
    ("plans", "list", Class::Read),
    ("plans", "get", Class::Read),
    ("plans", "put", Class::Write),
    ("plans", "dry_run", Class::Read),
    ("plans", "delete", Class::Admin),
    ("plan_runs", "list", Class::Read),
    ("plan_runs", "start", Class::Write),
    ("plan_runs", "cancel", Class::Admin),
    ("teams", "list", Class::Read),
    ("teams", "put", Class::Admin),
    ("teams", "delete", Class::Admin),
    ("oauth", "list", Class::Read),
    ("oauth", "put", Class::Admin),
    ("oauth", "delete", Class::Admin),
];

/// Any arguments.
#[derive(Debug, Clone)]
pub(crate) struct Anything;

impl ToolArgs for Anything {
    fn read(_: &mut Members<'_>) -> Option<Self> {
        Some(Self)
    }

    fn describe(_: &mut Describe) {}
}

impl ArgValue for Anything {
    fn read(_: &Value, _: &str, _: &mut Complaints) -> Option<Self> {
        Some(Self)
    }

    fn schema() -> Value {
        Value::Object(Map::new())
    }
}

pub(super) fn module() -> Module {
    let tool = |(domain, action, class): &(&'static str, &'static str, Class)| {
        unwired_tool::<Anything>(domain, action, *class, REASON)
    };
    Module { name: "later", tools: LATER.iter().map(tool).collect() }
}

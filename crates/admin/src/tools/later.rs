//! Tools that are named and have nothing behind them yet (ADM-15): hidden from lists, and answered with `not_supported`.
//!
//! Whatever arguments come with a call, the answer is the same, so none are described.

use serde_json::{Map, Value};

use crate::args::{ArgValue, Complaints, Describe, Members, ToolArgs};
use crate::registry::Module;
use crate::tool::{Class, unwired_tool};

const REASON: &str = "this gateway has nothing behind this tool yet";

const LATER: [(&str, &str, Class); 83] = [
    ("tasks", "list", Class::Read),
    ("tasks", "get", Class::Read),
    ("tasks", "cancel", Class::Admin),
    ("clients", "create", Class::Admin),
    ("clients", "update", Class::Admin),
    ("clients", "rotate_key", Class::Admin),
    ("clients", "set_grants", Class::Admin),
    ("clients", "set_autonomy", Class::Admin),
    ("profiles", "list", Class::Read),
    ("profiles", "put", Class::Admin),
    ("profiles", "delete", Class::Admin),
    ("quotas", "list", Class::Read),
    ("quotas", "usage", Class::Read),
    ("quotas", "set", Class::Admin),
    ("quotas", "clear", Class::Admin),
    ("reports", "generate", Class::Write),
    ("locks", "list", Class::Read),
    ("locks", "release", Class::Admin),
    ("processes", "restart", Class::Admin),
    ("replicas", "drain", Class::Admin),
    ("quality", "summary", Class::Read),
    ("quality", "list_scores", Class::Read),
    ("reviews", "list", Class::Read),
    ("reviews", "put", Class::Write),
    ("signals", "snapshot", Class::Read),
    ("signals", "list", Class::Read),
    ("signals", "acknowledge", Class::Write),
    ("signal_rules", "set", Class::Admin),
    ("proposals", "list", Class::Read),
    ("proposals", "submit", Class::Write),
    ("proposals", "apply", Class::Admin),
    ("approvals", "create", Class::Write),
    ("approvals", "withdraw", Class::Write),
    ("permits", "check", Class::Read),
    ("waivers", "revoke", Class::Admin),
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
    ("roles", "put", Class::Admin),
    ("roles", "delete", Class::Admin),
    ("webhooks", "list", Class::Read),
    ("webhooks", "put", Class::Admin),
    ("webhooks", "delete", Class::Admin),
    ("webhooks", "test", Class::Admin),
    ("deliveries", "list", Class::Read),
    ("notifications", "list", Class::Read),
    ("notifications", "ack", Class::Write),
    ("declarations", "get", Class::Read),
    ("declarations", "diff", Class::Read),
    ("declarations", "draft", Class::Write),
    ("declarations", "submit", Class::Write),
    ("declarations", "reject", Class::Admin),
    ("tools", "override", Class::Admin),
    ("tools", "set_state", Class::Admin),
    ("imports", "scan", Class::Read),
    ("imports", "run", Class::Admin),
    ("credentials", "capture", Class::Admin),
    ("credentials", "bind", Class::Admin),
    ("credentials", "unbind", Class::Admin),
    ("oauth", "list", Class::Read),
    ("oauth", "put", Class::Admin),
    ("oauth", "delete", Class::Admin),
    ("config", "list", Class::Read),
    ("config", "set", Class::Admin),
    ("config", "reset", Class::Admin),
    ("backups", "list", Class::Read),
    ("backups", "create", Class::Admin),
    ("backups", "verify", Class::Read),
    ("backups", "restore", Class::Admin),
    ("users", "put", Class::Admin),
    ("keys", "rotate", Class::Admin),
    ("artifacts", "view", Class::Read),
    ("artifacts", "delete", Class::Admin),
    ("context", "list", Class::Read),
    ("context", "erase", Class::Admin),
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
    let tool = |(domain, action, class): (&'static str, &'static str, Class)| {
        unwired_tool::<Anything>(domain, action, class, REASON)
    };
    Module { name: "later", tools: LATER.into_iter().map(tool).collect() }
}

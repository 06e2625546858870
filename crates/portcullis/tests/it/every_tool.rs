//! Every admin tool on a live gateway with a real server: with arguments that are right, and with every way in which they
//! can be wrong (admin §12). The table of right arguments is here; the wrong ones are derived from each tool's schema.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use portcullis_core::{Clock as _, SystemClock};
use serde_json::{Map, Value, json};

use crate::admin::Program;
use crate::approvals::enrol;
use crate::notices::store_credential;
use crate::support::{Daemon, Home, Spy, eventually};

/// What a call with right arguments comes to here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is done.
    Done,
    /// It is understood, and refused with exactly this: what it takes is not here. `rare_tools` has a gateway with it, where
    /// the same tool is done.
    Refused(&'static str),
    /// This gateway has no replicas.
    NotHere,
}

/// One call.
pub(crate) struct Row {
    pub(crate) tool: &'static str,
    pub(crate) args: Value,
    pub(crate) outcome: Outcome,
}

/// Things there are on the gateway, by id.
pub(crate) struct Sample {
    session: Value,
    artifact: Value,
    call: Value,
    permit: Value,
    entry: Value,
    backup: Value,
    evidence_key: Value,
    /// Approvals that wait: to be rejected, approved, withdrawn.
    approvals: [Value; 3],
    presented: Value,
    declaration: String,
    spy: Vec<String>,
    /// The registration of another server.
    another: Value,
    notification: Value,
    signal: Value,
    soon: String,
}

pub(crate) const CONFIG: &str = "[firewall]\npassthrough = true\n[admin]\nwebhook_hosts = [\"127.0.0.1\"]\nfounders = [\"zoe\"]\n\
                                 [sandbox.hosts]\n\"api.example\" = [\"127.0.0.1\"]\n";

impl Sample {
    /// An approval that waits for a call of `spy__echo` with the text `b`.
    pub(crate) fn waiting_for_b(&self) -> &str {
        self.approvals[1].as_str().unwrap()
    }

    pub(crate) fn new(home: &Home, spy: &Spy, daemon: &Daemon, program: &Program<'_>) -> Self {
        let read = |tool: &str, args: Value| {
            let reply = program.call(tool, &args.to_string());
            assert_eq!(reply.status, 200, "{tool}: {}", reply.body);
            reply.json()["data"].clone()
        };
        store_credential(home, "hook-key", "canary-signing-value-4712");
        let long: String = (0..5_000).map(|n| format!("line {n}\n")).collect();
        spy.control(&json!({"result": {"pid": {"content": [{"type": "text", "text": long}]}}}));
        for (tool, args) in [("spy__pid", json!({})), ("spy__echo", json!({"text": "x"}))] {
            let answer = daemon.approved_call(home, tool, &args).unwrap();
            assert!(answer["result"].is_object(), "{answer}");
        }
        let asked = |text: &str| {
            let args = json!({"tool": "spy/echo", "arguments": {"text": text}, "justification": "tonight"});
            read("approvals_create", args)["approval_id"].clone()
        };
        let approvals = ["a", "b", "c"].map(asked);
        let presented =
            read("approvals_get", json!({"approval_id": approvals[1]}))["presented_sha256"].clone();
        read("declarations_submit", json!({"server_id": "spy", "declaration": spy.declaration()}));
        let guarded = json!({"confirm": true, "reason": "for a test"});
        let backup = read("backups_create", guarded.clone())["backup_id"].clone();
        let mut signed = guarded;
        signed["jobs"] = json!(["checkpoint"]);
        let entry = read("audit_list", json!({"limit": 1}))[0]["entry_id"].clone();
        read("meta_run_maintenance", signed);
        let keys = read("keys_list", json!({}));
        let evidence = keys.as_array().unwrap().iter().find(|key| key["purpose"] == "evidence");
        let notification = read("notifications_list", json!({"limit": 1}))[0]["notification_id"].clone();
        // A client that is broken raises a signal.
        for at in 0..10 {
            daemon.call("spy__echo", &json!({"wrong": at})).unwrap();
        }
        let signal = eventually("a signal", || {
            let open = read("signals_list", json!({"state": "open"}));
            open.as_array().and_then(|rows| rows.first()).map(|row| row["signal_id"].clone())
        });
        let other = Spy::speaking(home, "other", "2025-11-25");
        let another = json!({
            "server_id": "other", "version": "1.0.0", "surface": "static", "trust_tier_requested": 0,
            "justification": "one more", "policy_tags": ["local"], "declaration": other.declaration(),
            "transport": "stdio", "process": process(&started(&other)),
        });
        Self {
            another,
            notification,
            signal,
            session: home.json(&["session", "list"])[0]["session_id"].clone(),
            artifact: read("artifacts_list", json!({}))[0]["artifact_id"].clone(),
            call: read("calls_list", json!({}))[0]["call_id"].clone(),
            permit: read("permits_list", json!({}))[0]["permit_id"].clone(),
            entry,
            backup,
            evidence_key: evidence.unwrap()["kid"].clone(),
            approvals,
            presented,
            declaration: spy.declaration(),
            spy: started(spy),
            soon: SystemClock.now().after(Duration::from_secs(3600)).to_string(),
        }
    }

    /// Right arguments of every tool, in an order in which they can be called one after the other.
    pub(crate) fn rows(&self) -> Vec<Row> {
        use Outcome::{Done, NotHere, Refused};
        let (spy, lent) = (json!({"server_id": "spy"}), json!({"server_id": "lent"}));
        let (session, artifact) = (&self.session, &self.artifact);
        let echo = json!({"tool": "spy/echo", "arguments": {"text": "x"}});
        let with = |base: &Value, more: Value| {
            let mut whole = base.as_object().unwrap().clone();
            whole.extend(more.as_object().unwrap().clone());
            Value::Object(whole)
        };
        let place = json!({"transport": "stdio", "process": process(&self.spy)});
        // Drafted in a cage where nothing can be written, and so without its log.
        let silent = json!({"transport": "stdio", "process": {"command": self.spy[0], "args": ["--log", "/tmp/log", "--control", "/tmp/control", "--stdio"]}});
        let registration = with(
            &place,
            json!({
                "server_id": "spy", "version": "1.0.0", "surface": "static", "trust_tier_requested": 0,
                "justification": "again", "policy_tags": ["local"], "declaration": self.declaration,
            }),
        );
        let hook = json!({
            "webhook_id": "w", "url": "http://127.0.0.1:9/x", "events": ["*"], "secret_handle": "hook-key", "enabled": true,
        });
        let table = [
            // What looks.
            ("activities_list", json!({}), Done),
            ("analytics_errors", json!({}), Done),
            ("analytics_footprint", json!({}), Done),
            ("analytics_overview", json!({}), Done),
            ("analytics_tools", json!({"tools": ["spy/echo"]}), Done),
            ("approvals_list", json!({"status": "pending"}), Done),
            ("approvals_get", json!({"approval_id": self.approvals[0]}), Done),
            ("artifacts_list", json!({}), Done),
            ("artifacts_get", json!({"artifact_id": artifact}), Done),
            (
                "artifacts_view",
                json!({"artifact_id": artifact, "selector": {"type": "lines", "start": 0, "end": 2}}),
                Done,
            ),
            ("audit_list", json!({"limit": 5}), Done),
            ("audit_get", json!({"entry_id": self.entry}), Done),
            ("audit_proof", json!({"entry_id": self.entry}), Done),
            ("audit_verify", json!({}), Done),
            ("backups_list", json!({}), Done),
            ("backups_verify", json!({"backup_id": self.backup}), Done),
            ("budget_records_list", json!({}), Done),
            ("calls_list", json!({}), Done),
            ("calls_get", json!({"call_id": self.call}), Done),
            ("calls_overview", json!({"bucket": "hour"}), Done),
            ("checkpoints_list", json!({}), Done),
            ("clients_list", json!({}), Done),
            ("clients_get", json!({"client_id": "local"}), Done),
            ("config_list", json!({}), Done),
            ("context_list", json!({"session_id": session}), Done),
            ("credentials_list", json!({}), Done),
            ("declarations_get", with(&spy, json!({"version": "1"})), Done),
            ("declarations_diff", with(&spy, json!({"from": "1", "to": "s1"})), Done),
            ("deliveries_list", json!({}), Done),
            ("drafts_list", json!({}), Done),
            ("exports_list", json!({}), Done),
            ("grants_list", json!({}), Done),
            ("health_check", json!({}), Done),
            ("health_servers", spy.clone(), Done),
            ("imports_scan", json!({}), Done),
            ("keys_list", json!({}), Done),
            ("locks_list", json!({}), Done),
            ("meta_client_config", json!({"client_id": "local", "format": "mcp_json"}), Done),
            ("meta_list_rules", json!({}), Done),
            ("meta_list_tools", json!({"domain": "servers"}), Done),
            ("meta_whoami", json!({}), Done),
            ("notifications_list", json!({}), Done),
            ("permits_list", json!({}), Done),
            ("permits_check", json!({"permit_id": self.permit, "arguments": {"text": "x"}}), Done),
            ("policies_list", json!({}), Done),
            ("policies_get", json!({}), Done),
            ("policies_validate", json!({"bundle": {"preset": "strict"}}), Done),
            ("policies_explain", with(&echo, json!({"client_id": "local"})), Done),
            ("profiles_list", json!({}), Done),
            ("quality_list_scores", json!({}), Done),
            ("quality_summary", json!({}), Done),
            ("quotas_list", json!({}), Done),
            ("quotas_usage", json!({"subject": "global"}), Done),
            ("replicas_list", json!({}), NotHere),
            ("roles_list", json!({}), Done),
            ("servers_list", json!({}), Done),
            ("servers_get", spy.clone(), Done),
            ("sessions_list", json!({}), Done),
            ("sessions_get", json!({"session_id": session}), Done),
            ("sessions_frames", json!({"session_id": session}), Done),
            ("signals_list", json!({}), Done),
            ("signals_snapshot", json!({}), Done),
            ("tokens_list", json!({}), Done),
            ("tools_list", json!({"query": "echo"}), Done),
            ("tools_get", json!({"tool": "spy/echo"}), Done),
            ("tools_dry_run", echo.clone(), Done),
            ("trust_list", json!({}), Done),
            ("trust_history", json!({"tool": "spy/echo"}), Done),
            ("trust_verify", json!({}), Done),
            ("users_list", json!({}), Done),
            ("webhooks_list", json!({}), Done),
            // What changes something, and destroys nothing.
            ("approvals_create", with(&echo, json!({"justification": "tonight"})), Done),
            ("approvals_withdraw", json!({"approval_id": self.approvals[2]}), Done),
            ("audit_rebuild_index", json!({}), Done),
            ("catalog_refresh", json!({}), Done),
            ("declarations_draft", spy.clone(), Done),
            ("declarations_submit", with(&spy, json!({"declaration": self.declaration})), Done),
            ("notifications_ack", json!({"notification_id": self.notification}), Done),
            ("reports_generate", json!({"report_type": "usage", "format": "json"}), Done),
            ("servers_draft", with(&silent, json!({"server_id": "another"})), Done),
            ("servers_refresh", spy.clone(), Done),
            ("signals_acknowledge", json!({"signal_id": self.signal}), Done),
            // What takes an operator, a confirmation and a reason.
            ("checkpoints_open", json!({"session_id": session}), Done),
            ("checkpoints_resolve", json!({"session_id": session}), Done),
            ("approvals_reject", json!({"approval_id": self.approvals[0]}), Done),
            (
                "approvals_approve",
                json!({"approval_id": self.approvals[1], "scope": "once", "presented_sha256": self.presented}),
                Done,
            ),
            ("roles_put", json!({"role_id": "r", "patterns": ["*:read"]}), Done),
            ("users_put", json!({"user_id": "bob", "roles": ["r"], "enabled": true}), Done),
            ("users_enrol", json!({"user_id": "eve"}), Done),
            ("users_vouch", json!({"user_id": "zoe"}), Done),
            // Done in `console::keys`, where a browser has a key.
            ("users_remove_passkey", json!({"user_id": "zoe", "passkey": "AAAA"}), Refused("not_found")),
            ("users_delete", json!({"user_id": "bob"}), Done),
            ("roles_delete", json!({"role_id": "r"}), Done),
            ("tokens_create", json!({"name": "another"}), Done),
            ("tokens_revoke", json!({"name": "another"}), Done),
            ("profiles_put", json!({"profile_id": "p", "mode": "gateway"}), Done),
            ("profiles_delete", json!({"profile_id": "p"}), Done),
            (
                "quotas_set",
                json!({"subject": "global", "metric": "calls", "limit": 9, "window": "day", "action": "refuse"}),
                Done,
            ),
            ("quotas_clear", json!({"subject": "global", "metric": "calls"}), Done),
            ("clients_create", json!({"client_id": "ci", "display_name": "CI", "kind": "agent"}), Done),
            ("clients_update", json!({"client_id": "ci", "display_name": "C I"}), Done),
            ("clients_set_grants", json!({"client_id": "ci", "grants": ["declared"]}), Done),
            ("clients_set_autonomy", json!({"client_id": "ci", "level": "semi"}), Done),
            ("clients_rotate_key", json!({"client_id": "ci"}), Done),
            ("clients_issue_key", json!({"client_id": "cj"}), Done),
            ("clients_revoke", json!({"client_id": "ci"}), Done),
            ("config_set", json!({"key": "approvals.wait", "value": "5s"}), Done),
            ("config_reset", json!({"key": "approvals.wait"}), Done),
            ("webhooks_put", hook, Done),
            ("webhooks_test", json!({"webhook_id": "w"}), Done),
            ("webhooks_delete", json!({"webhook_id": "w"}), Done),
            ("credentials_capture", json!({"name": "c", "kind": "token"}), Done),
            (
                "credentials_bind",
                with(&lent, json!({"name": "hook-key", "credential_class": "issues.read"})),
                Done,
            ),
            ("credentials_unbind", with(&lent, json!({"name": "hook-key"})), Done),
            // A server of records has such keys: `rare_tools` has one handed over.
            (
                "credentials_export_signing_key",
                with(&spy, json!({"subscription_id": "sub_1"})),
                Refused("not_found"),
            ),
            ("credentials_delete", json!({"name": "hook-key"}), Done),
            ("tools_set_state", json!({"tool": "spy/echo", "state": "quarantined"}), Done),
            ("tools_override", json!({"tool": "spy/echo", "deprecated": true}), Done),
            // It takes seven days: `rare_tools` has them pass.
            ("trust_grant", json!({"tool": "spy/echo", "state": "trusted"}), Refused("conflict")),
            ("trust_revoke", json!({"tool": "spy/echo"}), Done),
            ("grants_revoke", json!({"grant_id": self.approvals[1]}), Done),
            ("permits_revoke", json!({"tool": "spy/echo"}), Done),
            ("waivers_put", with(&spy, json!({"kind": "landlock", "expires_at": self.soon})), Done),
            ("waivers_revoke", json!({"waiver_id": "spy/landlock"}), Done),
            ("audit_export", json!({}), Done),
            ("audit_cassette", json!({}), Done),
            ("audit_open", json!({"seqs": [0]}), Done),
            ("audit_hold", json!({"kid": self.evidence_key, "held": true}), Done),
            ("audit_unblock", json!({}), Done),
            ("keys_rotate", json!({"purpose": "log"}), Done),
            ("meta_run_maintenance", json!({"jobs": ["checkpoint", "retention"]}), Done),
            ("backups_create", json!({"label": "another"}), Done),
            ("backups_restore", json!({"backup_id": self.backup}), Done),
            ("calls_open", json!({"call_id": self.call}), Done),
            ("artifacts_delete", json!({"artifact_id": artifact}), Done),
            ("context_erase", json!({"client_id": "local"}), Done),
            ("imports_run", json!({"source": "mcp_json", "server_names": ["found"]}), Done),
            // Whoever has a turn here has it for a moment: `rare_tools` has one taken away.
            ("locks_release", json!({"lock_id": "none"}), Refused("not_found")),
            ("processes_restart", spy.clone(), Done),
            ("policies_apply", json!({"bundle": {"preset": "balanced"}}), Done),
            ("policies_rollback", json!({}), Done),
            ("sessions_replay", json!({"session_id": session}), Done),
            ("sessions_terminate", json!({"session_id": session}), Done),
            ("declarations_reject", with(&spy, json!({"version": "s1"})), Done),
            ("declarations_accept", with(&spy, json!({"version": "s2"})), Done),
            ("servers_test", spy.clone(), Done),
            ("servers_register", self.another.clone(), Done),
            ("servers_update", registration, Done),
            ("servers_set_state", with(&spy, json!({"state": "halted"})), Done),
            ("servers_remove", spy.clone(), Done),
        ];
        let row = |(tool, args, outcome)| Row { tool, args, outcome };
        table.into_iter().map(row).collect()
    }
}

/// What a spy is started with.
fn started(spy: &Spy) -> Vec<String> {
    let mut words = spy.add_args(Path::new("unused"));
    let program_at = words.iter().position(|word| word == "--").unwrap();
    words.split_off(program_at + 1)
}

fn process(words: &[String]) -> Value {
    json!({"command": words[0], "args": words[1..], "process_model": "shared"})
}

/// The tools that there is something behind, as they describe themselves.
pub(crate) fn wired(program: &Program<'_>) -> Map<String, Value> {
    let mut found = Map::new();
    for offset in (0..).step_by(50) {
        let args = json!({"detail": "full", "limit": 50, "offset": offset}).to_string();
        let page = program.call("meta_list_tools", &args).json();
        let rows = page["data"].as_array().unwrap_or_else(|| panic!("{page}"));
        if rows.is_empty() {
            break;
        }
        // A page may be cut to what fits; what is missing of it is asked for by name.
        for row in rows {
            found.insert(
                row["name"].as_str().unwrap().trim_start_matches("portcullis_").to_owned(),
                row.clone(),
            );
        }
        let returned = page["pagination"]["limit"].as_u64().unwrap();
        for at in offset + returned..offset + 50 {
            let args = json!({"detail": "full", "limit": 1, "offset": at}).to_string();
            for row in program.call("meta_list_tools", &args).json()["data"].as_array().unwrap() {
                let name = row["name"].as_str().unwrap().trim_start_matches("portcullis_");
                found.insert(name.to_owned(), row.clone());
            }
        }
    }
    found
}

/// Arguments with a confirmation and a reason, where the tool takes them.
pub(crate) fn complete(tool: &Value, args: &Value) -> Value {
    let mut args = args.clone();
    if tool["class"] == "admin" {
        args["confirm"] = json!(true);
        args["reason"] = json!("for a test");
    }
    args
}

/// A gateway with a spy behind it, another one that is lent a credential, a third in a client's configuration, and an operator
/// whom the configuration names a founder.
pub(crate) fn house() -> (Home, Spy) {
    let home = Home::new(CONFIG);
    let spy = Spy::new(&home);
    spy.register(&home);
    let lent = Spy::speaking(&home, "lent", "2025-11-25");
    let scopes = "scopes:\n  api: { kind: egress, host: api.example, port: 443, tls: required, addrs: [127.0.0.1] }\n  token: { kind: secret, \
                  credential_class: issues.read, via: proxy, name: API_TOKEN, toward: api, format: \"ghp_{36}\", in: [header] }\n";
    let uses = "side_effects: [network, secret_access]\n    unbound: true\n    scopes: [api, token]\n    credentials: [issues.read]\n";
    let plain = "side_effects: []\n    scopes: []\n    credentials: []\n";
    let declaration = lent.declaration().replacen("scopes:\n", scopes, 1).replacen(plain, uses, 1);
    lent.register_as(&home, &declaration);
    let user = home.beside("user");
    fs::create_dir_all(&user).unwrap();
    let args = ["--log", "/tmp/log", "--control", "/tmp/control", "--stdio"];
    let found = json!({"mcpServers": {"found": {"command": spy.executable, "args": args}}});
    fs::write(user.join(".mcp.json"), found.to_string()).unwrap();
    enrol(&home, "zoe", "zoe likes neither");
    (home, spy)
}

#[test]
fn every_tool_does_what_it_is_asked_with_arguments_that_are_right() {
    // admin §12, ADM-15
    let (home, spy) = house();
    let mut daemon = home.serve();
    let _said = daemon.listened_to();
    let program = Program::new(&home, &daemon);
    let sample = Sample::new(&home, &spy, &daemon, &program);
    let tools = wired(&program);
    let rows = sample.rows();
    let untried: Vec<&String> =
        tools.keys().filter(|name| !rows.iter().any(|row| row.tool == name.as_str())).collect();
    assert!(untried.is_empty(), "the table has no arguments for {untried:?}");
    let mut wrong = Vec::new();
    for row in &rows {
        let Some(tool) = tools.get(row.tool) else {
            wrong.push(format!("{}: there is no such tool", row.tool));
            continue;
        };
        let reply = program.call(row.tool, &complete(tool, &row.args).to_string());
        let said = reply.json();
        let code = said["domain_code"].as_str().unwrap_or("ok");
        let fits = match row.outcome {
            Outcome::Done => code == "ok",
            Outcome::Refused(with) => code == with,
            Outcome::NotHere => code == "not_supported",
        };
        if !fits {
            wrong.push(format!("{}: {}", row.tool, reply.body.chars().take(400).collect::<String>()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    daemon.stop();
    home.verify();
}

/// Values that a member with this schema does not take, as they are written.
fn refused_by(schema: &Value) -> Vec<&'static str> {
    if schema.get("enum").is_some() {
        return vec!["\"no such word\"", "7.5", "null"];
    }
    match schema["type"].as_str() {
        Some("integer") => vec!["true", "\"10\"", "1e3", "10.0", "10.5", "1e400", "null", "[1]"],
        Some("string") => vec!["5", "true", "null", "[]", "\"\"", "\"\\u200b\""],
        Some("boolean") => vec!["1", "\"true\"", "null"],
        Some("array") => vec!["{}", "\"x\"", "null"],
        Some("object") => vec!["[]", "\"x\"", "null"],
        _ => Vec::new(),
    }
}

#[test]
fn every_tool_refuses_every_kind_of_argument_that_is_wrong() {
    // SO-02, SO-03, ADM-20, ADM-21, ADM-22
    let (home, spy) = house();
    let mut daemon = home.serve();
    let _said = daemon.listened_to();
    let program = Program::new(&home, &daemon);
    let sample = Sample::new(&home, &spy, &daemon, &program);
    let tools = wired(&program);
    let records = home.log().len();
    let mut taken = Vec::new();
    let mut refused = |tool: &str, body: &str, names: &str| {
        let Some(reply) = program.try_call(tool, body) else {
            taken.push(format!("{tool} {} -> no answer", body.chars().take(200).collect::<String>()));
            return;
        };
        let said = reply.json();
        let expected = match names {
            "confirm" | "reason" => (403, "guardrail_violated"),
            _ => (400, "invalid_argument"),
        };
        let is = (reply.status, said["domain_code"].as_str().unwrap_or_default());
        let message = said["message"].as_str().unwrap_or_default();
        if is != expected || !message.contains(names) || said["tool"] != format!("portcullis_{tool}") {
            taken.push(format!("{tool} {} -> {}", body.chars().take(200).collect::<String>(), reply.body));
        }
    };
    for row in sample.rows() {
        let tool = &tools[row.tool];
        let right = complete(tool, &row.args);
        refused(row.tool, "[1]", "must be a JSON object, got list");
        let mut unknown = right.clone();
        unknown["bogus"] = json!(1);
        refused(row.tool, &unknown.to_string(), "bogus: unknown field");
        let schema = &tool["input_schema"];
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let mut without = right.clone();
            without.as_object_mut().unwrap().remove(name);
            refused(row.tool, &without.to_string(), name);
        }
        for (name, member) in schema["properties"].as_object().into_iter().flatten() {
            let mut values: Vec<String> = refused_by(member).into_iter().map(str::to_owned).collect();
            if let Some(least) = member["minimum"].as_i64() {
                values.push((least - 1).to_string());
            }
            if let Some(most) = member["maximum"].as_i64().filter(|most| *most < 1 << 52) {
                values.push((most + 1).to_string());
            }
            // A text that may be empty says so by having no least length.
            if member["type"] == "string" && member.get("minLength").is_none() {
                values.retain(|value| !value.starts_with('"'));
            }
            for value in values {
                let mut wrong = right.clone();
                wrong[name.as_str()] = json!("@wrong@");
                let place = if value == "1e400" { "<arguments>" } else { name.as_str() };
                let place =
                    if ["confirm", "reason"].contains(&name.as_str()) { name.as_str() } else { place };
                refused(row.tool, &wrong.to_string().replace("\"@wrong@\"", &value), place);
            }
        }
    }
    assert!(taken.is_empty(), "{} taken:\n{}", taken.len(), taken.join("\n"));
    assert_eq!(home.log().len(), records, "a refusal leaves nothing in the log");
    daemon.stop();
}

/// Everything that is kept: the files of the log and of the state, by name. What only says who has a file open is no content.
fn kept(home: &Home) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![home.path().join("audit"), home.path().join("state")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = path.display().to_string();
            if path.is_dir() {
                folders.push(path);
            } else if !name.ends_with("-shm") && !name.ends_with(".lock") {
                found.insert(name, fs::read(path).unwrap_or_default());
            }
        }
    }
    found
}

#[test]
fn looking_a_hundred_times_with_every_tool_changes_not_a_byte() {
    // SO-41, ADM-52
    let (home, spy) = house();
    let mut daemon = home.serve();
    let _said = daemon.listened_to();
    let program = Program::new(&home, &daemon);
    let sample = Sample::new(&home, &spy, &daemon, &program);
    let tools = wired(&program);
    let looks = |row: &Row| tools[row.tool]["class"] == "read";
    let rows: Vec<Row> = sample.rows().into_iter().filter(looks).collect();
    assert!(rows.len() > 65, "{}", rows.len());
    let look = |row: &Row| {
        let reply = program.call(row.tool, &row.args.to_string());
        let fits = if row.outcome == Outcome::NotHere { 501 } else { 200 };
        assert_eq!(reply.status, fits, "{}: {}", row.tool, reply.body);
    };
    // What the start began and what the first look makes (an index of the log) is done; nothing else goes on.
    rows.iter().for_each(look);
    let before = eventually("quiet", || {
        let before = kept(&home);
        std::thread::sleep(Duration::from_millis(500));
        (kept(&home) == before).then_some(before)
    });
    let records = home.log().len();
    std::thread::scope(|scope| {
        for part in rows.chunks(rows.len().div_ceil(4)) {
            let look = &look;
            scope.spawn(move || part.iter().for_each(|row| (0..100).for_each(|_| look(row))));
        }
    });
    let more: Vec<Value> = home.log().split_off(records);
    assert!(more.is_empty(), "{more:?}");
    let after = kept(&home);
    let changed: Vec<&String> =
        after.keys().chain(before.keys()).filter(|name| after.get(*name) != before.get(*name)).collect();
    assert!(changed.is_empty(), "{changed:?}");
    daemon.stop();
}

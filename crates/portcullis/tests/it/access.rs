//! Who may reach the gateway over HTTP (PRO-34, T-PRO-9).

use serde_json::{Value, json};

use crate::issuer::{Issuer, SigningKey, signed_with_public_key, unsigned};
use crate::support::{Daemon, Home, Reply, guarded_spy};

const REQUIRED: &str = "[access]\nauthentication = \"required\"\n";

fn initialize(daemon: &Daemon, authorization: Option<&str>) -> Reply {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let headers: Vec<_> = authorization.iter().map(|value| ("Authorization", *value)).collect();
    daemon
        .post(&headers, &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}))
        .unwrap()
}

fn session_of(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.header("mcp-session-id").unwrap().to_owned()
}

fn ping(daemon: &Daemon, authorization: &str, session: &str) -> u16 {
    let headers = [("Authorization", authorization), ("Mcp-Session-Id", session)];
    daemon.post(&headers, &json!({"jsonrpc": "2.0", "id": 2, "method": "ping"})).unwrap().status
}

fn create_key(home: &Home, agent: &str, more: &[&str]) -> String {
    let created = home.json(&[&["key", "create", agent], more].concat());
    format!("Bearer {}", created["key"].as_str().unwrap())
}

#[test]
fn a_key_names_its_agent_in_every_record_and_nothing_keeps_the_key() {
    let (home, spy) = guarded_spy(REQUIRED);
    let daemon = home.serve();
    let key = create_key(&home, "ci", &[]);
    assert_eq!(initialize(&daemon, None).status, 401);
    let session = session_of(&initialize(&daemon, Some(&key)));
    let headers = [("Authorization", key.as_str()), ("Mcp-Session-Id", session.as_str())];
    let params = json!({"name": "spy__echo", "arguments": {"text": "x"}});
    let body = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params});
    let called = std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.post(&headers, &body).unwrap().json());
        assert_eq!(home.next_pending()["principal"], "agent:ci");
        home.grant_next("once");
        call.join().unwrap()
    });
    assert_eq!(called["result"]["structuredContent"]["text"], "x", "{called}");
    assert_eq!(home.events("execution.intent")[0]["actor"], json!({"kind": "agent", "id": "ci"}));
    assert_eq!(home.events("credential.stored").len(), 1);
    // PRO-34: tokens are never forwarded; and the key is in no file of ours.
    let secret = key.trim_start_matches("Bearer pck_");
    assert!(spy.frames("tools/call").iter().all(|frame| !frame.contains(secret)));
    daemon.stop();
    assert_eq!(files_containing(&home.path(), secret.as_bytes()), Vec::<String>::new());
    home.verify();
}

fn files_containing(folder: &std::path::Path, needle: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_containing(&path, needle));
        } else if std::fs::read(&path).is_ok_and(|bytes| bytes.windows(needle.len()).any(|w| w == needle)) {
            found.push(path.display().to_string());
        }
    }
    found
}

#[test]
fn a_session_belongs_to_the_agent_that_opened_it() {
    // PRO-33
    let (home, _spy) = guarded_spy(REQUIRED);
    let daemon = home.serve();
    let (ci, ide) = (create_key(&home, "ci", &[]), create_key(&home, "ide", &[]));
    let session = session_of(&initialize(&daemon, Some(&ci)));
    assert_eq!(ping(&daemon, &ci, &session), 200);
    assert_eq!(ping(&daemon, &ide, &session), 404, "a stolen session id is worth nothing");
    let stolen = [("Authorization", ide.as_str()), ("Mcp-Session-Id", session.as_str())];
    assert_eq!(daemon.http("DELETE", "/mcp", &stolen, "").unwrap().status, 404);
    assert_eq!(ping(&daemon, &ci, &session), 200);
}

#[test]
fn a_key_that_was_replaced_revoked_or_expired_lets_nobody_in() {
    let (home, _spy) = guarded_spy(REQUIRED);
    let daemon = home.serve();
    let old = create_key(&home, "ci", &[]);
    let new = create_key(&home, "ci", &["--grant", "mcp.call:spy/*"]);
    let short = create_key(&home, "brief", &["--expires", "1ms"]);
    let refused = |key: &str| {
        let reply = initialize(&daemon, Some(key));
        assert_eq!(
            reply.header("www-authenticate"),
            Some(r#"Bearer realm="portcullis", error="invalid_token""#)
        );
        reply.status
    };
    assert_eq!(refused(&old), 401);
    assert_eq!(refused(&short), 401);
    assert_eq!(refused("Bearer pck_"), 401);
    assert_eq!(refused("Basic cGNrOnBjaw=="), 401);
    let session = session_of(&initialize(&daemon, Some(&new)));
    let listed = home.json(&["key", "list"]);
    assert_eq!((&listed[1]["agent"], &listed[1]["grants"]), (&json!("ci"), &json!(["mcp.call:spy/*"])));
    assert!(listed[1].get("key").is_none());
    home.json(&["key", "revoke", "ci", "--reason", "left"]);
    assert_eq!(ping(&daemon, &new, &session), 401);
    let (exit, error) = home.fails(&["key", "revoke", "ci", "--reason", "again"]);
    assert_eq!((exit, &error["code"]), (8, &json!("NOT_FOUND")));
    for name in ["local", "oauth.x", "a b"] {
        assert_eq!(home.fails(&["key", "create", name]).0, 7, "{name}");
    }
    // What was decided survives a restart.
    let ide = create_key(&home, "ide", &[]);
    daemon.stop();
    let daemon = home.serve();
    assert_eq!(initialize(&daemon, Some(&new)).status, 401);
    session_of(&initialize(&daemon, Some(&ide)));
}

#[test]
fn without_required_authentication_a_wrong_key_is_still_refused() {
    let (home, _spy) = guarded_spy("");
    let daemon = home.serve();
    session_of(&initialize(&daemon, None));
    assert_eq!(initialize(&daemon, Some("Bearer pck_wrong")).status, 401);
    // A client's token for somebody else is not our business, and goes no further.
    session_of(&initialize(&daemon, Some("Bearer something-else")));
    // At most one a second, so at least one.
    assert_eq!(
        home.events("credential.denied")[0]["data"],
        json!({"kind": "agent", "reason": "invalid_credential"})
    );
}

#[test]
fn tokens_of_the_issuer_count_and_no_others() {
    let key = SigningKey::new("k1", 1);
    let issuer = Issuer::start(&[&key]);
    let resource = "https://gate.example.org/mcp";
    let config = format!(
        "{REQUIRED}[access.oauth]\nissuer = \"{}\"\nresource = \"{resource}\"\nscope = \"mcp\"\n",
        issuer.url
    );
    let (home, _spy) = guarded_spy(&config);
    let daemon = home.serve();

    // RFC 9728: where to get a token.
    let nobody = initialize(&daemon, None);
    assert_eq!(nobody.status, 401);
    assert_eq!(
        nobody.header("www-authenticate").unwrap(),
        "Bearer resource_metadata=\"https://gate.example.org/.well-known/oauth-protected-resource/mcp\", scope=\"mcp\""
    );
    for path in ["/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"] {
        let document = daemon.http("GET", path, &[("Host", "gate.example.org")], "").unwrap().json();
        assert_eq!(document["resource"], resource);
        assert_eq!(document["authorization_servers"], json!([issuer.url]));
        assert_eq!(document["scopes_supported"], json!(["mcp"]));
    }

    let with = |change: &dyn Fn(&mut Value)| {
        let mut claims = issuer.claims(resource);
        change(&mut claims);
        claims
    };
    let admit = |token: String| initialize(&daemon, Some(&format!("Bearer {token}")));
    session_of(&admit(key.sign(&with(&|_| {}))));
    session_of(&admit(key.sign(&with(&|claims| claims["aud"] = json!(["other", resource])))));
    assert_eq!(home.events("session.opened")[0]["actor"]["id"], "oauth.ide");

    let past = json!(1_600_000_000);
    let refused: Vec<(&str, String)> = vec![
        ("wrong audience", key.sign(&with(&|claims| claims["aud"] = json!("https://other.example.org/mcp")))),
        ("no audience", key.sign(&with(&|claims| claims["aud"] = Value::Null))),
        ("wrong issuer", key.sign(&with(&|claims| claims["iss"] = json!("https://evil.example.org")))),
        ("expired", key.sign(&with(&|claims| claims["exp"] = past.clone()))),
        ("no expiry", key.sign(&with(&|claims| claims["exp"] = Value::Null))),
        ("not yet", key.sign(&with(&|claims| claims["nbf"] = json!(9_999_999_999u64)))),
        ("alg none", unsigned(&with(&|_| {}))),
        ("public key as secret", signed_with_public_key(&key, &with(&|_| {}))),
        ("forged", SigningKey::new("k1", 9).sign(&with(&|_| {}))),
        ("unknown key", SigningKey::new("k9", 9).sign(&with(&|_| {}))),
        ("not a token", "abc.def.ghi".into()),
        ("too long", "x".repeat(20 << 10)),
    ];
    for (what, token) in refused {
        let reply = admit(token);
        assert_eq!(reply.status, 401, "{what}: {}", reply.body);
        assert!(
            reply.header("www-authenticate").unwrap().starts_with("Bearer error=\"invalid_token\""),
            "{what}"
        );
    }
    let weak = admit(key.sign(&with(&|claims| claims["scope"] = json!("openid mcp-admin"))));
    assert_eq!(weak.status, 403);
    let challenge = weak.header("www-authenticate").unwrap();
    assert!(
        challenge.starts_with("Bearer error=\"insufficient_scope\"") && challenge.contains("scope=\"mcp\"")
    );

    // The issuer changes its key: tokens of the new one count at once.
    let next = SigningKey::new("k2", 2);
    issuer.publish(&[&next]);
    session_of(&admit(next.sign(&with(&|_| {}))));
    assert_eq!(admit(key.sign(&with(&|_| {}))).status, 401, "the withdrawn key is gone");

    // Tokens that name keys nobody has must not make us hammer at the issuer's door.
    for n in 0..20 {
        assert_eq!(admit(SigningKey::new(&format!("x{n}"), 9).sign(&with(&|_| {}))).status, 401);
    }
    assert!(issuer.key_fetches() <= 5, "{}", issuer.key_fetches());
}

#[test]
fn an_agent_is_listed_only_what_its_grants_reach() {
    // PRO §3, CAT-53: prompts, resources and templates as well as tools
    let (home, _spy) = guarded_spy(REQUIRED);
    let daemon = home.serve();
    let listed = |key: &str, method: &str, member: &str| {
        let session = session_of(&initialize(&daemon, Some(key)));
        let headers = [("Authorization", key), ("Mcp-Session-Id", session.as_str())];
        let asked = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}});
        let answer = daemon.post(&headers, &asked).unwrap().json();
        answer["result"][member].as_array().unwrap_or_else(|| panic!("{answer}")).len()
    };
    let (all, one) =
        (create_key(&home, "all", &[]), create_key(&home, "one", &["--grant", "mcp.call:spy/echo"]));
    assert_eq!(listed(&one, "tools/list", "tools"), 1);
    for (method, member) in [
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        assert!(listed(&all, method, member) > 0, "{method}");
        assert_eq!(listed(&one, method, member), 0, "{method}");
    }
}

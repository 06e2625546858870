//! Operators' security keys in a real browser, with an authenticator that only it has (GOV-104).

use serde_json::{Value, json};

use super::PASSPHRASE;
use super::browser::Browser;
use crate::approvals::enrol;
use crate::support::{Daemon, Home, Reply, Spy, exchange};

/// A gateway whose operators use security keys, and a browser at it with one.
fn with_key(auth: &str) -> (Home, Spy, Daemon, Browser) {
    let home = Home::new(&format!("[approvals]\nwait = \"300ms\"\n[operator]\nauth = [{auth}]\n"));
    let spy = Spy::new(&home);
    spy.register(&home);
    let daemon = home.serve();
    let mut browser = Browser::at(&daemon).by_name();
    browser.act("plug", json!({}));
    (home, spy, daemon, browser)
}

/// Enrols the key that is plugged in by a link from the command line.
fn enrol_key(home: &Home, browser: &mut Browser, name: &str, label: &str) -> String {
    let invited = home.json(&["operator", "enrol", name, "--passkey"]);
    let link = invited["link"].as_str().unwrap().to_owned();
    browser.visit(&link);
    browser.fill("#label", label);
    browser.click("button");
    browser.wait_url("/login");
    link
}

fn log_in(browser: &mut Browser) {
    browser.goto("/login");
    browser.click("#by-key button");
    browser.wait(".who");
}

/// A call that waits for an operator, and its approval.
fn waiting(daemon: &Daemon, text: &str) -> String {
    let waiting = daemon.call("spy__echo", &json!({"text": text})).unwrap();
    waiting["error"]["data"]["details"]["approval_id"].as_str().unwrap().to_owned()
}

/// Approves on a card's own page, until the key is asked.
fn approve(browser: &mut Browser, id: &str, why: &str) {
    browser.goto(&format!("/approvals/{id}"));
    browser.fill(&format!("#why-{id}"), why);
    browser.press("Enter");
    if browser.act("title", json!({})).as_str().unwrap().starts_with("Sure") {
        browser.press("y");
    }
}

fn passkeys(home: &Home) -> Vec<Value> {
    home.json(&["operator", "list"])[0]["passkeys"].as_array().cloned().unwrap_or_default()
}

/// A form that a page was about to send.
struct Caught {
    body: String,
    cookie: String,
    origin: String,
}

impl Caught {
    fn next(browser: &mut Browser) -> Self {
        browser.wait("#caught");
        let caught = browser.act("caught", json!({}));
        let header = |name: &str| caught["headers"][name].as_str().unwrap_or_default().to_owned();
        Self {
            body: caught["body"].as_str().unwrap().to_owned(),
            cookie: header("cookie"),
            origin: header("origin"),
        }
    }

    fn send(&self, path: &str) -> Reply {
        let headers = [
            ("Content-Type", "application/x-www-form-urlencoded"),
            ("Origin", self.origin.as_str()),
            ("Cookie", self.cookie.as_str()),
            ("Host", self.origin.trim_start_matches("http://")),
        ];
        exchange(self.origin.trim_start_matches("http://"), "POST", path, &headers, &self.body).unwrap()
    }

    fn changed(&self, from: &str, to: &str) -> Self {
        assert!(self.body.contains(from), "{from} in {}", self.body);
        Self {
            body: self.body.replacen(from, to, 1),
            cookie: self.cookie.clone(),
            origin: self.origin.clone(),
        }
    }
}

#[test]
fn an_operator_enrols_a_security_key_logs_in_and_approves_with_it() {
    // GOV-104: the key alone; there is no passphrase at all.
    let (home, spy, daemon, mut browser) = with_key("\"uid\", \"webauthn\"");
    let link = enrol_key(&home, &mut browser, "ana", "the blue one");
    let kept = passkeys(&home);
    assert_eq!(
        (kept.len(), &kept[0]["label"], &kept[0]["rp_id"]),
        (1, &json!("the blue one"), &json!("localhost"))
    );
    let text = String::from_utf8(home.run(&["operator", "list"]).stdout).unwrap();
    assert!(text.contains("webauthn") && !text.contains("passphrase"), "{text}");

    browser.goto("/login");
    assert_eq!(browser.count("#passphrase"), 0, "passphrases open nothing here");
    browser.inspect("login-key");
    log_in(&mut browser);
    assert_eq!(browser.text(".who .name"), "ana");
    let id = waiting(&daemon, "a");
    approve(&mut browser, &id, "mine");
    browser.wait_url(&format!("/approvals/{id}"));
    browser.wait(".tag.good");
    let granted = home.json(&["approve", "show", &id]);
    assert_eq!(
        (&granted["decisions"][0]["by"], &granted["decisions"][0]["method"]),
        (&json!("ana"), &json!("webauthn")),
        "{granted}"
    );
    assert!(daemon.call("spy__echo", &json!({"text": "a"})).unwrap()["result"].is_object());
    assert_eq!(spy.calls(), 1);
    browser.goto("/keys");
    browser.inspect("keys");
    browser.click(".who button");
    browser.wait("#by-key");

    // The link is used up.
    browser.visit("about:blank");
    browser.visit(&link);
    browser.click("button");
    browser.wait("[data-problem]:not([hidden])");
    assert!(browser.text("[data-problem]").contains("link was used"), "{}", browser.text("[data-problem]"));
    // And one key is not enrolled twice.
    let another = home.json(&["operator", "enrol", "ana", "--passkey"]);
    browser.visit("about:blank");
    browser.visit(another["link"].as_str().unwrap());
    browser.click("button");
    browser.wait("[data-problem]:not([hidden])");
    assert_eq!(passkeys(&home).len(), 1);

    // Who it is and how often its key has signed outlast a restart.
    daemon.stop();
    assert!(home.path().join("keys/operators/ana.counters.json").exists());
    let daemon = home.serve();
    browser.move_to(&daemon);
    log_in(&mut browser);
    daemon.stop();
    let enrolled = home.events("operator.enrolled");
    assert_eq!((enrolled.len(), &enrolled[0]["data"]["method"]), (1, &json!("webauthn")), "{enrolled:?}");
    home.verify();
}

#[test]
fn what_a_key_signed_is_good_for_that_request_once() {
    // GOV-104: replayed, changed, from another page, by another key: nothing of it counts, and five lock the method.
    let (home, spy, daemon, mut browser) = with_key("\"uid\", \"webauthn\"");
    enrol_key(&home, &mut browser, "ana", "one");
    log_in(&mut browser);
    let (one, other) = (waiting(&daemon, "a"), waiting(&daemon, "b"));
    let path = format!("/approvals/{one}/deny");
    let state = |id: &str| home.json(&["approve", "show", id])["state"].clone();
    let catch = |browser: &mut Browser, id: &str| {
        browser.act("intercept", json!({"path": format!("/approvals/{id}/deny")}));
        browser.goto(&format!("/approvals/{id}"));
        browser.fill(&format!("#why-not-{id}"), "quiet");
        browser.press("Enter");
        Caught::next(browser)
    };

    // Without a signature nothing is done, and what is to be signed is asked for.
    let caught = catch(&mut browser, &one);
    let mut unsigned = form(&caught.body);
    unsigned.retain(|(name, _)| !name.starts_with("passkey"));
    let bare = Caught { body: encoded(&unsigned), ..caught.changed("csrf", "csrf") };
    let asked = bare.send(&path);
    assert!(asked.status == 200 && asked.body.contains("Confirm with your security key"), "{}", asked.body);
    assert_eq!(state(&one), "pending");

    // Another reason than the one that was signed; then the signature is spent.
    let refused = caught.changed("quiet", "loud").send(&path);
    assert!(refused.status == 401 && refused.body.contains("another request"), "{}", refused.body);
    assert_eq!(caught.send(&path).status, 401, "one answer to one challenge");
    // Another approval than the one that was signed.
    let caught = catch(&mut browser, &one);
    assert_eq!(caught.send(&format!("/approvals/{other}/deny")).status, 401);
    assert_eq!((state(&one), state(&other)), (json!("pending"), json!("pending")));
    // The right one, once.
    let caught = catch(&mut browser, &one);
    assert_eq!(caught.send(&path).status, 303);
    assert_eq!(caught.send(&path).status, 401, "a replay");
    assert_eq!((state(&one), state(&other)), (json!("denied"), json!("pending")));
    // The fifth failure: nobody is let in by key for a while.
    let caught = catch(&mut browser, &other);
    assert_eq!(caught.changed("quiet", "still").send(&format!("/approvals/{other}/deny")).status, 401);
    let caught = catch(&mut browser, &other);
    let locked = caught.send(&format!("/approvals/{other}/deny"));
    assert!(locked.status == 401 && locked.body.contains("too many failures"), "{}", locked.body);
    daemon.stop();
    let failed = home.events("operator.auth_failed");
    assert!(
        failed.len() >= 5 && failed.iter().all(|event| event["data"]["method"] == "webauthn"),
        "{failed:?}"
    );
    assert_eq!(spy.calls(), 0);
}

#[test]
fn a_key_that_is_foreign_removed_unsure_or_copied_opens_nothing() {
    // GOV-104
    let (home, _spy, daemon, mut browser) = with_key("\"uid\", \"passphrase\", \"webauthn\"");
    enrol(&home, "ana", PASSPHRASE);
    // From the console, after the passphrase.
    browser.goto("/login");
    browser.log_in("ana", PASSPHRASE);
    browser.goto("/keys");
    browser.click("form[action='/keys/add'] button");
    browser.wait("#label");
    browser.fill("#label", "from the console");
    browser.click("button");
    browser.wait_url("/keys");
    assert!(browser.text("main").contains("from the console"));
    // One that cannot tell who uses it is not enrolled.
    let ours = browser.act("credentials", json!({}))[0].clone();
    browser.act("plug", json!({"unsure": true}));
    browser.click("form[action='/keys/add'] button");
    browser.wait("#label");
    browser.click("button");
    browser.wait("[data-problem]:not([hidden])");
    assert_eq!(passkeys(&home).len(), 1);

    // A key that was made for the same host, but not enrolled here.
    browser.act("open", json!({"width": 1280, "dark": false, "scripts": true}));
    browser.act("plug", json!({}));
    let mut foreign = ours.clone();
    foreign["credentialId"] = json!("AAECAwQFBgcICQoLDA0ODw==");
    browser.act("addCredential", json!({"credential": foreign}));
    browser.goto("/login");
    browser.click("#by-key button");
    browser.wait("main > .problem");
    assert!(browser.text(".problem").contains("not a security key of an operator"));
    // A copy of the right one whose count lags behind.
    browser.act("plug", json!({}));
    let mut copy = ours.clone();
    copy["signCount"] = json!(0);
    let mut right = ours;
    right["signCount"] = json!(40);
    browser.act("addCredential", json!({"credential": right}));
    log_in(&mut browser);
    browser.act("plug", json!({}));
    browser.act("addCredential", json!({"credential": copy}));
    browser.click(".who button");
    browser.wait("#by-key");
    browser.click("#by-key button");
    browser.wait("main > .problem");
    assert!(browser.text(".problem").contains("may be a copy"), "{}", browser.text(".problem"));

    // Removed, it opens nothing, and what it began ends.
    browser.act("plug", json!({}));
    copy["signCount"] = json!(80);
    browser.act("addCredential", json!({"credential": copy}));
    log_in(&mut browser);
    let id = passkeys(&home)[0]["id"].as_str().unwrap().to_owned();
    let nobody = home.fails(&["operator", "remove", "ana", "--passkey", "AAAA", "--reason", "lost"]);
    assert_eq!(nobody.1["code"], "NOT_FOUND", "{nobody:?}");
    home.json(&["operator", "remove", "ana", "--passkey", &id, "--reason", "lost"]);
    assert!(passkeys(&home).is_empty());
    browser.goto("/approvals");
    browser.wait("#by-key");
    browser.click("#by-key button");
    browser.wait("main > .problem");
    assert!(browser.text(".problem").contains("not a security key of an operator"));
    daemon.stop();
    let recorded = home.events("operator.enrolled");
    let last = &recorded.last().unwrap()["data"];
    assert_eq!((&last["passkey_removed"], &last["reason"]), (&json!(id), &json!("lost")), "{last}");
    home.verify();
}

#[test]
fn a_key_is_used_at_a_name_and_the_pages_say_so() {
    // GOV-104: an address is no name that browsers bind keys to.
    let (home, _spy, daemon, mut browser) = with_key("\"uid\", \"webauthn\"");
    enrol_key(&home, &mut browser, "ana", "one");
    let by_name = daemon.console.replace("127.0.0.1", "localhost");
    let mut by_address = Browser::at(&daemon);
    by_address.goto("/login");
    assert_eq!(by_address.count("#by-key"), 0);
    assert!(by_address.text("main").contains(&format!("{by_name}/login")), "{}", by_address.text("main"));
    // What was signed on another page of this very host is worth nothing.
    log_in(&mut browser);
    browser.click(".who button");
    browser.wait("#by-key");
    browser.act("intercept", json!({"path": "/login/key"}));
    browser.click("#by-key button");
    let caught = Caught::next(&mut browser);
    let mut fields: Vec<(String, String)> = form(&caught.body);
    let passkey = fields.iter_mut().find(|(name, _)| name == "passkey").unwrap();
    let mut assertion: Value = serde_json::from_str(&passkey.1).unwrap();
    assertion["client_data"] = json!(elsewhere(assertion["client_data"].as_str().unwrap(), &by_name));
    passkey.1 = assertion.to_string();
    let forged = Caught { body: encoded(&fields), ..caught };
    let refused = forged.send("/login/key");
    assert!(refused.status == 401 && refused.body.contains("another page"), "{}", refused.body);
    // A link does not outlast whom it is for.
    let link = home.json(&["operator", "enrol", "bob", "--passkey"])["link"].as_str().unwrap().to_owned();
    enrol(&home, "bob", PASSPHRASE);
    home.json(&["operator", "remove", "bob", "--reason", "left"]);
    let token = link.split_once('#').unwrap().1;
    let begun = exchange(
        by_name.trim_start_matches("http://"),
        "POST",
        "/enrol/begin",
        &[("Host", by_name.trim_start_matches("http://")), ("Content-Type", "application/json")],
        &json!({"token": token}).to_string(),
    );
    assert_eq!(begun.unwrap().status, 404);
    // Without a running gateway there is no page for a link to lead to.
    daemon.stop();
    let refused = home.fails(&["operator", "enrol", "bob", "--passkey"]);
    assert!(refused.1["message"].as_str().unwrap().contains("start the gateway"), "{refused:?}");
}

#[test]
fn pages_that_use_the_tools_over_http_have_the_key_sign_each_change() {
    // GOV-104, ADM-2
    let (home, _spy, daemon, mut browser) = with_key("\"uid\", \"webauthn\"");
    enrol_key(&home, &mut browser, "ana", "one");
    log_in(&mut browser);
    let csrf = "document.querySelector('input[name=csrf]').value";
    let mut call = |tool: &str, body: &str, signs: &str| -> Value {
        let script = format!(
            r#"(async () => {{
              const path = "/api/admin/portcullis_{tool}", body = JSON.stringify({body});
              const headers = {{ "Content-Type": "application/json", "X-CSRF-Token": {csrf} }};
              const hex = async (text) => [...new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)))]
                .map((b) => b.toString(16).padStart(2, "0")).join("");
              const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
              const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
              const signs = {signs};
              if (signs) {{
                const asked = await (await fetch("/passkey/challenge", {{ method: "POST", headers,
                  body: JSON.stringify({{ path, sha256: await hex(signs === "other" ? "{{}}" : body) }}) }})).json();
                const made = await navigator.credentials.get({{ publicKey: {{ challenge: bytes(asked.challenge), rpId: asked.rp_id,
                  userVerification: "required", allowCredentials: [{{ type: "public-key", id: bytes(asked.allow) }}] }} }});
                headers["X-Passkey"] = JSON.stringify({{ challenge: asked.random, passkey: {{ id: text(made.rawId),
                  client_data: text(made.response.clientDataJSON), authenticator_data: text(made.response.authenticatorData),
                  signature: text(made.response.signature) }} }});
              }}
              const answer = await fetch(path, {{ method: "POST", headers, body }});
              return {{ status: answer.status, body: await answer.json() }};
            }})()"#
        );
        browser.act("evaluate", json!({"script": script}))
    };
    let role = r#"{"role_id": "r", "patterns": ["*:read"], "confirm": true, "reason": "x"}"#;
    assert_eq!(call("servers_list", "{}", "false")["status"], 200, "looking needs no key");
    let bare = call("roles_put", role, "false");
    assert_eq!(bare["status"], 401, "{bare}");
    let other = call("roles_put", role, "\"other\"");
    assert_eq!(other["status"], 401, "{other}");
    let signed = call("roles_put", role, "true");
    assert_eq!(signed["status"], 200, "{signed}");
    daemon.stop();
    assert_eq!(
        home.events("admin.op_executed").iter().filter(|event| event["actor"]["id"] == "ana").count(),
        1
    );
}

/// What a browser would have said on a page of another port.
fn elsewhere(client_data: &str, origin: &str) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let said = String::from_utf8(URL_SAFE_NO_PAD.decode(client_data).unwrap()).unwrap();
    assert!(said.contains(origin), "{said}");
    URL_SAFE_NO_PAD.encode(said.replace(origin, "http://localhost:1"))
}

fn form(body: &str) -> Vec<(String, String)> {
    url::form_urlencoded::parse(body.as_bytes()).into_owned().collect()
}

fn encoded(fields: &[(String, String)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

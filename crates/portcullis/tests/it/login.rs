//! Logging in at a server's issuer, and what the gateway does with that (PRO-35, T-PRO-9).

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use url::Url;

use crate::reference::Reference;
use crate::support::{Home, Operator, exchange, open_home};

/// A server behind a door that wants a token, and the issuer of those.
struct Scene {
    home: Home,
    _server: Reference,
    issuer: Arc<Mutex<Issuer>>,
    door: String,
}

/// What the issuer has done, and how it behaves.
#[derive(Default)]
struct Issuer {
    url: String,
    door: String,
    /// Codes, with the challenge each is bound to.
    codes: HashMap<String, (String, String)>,
    refresh: Option<String>,
    access: Vec<String>,
    serial: u32,
    /// Every request to its token endpoint, as a form; with what was in the header.
    asked: Vec<(HashMap<String, String>, Option<String>)>,
    registered: Vec<Value>,
    /// What the door saw.
    knocked: Vec<Option<String>>,
    // How it behaves.
    lifetime: Option<u64>,
    says: Option<&'static str>,
    iss: Option<&'static str>,
    names_itself: bool,
    pkce: bool,
    about: Option<&'static str>,
    resource: Option<&'static str>,
    /// Where the door says that its metadata is, if not at the door.
    elsewhere: Option<&'static str>,
    registers: bool,
    /// Whether tokens are bound to keys, and the door wants to see a nonce in proofs.
    bound: bool,
    /// What the door says that a token does not cover.
    lacking: Option<&'static str>,
    /// The proofs that were shown at the issuer and at the door: what they claim.
    proofs: Vec<Value>,
}

fn scene(change: impl FnOnce(&mut Issuer)) -> Scene {
    let home = open_home();
    let server = Reference::start("both");
    let (of_issuer, of_door) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let url = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
    let mut issuer = Issuer {
        url: url(&of_issuer),
        door: url(&of_door),
        names_itself: true,
        pkce: true,
        registers: true,
        ..Issuer::default()
    };
    change(&mut issuer);
    let issuer = Arc::new(Mutex::new(issuer));
    let behind = server.url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    serve(of_issuer, {
        let issuer = issuer.clone();
        move |request, stream| at_the_issuer(&issuer, &request, stream)
    });
    serve(of_door, {
        let issuer = issuer.clone();
        move |request, stream| at_the_door(&issuer, &behind, &request, stream)
    });
    let door = format!("{}/mcp", issuer.lock().unwrap().door);
    Scene { home, _server: server, issuer, door }
}

struct Asked {
    line: String,
    head: String,
    body: Vec<u8>,
}

impl Asked {
    fn header(&self, name: &str) -> Option<String> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }

    fn says(&self, method: &str) -> bool {
        let message: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        message["method"] == method
    }

    /// What the proof of a key claims.
    fn proof(&self) -> Value {
        use base64::Engine as _;
        let proof = self.header("dpop").unwrap_or_default();
        let claims = proof.split('.').nth(1).unwrap_or_default();
        let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).unwrap();
        serde_json::from_slice(&claims).unwrap_or_default()
    }

    fn url(&self, base: &str) -> Url {
        Url::parse(base).unwrap().join(self.line.split(' ').nth(1).unwrap()).unwrap()
    }
}

/// Serves until the test's process ends.
fn serve(listener: TcpListener, answer: impl Fn(Asked, &mut TcpStream) + Send + Sync + 'static) {
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                if reader.read_line(&mut line).is_err() || line.is_empty() {
                    return;
                }
                let mut head = String::new();
                while reader.read_line(&mut head).is_ok_and(|read| read > 2) {}
                let asked = Asked { line, head, body: Vec::new() };
                let length = asked.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
                let mut body = vec![0; length];
                if reader.read_exact(&mut body).is_ok() {
                    answer(Asked { body, ..asked }, &mut stream);
                }
            });
        }
    });
}

fn reply(stream: &mut TcpStream, status: &str, headers: &str, body: &str) {
    let text = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(text.as_bytes());
}

/// Lets through who shows a token that the issuer gave and did not take back.
fn at_the_door(issuer: &Mutex<Issuer>, behind: &str, asked: &Asked, stream: &mut TcpStream) {
    let shown = asked.header("authorization");
    let mut known = issuer.lock().unwrap();
    let (url, door) = (known.url.clone(), known.door.clone());
    if asked.line.contains("/.well-known/oauth-protected-resource") {
        let resource = known.resource.map_or(format!("{door}/mcp"), str::to_owned);
        let document =
            json!({"resource": resource, "authorization_servers": [url], "scopes_supported": ["mcp"]});
        return reply(stream, "200 OK", "", &document.to_string());
    }
    known.knocked.push(shown.clone());
    let scheme = if known.bound { "DPoP" } else { "Bearer" };
    let lets_in = shown
        .as_deref()
        .and_then(|text| text.strip_prefix(scheme))
        .is_some_and(|token| known.access.iter().any(|good| good == token.trim()));
    if let (true, Some(scope)) = (lets_in && asked.says("tools/call"), known.lacking) {
        let challenge =
            format!("WWW-Authenticate: Bearer error=\"insufficient_scope\", scope=\"{scope}\"\r\n");
        return reply(stream, "403 Forbidden", &challenge, "{}");
    }
    if lets_in && known.bound {
        let claims = asked.proof();
        let nonce = claims["nonce"] == "n-1";
        known.proofs.push(claims);
        if !nonce {
            let challenge = "WWW-Authenticate: DPoP error=\"use_dpop_nonce\"\r\nDPoP-Nonce: n-1\r\n";
            return reply(stream, "401 Unauthorized", challenge, "{}");
        }
    }
    let place = known.elsewhere.unwrap_or(&door).to_owned();
    drop(known);
    if !lets_in {
        let challenge = format!(
            "WWW-Authenticate: {scheme} resource_metadata=\"{place}/.well-known/oauth-protected-resource/mcp\", scope=\"mcp\"\r\n"
        );
        return reply(stream, "401 Unauthorized", &challenge, r#"{"error":"invalid_token"}"#);
    }
    let kept = asked.head.lines().filter(|line| {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        !matches!(name.trim(), "authorization" | "host" | "connection")
    });
    let head: String = kept.map(|line| format!("{line}\r\n")).collect();
    let mut onward = TcpStream::connect(behind).unwrap();
    let text = format!(
        "{}Host: {behind}\r\nConnection: close\r\n{}\r\n",
        asked.line,
        head.trim_start().trim_end_matches("\r\n\r\n")
    );
    let text = text.trim_end().to_owned() + "\r\n\r\n";
    onward.write_all(text.as_bytes()).unwrap();
    onward.write_all(&asked.body).unwrap();
    let _ = std::io::copy(&mut onward, stream);
}

fn at_the_issuer(issuer: &Mutex<Issuer>, asked: &Asked, stream: &mut TcpStream) {
    let mut issuer = issuer.lock().unwrap();
    let url = asked.url(&issuer.url);
    let query: HashMap<String, String> = url.query_pairs().into_owned().collect();
    match url.path() {
        "/.well-known/oauth-authorization-server" => {
            let at = |path: &str| format!("{}{path}", issuer.url);
            let mut document = json!({
                "issuer": issuer.about.map_or(issuer.url.clone(), str::to_owned),
                "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
                "authorization_response_iss_parameter_supported": issuer.names_itself,
                "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            });
            if issuer.bound {
                document["dpop_signing_alg_values_supported"] = json!(["ES256"]);
            }
            if issuer.pkce {
                document["code_challenge_methods_supported"] = json!(["plain", "S256"]);
            }
            if issuer.registers {
                document["registration_endpoint"] = json!(at("/register"));
            }
            reply(stream, "200 OK", "", &document.to_string());
        }
        "/register" => {
            let about: Value = serde_json::from_slice(&asked.body).unwrap();
            issuer.registered.push(about);
            reply(
                stream,
                "201 Created",
                "",
                r#"{"client_id":"client-1","token_endpoint_auth_method":"none"}"#,
            );
        }
        "/authorize" => {
            let code = format!("code-{}", issuer.codes.len());
            issuer.codes.insert(code.clone(), (query["code_challenge"].clone(), query["resource"].clone()));
            assert_eq!(query["code_challenge_method"], "S256");
            let mut back = Url::parse(&query["redirect_uri"]).unwrap();
            back.query_pairs_mut().append_pair("code", &code).append_pair("state", &query["state"]);
            if issuer.names_itself {
                let iss = issuer.iss.map_or(issuer.url.clone(), str::to_owned);
                back.query_pairs_mut().append_pair("iss", &iss);
            }
            reply(stream, "302 Found", &format!("Location: {back}\r\n"), "");
        }
        "/token" => {
            let form: HashMap<String, String> =
                url::form_urlencoded::parse(&asked.body).into_owned().collect();
            issuer.asked.push((form.clone(), asked.header("authorization")));
            if let Some(error) = issuer.says {
                return reply(stream, "400 Bad Request", "", &json!({"error": error}).to_string());
            }
            if issuer.bound {
                let claims = asked.proof();
                issuer.proofs.push(claims);
            }
            let good = match form["grant_type"].as_str() {
                "urn:ietf:params:oauth:grant-type:jwt-bearer" => form["assertion"].starts_with("workload."),
                "authorization_code" => {
                    issuer.codes.remove(&form["code"]).is_some_and(|(challenge, resource)| {
                        challenge == challenge_of(&form["code_verifier"]) && form["resource"] == resource
                    })
                }
                "refresh_token" => {
                    issuer.refresh.take().is_some_and(|refresh| refresh == form["refresh_token"])
                }
                "client_credentials" => asked.header("authorization").is_some(),
                _ => false,
            };
            if !good {
                return reply(stream, "400 Bad Request", "", r#"{"error":"invalid_grant"}"#);
            }
            issuer.serial += 1;
            let (access, refresh) =
                (format!("canary-access-{}", issuer.serial), format!("canary-refresh-{}", issuer.serial));
            issuer.access = vec![access.clone()];
            let kind = if issuer.bound { "DPoP" } else { "Bearer" };
            let mut given = json!({"access_token": access, "token_type": kind, "scope": "mcp"});
            if matches!(form["grant_type"].as_str(), "authorization_code" | "refresh_token") {
                given["refresh_token"] = json!(refresh);
                issuer.refresh = Some(refresh);
            }
            if let Some(seconds) = issuer.lifetime {
                given["expires_in"] = json!(seconds);
            }
            reply(stream, "200 OK", "", &given.to_string());
        }
        _ => reply(stream, "404 Not Found", "", "{}"),
    }
}

fn challenge_of(verifier: &str) -> String {
    use base64::Engine as _;
    let digest = portcullis_core::Sha256Digest::of(verifier.as_bytes());
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(digest.as_bytes())
}

impl Scene {
    /// Logs in as somebody with a browser would; the exit code and what was printed.
    fn login(&self, more: &[&str]) -> (i32, Value) {
        let mut command: Command = self.home.command();
        command.args([
            "--output",
            "json",
            "auth",
            "login",
            "conformance",
            "--no-browser",
            "--url",
            &self.door,
        ]);
        let mut child = command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while said.read_line(&mut line).is_ok_and(|read| read > 0) {
            if let Some(address) = line.trim().strip_prefix("http") {
                browse(&format!("http{address}"));
            }
            line.clear();
        }
        let output = child.wait_with_output().unwrap();
        (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap_or_default())
    }

    fn register(&self) {
        let server = Reference::at(&self.door);
        server.register(&self.home, &json!({}));
    }

    fn issuer(&self) -> std::sync::MutexGuard<'_, Issuer> {
        self.issuer.lock().unwrap()
    }
}

/// Goes to an address and wherever it leads.
fn browse(address: &str) {
    let url = Url::parse(address).unwrap();
    let host = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
    let path = format!("{}?{}", url.path(), url.query().unwrap_or_default());
    if let Some(reply) = exchange(&host, "GET", &path, &[], "")
        && let Some(next) = reply.header("location")
    {
        browse(next);
    }
}

/// No file of the gateway has what was granted, in the clear.
fn nowhere(home: &Home) {
    let mut folders = vec![home.path()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                assert!(!bytes.windows(7).any(|part| part == b"canary-"), "{}", path.display());
            }
        }
    }
}

#[test]
fn a_login_lets_the_gateway_in_and_is_renewed_when_it_ends() {
    // PRO-35, T-PRO-9: discovery, PKCE, resource indicator, registration, refresh with rotation
    let scene = scene(|_| {});
    // Nobody is let in before.
    let (exit, login) = scene.login(&[]);
    assert_eq!(
        (exit, &login["issuer"], &login["scope"]),
        (0, &json!(scene.issuer().url), &json!("mcp")),
        "{login}"
    );
    {
        let issuer = scene.issuer();
        assert_eq!(issuer.registered.len(), 1);
        assert_eq!(issuer.registered[0]["token_endpoint_auth_method"], "none");
        let (form, _) = &issuer.asked[0];
        assert_eq!(form["resource"], scene.door);
        assert!(form["code_verifier"].len() >= 43 && form["client_id"] == "client-1");
    }
    scene.register();
    let daemon = scene.home.serve();
    let operator = Operator::on_duty(&scene.home);
    let call = || daemon.call("conformance__greet", &json!({"name": "Ada"})).unwrap();
    assert_eq!(call()["result"]["content"][0]["text"], "Hello, Ada!");
    // The issuer takes the token back: one refresh, with a token that is never used again, and the call goes through.
    scene.issuer().access.clear();
    assert_eq!(call()["result"]["content"][0]["text"], "Hello, Ada!");
    scene.issuer().access.clear();
    assert_eq!(call()["result"]["content"][0]["text"], "Hello, Ada!");
    let refreshed: Vec<String> =
        scene.issuer().asked[1..].iter().map(|(form, _)| form["refresh_token"].clone()).collect();
    assert_eq!(refreshed, ["canary-refresh-1", "canary-refresh-2"]);
    // Revoked altogether: a typed refusal that says what to do, and no loop.
    scene.issuer().access.clear();
    scene.issuer().says = Some("invalid_grant");
    let asked = scene.issuer().asked.len();
    let refused = call();
    let text = refused.to_string();
    assert!(text.contains("portcullis auth login") && text.contains("MP-FH-001"), "{refused}");
    assert!(scene.issuer().asked.len() <= asked + 3, "asked again and again");
    drop(operator);
    let status = scene.home.json(&["auth", "status"]);
    assert_eq!((&status[0]["server"], &status[0]["version"]), (&json!("conformance"), &json!(3)));
    scene.home.json(&["auth", "logout", "conformance", "--reason", "done"]);
    assert_eq!(scene.home.json(&["auth", "status"]), json!([]));
    daemon.stop();
    nowhere(&scene.home);
    scene.home.verify();
}

#[test]
fn a_token_that_is_about_to_end_is_renewed_before_it_is_shown() {
    let scene = scene(|issuer| issuer.lifetime = Some(5));
    assert_eq!(scene.login(&[]).0, 0);
    scene.register();
    let knocked = scene.issuer().knocked.clone();
    let shown: Vec<&str> = knocked.iter().flatten().map(String::as_str).collect();
    assert!(!shown.is_empty() && shown.iter().all(|text| *text != "Bearer canary-access-1"), "{shown:?}");
}

#[test]
fn what_does_not_hold_together_is_refused_and_nothing_is_kept() {
    // PRO-35: iss; RFC 8414, RFC 9728, RFC 9207; PKCE or nothing. T-PRO-6: metadata of a server is read at the server
    type Change = fn(&mut Issuer);
    let cases: [(&str, Change); 7] = [
        ("kept by somebody else", |issuer| issuer.elsewhere = Some("http://169.254.169.254")),
        ("another issuer", |issuer| issuer.iss = Some("https://evil.example")),
        ("not about it", |issuer| issuer.about = Some("https://evil.example")),
        ("not about it", |issuer| issuer.resource = Some("https://other.example/mcp")),
        ("PKCE", |issuer| issuer.pkce = false),
        ("--client-id", |issuer| issuer.registers = false),
        ("invalid_request", |issuer| issuer.says = Some("invalid_request")),
    ];
    for (words, change) in cases {
        let scene = scene(change);
        let (exit, error) = scene.login(&[]);
        assert_ne!(exit, 0, "{words}: {error}");
        assert!(error["error"]["message"].as_str().unwrap().contains(words), "{words}: {error}");
        assert_eq!(scene.home.json(&["auth", "status"]), json!([]), "{words}");
        let sent_a_code = scene.issuer().asked.iter().any(|(form, _)| form.contains_key("code"));
        assert_eq!(sent_a_code, words == "invalid_request", "{words}: a code went where it should not");
    }
}

#[test]
fn a_client_with_a_secret_needs_nobody() {
    // PRO-35: client credentials
    let scene = scene(|_| {});
    let file = scene.home.beside("secret");
    std::fs::write(&file, "s3cr3t\n").unwrap();
    let script = format!(
        "exec \"$0\" --home '{}' --output json auth login conformance --url {} --client-credentials --client-id ci --client-secret-fd 3 3< '{}'",
        scene.home.path().display(),
        scene.door,
        file.display()
    );
    let output = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_portcullis")]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let (form, header) = scene.issuer().asked[0].clone();
    assert_eq!(
        (form["grant_type"].as_str(), form["resource"].as_str()),
        ("client_credentials", scene.door.as_str())
    );
    assert_eq!(header.as_deref(), Some("Basic Y2k6czNjcjN0"));
    scene.register();
    scene.issuer().access.clear();
    let daemon = scene.home.serve();
    let _operator = Operator::on_duty(&scene.home);
    let called = daemon.call("conformance__greet", &json!({"name": "Ada"})).unwrap();
    assert_eq!(called["result"]["content"][0]["text"], "Hello, Ada!", "{called}");
}

#[test]
fn a_login_for_one_address_is_not_shown_to_another() {
    // RFC 8707: the confused deputy
    let scene = scene(|_| {});
    assert_eq!(scene.login(&[]).0, 0);
    let other = self::scene(|_| {});
    // The same name, another place.
    let server = Reference::at(&other.door);
    let refused =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.register(&scene.home, &json!({}))));
    assert!(refused.is_err(), "it was let in");
    assert!(other.issuer().knocked.iter().all(Option::is_none), "{:?}", other.issuer().knocked);
}

#[test]
fn a_workload_is_known_by_a_token_that_is_read_again_for_each_renewal() {
    // PRO-35: the jwt-bearer grant
    let scene = scene(|_| {});
    let file = scene.home.beside("workload");
    std::fs::write(&file, "workload.one\n").unwrap();
    let path = file.to_str().unwrap();
    let (exit, login) = scene.login(&["--client-id", "ci", "--workload-token-file", path]);
    assert_eq!((exit, &login["renews"]), (0, &json!(true)), "{login}");
    scene.register();
    std::fs::write(&file, "workload.two\n").unwrap();
    let daemon = scene.home.serve();
    let operator = Operator::on_duty(&scene.home);
    scene.issuer().access.clear();
    let called = daemon.call("conformance__greet", &json!({"name": "Ada"})).unwrap();
    assert_eq!(called["result"]["content"][0]["text"], "Hello, Ada!", "{called}");
    let shown: Vec<String> = scene.issuer().asked.iter().map(|(form, _)| form["assertion"].clone()).collect();
    assert_eq!(
        (shown.first().unwrap().as_str(), shown.last().unwrap().as_str()),
        ("workload.one", "workload.two")
    );
    drop(operator);
    daemon.stop();
    // What the issuer does not take is neither asked again nor asked for in another way.
    std::fs::write(&file, "somebody.else").unwrap();
    let asked = scene.issuer().asked.len();
    let (exit, error) = scene.login(&["--client-id", "ci", "--workload-token-file", path]);
    assert_ne!(exit, 0, "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("invalid_grant"), "{error}");
    assert_eq!(scene.issuer().asked.len(), asked + 1);
    nowhere(&scene.home);
}

#[test]
fn a_token_that_is_bound_to_a_key_is_shown_with_a_proof_for_each_request() {
    // PRO-35: DPoP, RFC 9449, with nonces
    let scene = scene(|issuer| issuer.bound = true);
    let (exit, login) = scene.login(&[]);
    assert_eq!((exit, &login["bound"]), (0, &json!(true)), "{login}");
    scene.register();
    let daemon = scene.home.serve();
    let operator = Operator::on_duty(&scene.home);
    let called = daemon.call("conformance__greet", &json!({"name": "Ada"})).unwrap();
    assert_eq!(called["result"]["content"][0]["text"], "Hello, Ada!", "{called}");
    drop(operator);
    daemon.stop();
    let issuer = scene.issuer();
    assert!(issuer.proofs[0]["htu"].as_str().unwrap().ends_with("/token"));
    let at_the_door = &issuer.proofs[1..];
    assert!(at_the_door.iter().all(|claims| claims["htu"] == scene.door && claims["ath"].is_string()));
    let mut seen: Vec<&str> = at_the_door.iter().filter_map(|claims| claims["jti"].as_str()).collect();
    let all = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!((seen.len(), at_the_door.len()), (all, all), "a proof was shown twice");
    drop(issuer);
    nowhere(&scene.home);
    // A server that wants this and an issuer that cannot: nothing that anybody could use is taken instead.
    scene.issuer().bound = false;
    let (exit, error) = scene.login(&["--dpop"]);
    assert_ne!(exit, 0, "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("DPoP"), "{error}");
}

#[test]
fn a_call_that_a_login_does_not_cover_says_what_one_must_cover() {
    // PRO-35, PRO-70: 403 insufficient_scope, with what is covered already
    let scene = scene(|issuer| issuer.lacking = Some("files:write"));
    assert_eq!(scene.login(&[]).0, 0);
    scene.register();
    let daemon = scene.home.serve();
    let operator = Operator::on_duty(&scene.home);
    let refused = daemon.call("conformance__greet", &json!({"name": "Ada"})).unwrap().to_string();
    assert!(
        refused.contains(
            "a login that covers mcp files:write (HTTP 403); `portcullis auth login conformance --scope`"
        ),
        "{refused}"
    );
    // What is no scope is not repeated.
    scene.issuer().lacking = Some("`id` $(id)");
    let refused = daemon.call("conformance__greet", &json!({"name": "Ada"})).unwrap().to_string();
    assert!(refused.contains("other credentials") && !refused.contains("$(id)"), "{refused}");
    drop(operator);
    daemon.stop();
}

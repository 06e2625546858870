//! Portcullis as the suite's client (PRO-50): one run of `cargo xtask conformance-client URL` for each of its scenarios.
//!
//! It does what an operator and an agent would: log in where the server wants that, have the server looked at and its
//! declaration drafted, register it, and call its tools through the gateway. Everything the suite's server sees is the gateway's.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

use crate::Outcome;
use crate::operator::wait_for;
use crate::process::Running;
use crate::workspace::Workspace;

const REVISION: &str = "2026-07-28";
const SERVER: &str = "mock";
/// How often a call may come back with questions.
const ROUNDS: usize = 5;
/// What the driver says last, if it came to its end. The suite does not mind how its clients end.
pub(super) const DONE: &str = "driver: done";
/// Scenarios whose server or issuer is not to be trusted: nothing may come of a login there.
const NOT_TO_BE_TRUSTED: [&str; 6] = [
    "auth/resource-mismatch",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
];
/// The scenario whose schema refers to another document, which is not fetched; so the tool cannot be declared.
const OUTSIDE: &str = "json-schema-ref-no-deref";
/// The scenario whose server refuses whatever it is shown.
const NEVER_ENOUGH: &str = "auth/scope-retry-limit";
/// Where the suite says that a client publishes the document about itself.
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";

/// Runs one scenario against the suite's server.
pub(crate) fn run(workspace: &Workspace, url: &str) -> Outcome {
    let scenario = env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let context = env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let home = workspace.target.join("conformance/c").join(short(&scenario));
    let _ = fs::remove_dir_all(&home);
    fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    let mut config = "[policy]\npreset = \"observe\"\n[gateway]\nnames = \"bare\"\n".to_owned();
    if scenario.contains("cimd") {
        config += &format!("[upstream]\nclient_document = \"{DOCUMENT}\"\n");
    }
    fs::write(home.join("portcullis.toml"), config).map_err(|error| error.to_string())?;
    let gateway = Operator { program: workspace.target.join("debug/portcullis"), home };
    let by_itself = scenario.contains("client-credentials");
    if NOT_TO_BE_TRUSTED.contains(&scenario.as_str()) {
        if gateway.log_in(url, &context, by_itself, None).is_ok() {
            return Err("the login was taken for good".to_owned());
        }
    } else if scenario == OUTSIDE {
        if gateway.register(url).is_ok() {
            return Err("a tool whose schema is elsewhere was registered".to_owned());
        }
    } else if scenario == NEVER_ENOUGH {
        gateway.log_in(url, &context, by_itself, None)?;
        if gateway.register(url).is_ok() {
            return Err("a server that wants ever more was registered".to_owned());
        }
    } else {
        if scenario.starts_with("auth/") {
            gateway.log_in(url, &context, by_itself, None)?;
            // What a login is worth may be over soon; then the gateway says so, and an operator logs in again.
            if gateway.register(url).is_err() {
                gateway.log_in(url, &context, by_itself, None)?;
                gateway.register(url)?;
            }
        } else {
            gateway.register(url)?;
        }
        // What a login covers may not be enough for a call; then the gateway says for what, and an operator logs in again.
        if let Some(scope) = gateway.call_everything(&context)? {
            gateway.log_in(url, &context, by_itself, Some(&scope))?;
            if gateway.call_everything(&context)?.is_some() {
                return Err("the server wants still more".to_owned());
            }
        }
    }
    eprintln!("{DONE}");
    Ok(())
}

struct Operator {
    program: PathBuf,
    home: PathBuf,
}

impl Operator {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--home").arg(&self.home).stdin(Stdio::null());
        command
    }

    /// Logs in as somebody with a browser does, or as a workload.
    fn log_in(&self, url: &str, context: &Value, by_itself: bool, scope: Option<&str>) -> Outcome {
        let mut command = self.command();
        command.args(["auth", "login", SERVER, "--url", url, "--no-browser"]);
        if let Some(scope) = scope {
            command.args(["--scope", scope]);
        }
        if let Some(id) = context["client_id"].as_str() {
            command.args(["--client-id", id]);
        }
        let kept = |name: &str, text: &str| {
            let file = self.home.join(name);
            fs::write(&file, text).map(|()| file).map_err(|error| error.to_string())
        };
        for (given, option) in
            [("client_secret", "--client-secret-fd"), ("private_key_pem", "--client-key-fd")]
        {
            if let Some(text) = context[given].as_str() {
                let file = fs::File::open(kept(given, text)?).map_err(|error| error.to_string())?;
                command.args([option, "0"]).stdin(file);
            }
        }
        if let Some(token) = context["valid_jwt"].as_str() {
            command.arg("--workload-token-file").arg(kept("workload", token)?);
        }
        if let Some(token) = context["idp_id_token"].as_str() {
            command.arg("--identity-token-file").arg(kept("identity", token)?);
            command.args(["--identity-provider", context["idp_issuer"].as_str().unwrap_or_default()]);
            command.args(["--identity-client-id", context["idp_client_id"].as_str().unwrap_or_default()]);
        }
        if by_itself {
            command.arg("--client-credentials");
        }
        let mut child = command.stderr(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
        let said = child.stderr.take().ok_or("there is no pipe")?;
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            eprintln!("{line}");
            if line.trim().starts_with("http") {
                browse(line.trim(), 0)?;
            }
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err("the login was refused".to_owned()) }
    }

    /// Has the server looked at, and registers what was drafted, with questions to the client allowed.
    fn register(&self, url: &str) -> Outcome {
        let file = self.home.join("client.json");
        let servers = json!({"mcpServers": {SERVER: {"type": "http", "url": url}}});
        fs::write(&file, servers.to_string()).map_err(|error| error.to_string())?;
        succeed(self.command().arg("import").arg(&file))?;
        let draft = self.home.join("drafts").join(format!("{SERVER}.yaml"));
        let text = fs::read_to_string(&draft).map_err(|error| format!("{}: {error}", draft.display()))?;
        let declaration = self.home.join("mock.yaml");
        let text = format!("{}server_requests: [elicitation, sampling, roots]\n", harmless(&text));
        fs::write(&declaration, &text).map_err(|error| error.to_string())?;
        let version = version_of(&text).ok_or("the draft has no version")?;
        let mut add = self.command();
        add.args(["mcp", "add", SERVER, "--deployment-mode", "local", "--yes", "--grant", "all"]);
        add.args(["--server-version", &version]);
        add.args(["--justification", "the suite's server", "--waive-isolation", "the suite's server"]);
        add.args(["--transport", "http", "--url", url, "--capability-declaration"]).arg(&declaration);
        succeed(&mut add)
    }

    /// Lists and calls everything through a running gateway, as an agent of the newest revision. Gives what a login must
    /// cover, if that is what a call failed of.
    fn call_everything(&self, context: &Value) -> Outcome<Option<String>> {
        let mut wanted = None;
        let ready = self.home.join("ready.json");
        let mut serve = self.command();
        serve.args(["serve", "--listen", "127.0.0.1:0", "--ready-file"]).arg(&ready);
        let running = Running::start(&mut serve)?;
        let told = wait_for(&ready)?;
        let address = told["mcp"].as_str().unwrap_or_default();
        let agent =
            Agent { address: address.trim_start_matches("http://").trim_end_matches("/mcp").to_owned() };
        let tools = agent.list("tools/list", "tools")?;
        let schema_of = |name: &str| {
            tools.iter().find(|tool| tool["name"] == name).map(|tool| tool["inputSchema"].clone())
        };
        match context["toolCalls"].as_array() {
            Some(calls) => {
                for call in calls {
                    let name = call["name"].as_str().unwrap_or_default();
                    let schema = schema_of(name).unwrap_or_default();
                    wanted = agent.call(name, without_nulls(&call["arguments"]), &schema)?.or(wanted);
                }
            }
            None => {
                for tool in &tools {
                    let arguments = match tool["name"].as_str() {
                        // Wants to be told what was told about the other tool.
                        Some("json_schema_echo") => {
                            let other = tools.iter().find(|other| other["name"] != tool["name"]);
                            json!({"schema": other.map(|other| other["inputSchema"].clone())})
                        }
                        _ => sample(&tool["inputSchema"]),
                    };
                    let name = tool["name"].as_str().unwrap_or_default();
                    wanted = agent.call(name, arguments, &tool["inputSchema"])?.or(wanted);
                }
            }
        }
        for resource in agent.list("resources/list", "resources")? {
            agent.ask("resources/read", &json!({"uri": resource["uri"]}), &[])?;
        }
        for prompt in agent.list("prompts/list", "prompts")? {
            let arguments = prompt["arguments"].as_array().into_iter().flatten();
            let given: Map<String, Value> = arguments
                .filter_map(|argument| Some((argument["name"].as_str()?.to_owned(), json!("x"))))
                .collect();
            agent.ask("prompts/get", &json!({"name": prompt["name"], "arguments": given}), &[])?;
        }
        drop(running);
        fs::remove_file(&ready).map_err(|error| error.to_string())?;
        Ok(wanted)
    }
}

/// The scope that an answer says a login must cover.
fn scope_wanted(answer: &Value) -> Option<String> {
    let told = answer["error"]["message"].as_str()?.split_once("wants a login that covers ")?.1;
    Some(told.split_once(" (HTTP")?.0.to_owned())
}

/// A null for what may be left out is left out: no schema of the suite's allows one.
fn without_nulls(arguments: &Value) -> Value {
    match arguments {
        Value::Object(members) => {
            let given = members.iter().filter(|(_, value)| !value.is_null());
            Value::Object(given.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        other => other.clone(),
    }
}

/// The version that a draft gives its server: drafts say everything about the server on one line, as JSON.
fn version_of(draft: &str) -> Option<String> {
    let server = draft.lines().find_map(|line| line.strip_prefix("server: "))?;
    let server: Value = serde_json::from_str(server).ok()?;
    Some(server["version"].as_str()?.to_owned())
}

/// A draft as somebody corrects it who knows the server: the suite's tools change nothing, whatever their names suggest.
fn harmless(draft: &str) -> String {
    let lines = draft.lines().filter(|line| line.trim() != "unbound: true");
    let corrected = lines.map(|line| {
        let indent = &line[..line.len() - line.trim_start().len()];
        let guessed = line.trim_start().starts_with("side_effects:");
        if guessed { format!("{indent}side_effects: []\n") } else { format!("{line}\n") }
    });
    corrected.collect()
}

fn succeed(command: &mut Command) -> Outcome {
    let status = command.status().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed")) }
}

/// Goes to an address and wherever it leads.
fn browse(address: &str, hops: u32) -> Outcome {
    let rest = address.strip_prefix("http://").ok_or("only plain addresses of this machine are browsed")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (head, _) = exchange(host, "GET", &format!("/{path}"), &[], "")?;
    let next = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
    });
    match next {
        Some(next) if hops < 5 => browse(&next, hops + 1),
        _ => Ok(()),
    }
}

/// An agent of the newest revision: one request, one answer.
struct Agent {
    address: String,
}

impl Agent {
    fn list(&self, method: &str, key: &str) -> Outcome<Vec<Value>> {
        let answer = self.ask(method, &json!({}), &[])?;
        Ok(answer["result"][key].as_array().cloned().unwrap_or_default())
    }

    /// Calls a tool, and answers its questions with what a form offers. Gives what a login must cover, if it failed of that.
    fn call(&self, name: &str, arguments: Value, schema: &Value) -> Outcome<Option<String>> {
        let mut headers = Vec::new();
        mirrored(schema, &arguments, &mut headers);
        let mut params = json!({"name": name, "arguments": arguments});
        for _ in 0..ROUNDS {
            let answer = self.ask("tools/call", &params, &headers)?;
            eprintln!("{name}: {answer}");
            if let Some(scope) = scope_wanted(&answer) {
                return Ok(Some(scope));
            }
            let result = &answer["result"];
            if result["resultType"] != "input_required" {
                break;
            }
            let asked = result["inputRequests"].as_object().cloned().unwrap_or_default();
            let answers = asked.into_iter().map(|(key, question)| {
                let content = sample(&question["params"]["requestedSchema"]);
                (key, json!({"action": "accept", "content": content}))
            });
            params["inputResponses"] = Value::Object(answers.collect());
            params["requestState"] = result["requestState"].clone();
        }
        Ok(None)
    }

    fn ask(&self, method: &str, params: &Value, more: &[(String, String)]) -> Outcome<Value> {
        let mut params = params.clone();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "sampling": {}, "roots": {}},
            "io.modelcontextprotocol/clientInfo": {"name": "driver", "version": "1"},
        });
        let mut headers: Vec<(String, String)> = vec![
            ("Content-Type".into(), "application/json".into()),
            ("Accept".into(), "application/json, text/event-stream".into()),
            ("MCP-Protocol-Version".into(), REVISION.into()),
            ("Mcp-Method".into(), method.into()),
        ];
        if let Some(name) = params["name"].as_str().or_else(|| params["uri"].as_str()) {
            headers.push(("Mcp-Name".into(), name.into()));
        }
        headers.extend_from_slice(more);
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let (_, text) = exchange(&self.address, "POST", "/mcp", &headers, &body)?;
        let events = text.lines().filter_map(|line| line.strip_prefix("data:"));
        let mut answers =
            events.chain([text.as_str()]).filter_map(|text| serde_json::from_str::<Value>(text).ok());
        let is_answer = |message: &Value| message.get("result").is_some() || message.get("error").is_some();
        answers.find(is_answer).ok_or_else(|| format!("{method}: no answer: {text}"))
    }
}

/// One HTTP request on a connection of its own: the head and the text of the answer.
fn exchange(
    host: &str,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: &str,
) -> Outcome<(String, String)> {
    let failed = |error: std::io::Error| format!("{host}: {error}");
    let mut stream = TcpStream::connect(host).map_err(failed)?;
    let mut text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{text}\r\n{body}").as_bytes()).map_err(failed)?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).map_err(failed)?;
    let reply = String::from_utf8_lossy(&reply).into_owned();
    let (head, body) = reply.split_once("\r\n\r\n").ok_or_else(|| format!("{host}: no answer"))?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Ok((head.to_owned(), if chunked { joined(body) } else { body.to_owned() }))
}

/// A body that came in chunks.
fn joined(mut rest: &str) -> String {
    let mut whole = String::new();
    while let Some((length, after)) = rest.split_once("\r\n") {
        let Ok(length @ 1..) = usize::from_str_radix(length.trim(), 16) else { break };
        let Some(chunk) = after.get(..length) else { break };
        whole.push_str(chunk);
        rest = after.get(length + 2..).unwrap_or_default();
    }
    whole
}

/// Headers that repeat arguments, where a schema wants that.
fn mirrored(schema: &Value, value: &Value, headers: &mut Vec<(String, String)>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let given = &value[name.as_str()];
        if let (Some(header), false) = (property["x-mcp-header"].as_str(), given.is_null()) {
            let text = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
            let plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && text.trim() == text;
            let text = if plain { text } else { format!("=?base64?{}?=", base64(text.as_bytes())) };
            headers.push((format!("Mcp-Param-{header}"), text));
        }
        mirrored(property, given, headers);
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |bits: u32| char::from(DIGITS[(bits & 63) as usize]);
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            text.push(if at <= chunk.len() { digit(bits >> (18 - 6 * at)) } else { '=' });
        }
    }
    text
}

/// Something that fits a schema: what it offers by default, else the least there is.
fn sample(schema: &Value) -> Value {
    if let Some(default) = schema.get("default") {
        return default.clone();
    }
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("object") | None => {
            let required: Vec<&str> =
                schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let properties = schema["properties"].as_object().into_iter().flatten();
            let wanted = properties.filter(|(name, property)| {
                required.contains(&name.as_str()) || property.get("default").is_some()
            });
            Value::Object(wanted.map(|(name, property)| (name.clone(), sample(property))).collect())
        }
        Some("number" | "integer") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        _ => json!("x"),
    }
}

/// The command that the suite runs for each scenario.
pub(crate) fn command() -> Outcome<String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    Ok(format!("{} conformance-client", still_there(&program.display().to_string())))
}

/// A name for a scenario's folder. The gateway has a socket in there, and the path of a socket has to be short.
fn short(scenario: &str) -> String {
    let mut hasher = DefaultHasher::new();
    scenario.hash(&mut hasher);
    format!("{:08x}", hasher.finish() >> 32)
}

/// Where a program is to be found. One that was built anew while it ran is called deleted by the kernel; the new one is in
/// its place.
fn still_there(program: &str) -> &str {
    program.strip_suffix(" (deleted)").unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_repeated_as_they_can_travel() {
        let schema = json!({"properties": {"a": {"x-mcp-header": "A"}, "b": {"x-mcp-header": "B"}, "c": {"x-mcp-header": "C"}, "d": {}}});
        let mut headers = Vec::new();
        mirrored(&schema, &json!({"a": "plain", "b": "Hello, 世界", "d": 1}), &mut headers);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            headers,
            [pair("Mcp-Param-A", "plain"), pair("Mcp-Param-B", "=?base64?SGVsbG8sIOS4lueVjA==?=")]
        );
    }

    #[test]
    fn the_version_of_a_draft_is_its_servers_and_not_a_tools() {
        let draft = "apiVersion: portcullis/v1\nserver: {\"identity\":\"mock\",\"version\":\"2.0\"}\ntools:\n  - name: a\n    version: \"1\"\n";
        assert_eq!(version_of(draft).as_deref(), Some("2.0"));
    }

    #[test]
    fn what_a_login_must_cover_is_read_from_what_the_gateway_says() {
        let said = "the server wants a login that covers a b:c (HTTP 403); `portcullis auth login x --scope` asks for that";
        assert_eq!(scope_wanted(&json!({"error": {"message": said}})).as_deref(), Some("a b:c"));
        assert_eq!(scope_wanted(&json!({"result": {}})), None);
        assert_eq!(without_nulls(&json!({"a": null, "b": {"c": null, "d": 1}})), json!({"b": {"d": 1}}));
    }

    #[test]
    fn what_a_draft_guesses_of_effects_is_corrected_and_nothing_else() {
        let draft = "tools:\n  - name: \"add\"\n    side_effects: [write]  # suggested\n    unbound: true\n    scopes: []\n";
        assert_eq!(harmless(draft), "tools:\n  - name: \"add\"\n    side_effects: []\n    scopes: []\n");
    }

    #[test]
    fn a_program_that_was_built_anew_is_where_it_was() {
        assert_eq!(still_there("/x/xtask (deleted)"), "/x/xtask");
        assert_eq!(still_there("/x/xtask"), "/x/xtask");
    }

    #[test]
    fn a_body_in_chunks_is_joined() {
        assert_eq!(joined("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), "abcde");
    }
}

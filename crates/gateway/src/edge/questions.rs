//! Questions of servers to clients: which may be put at all, in which words, and which answers count (GOV-408, PRO-71).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portcullis_core::digest::to_hex;
use portcullis_core::jsonrpc::RpcError;
use portcullis_gauntlet::{CompiledSchema, Gauntlet, Raw, SchemaRole};
use portcullis_governance::boundary::BoxFuture;
use portcullis_governance::declaration::{ServerRequest, TASKS};
use portcullis_governance::registry::ToolEntry;
use portcullis_upstream::Unanswered;
use rand::RngExt as _;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::outlet::Outlet;
use super::rounds::Turn;

/// How many answers a client may owe at once.
const MOST: usize = 256;
/// What a form may not ask for: secrets are not typed into an agent's client.
const SECRETS: [&str; 8] =
    ["password", "passwd", "secret", "api_key", "apikey", "token", "credential", "private_key"];

/// By which a message says which task it belongs to (2025-11-25).
pub(crate) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// What a client can be asked, as it declared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Abilities(Value);

impl Abilities {
    pub(crate) fn read(raw: Option<&RawValue>) -> Self {
        Self(raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default())
    }

    fn has(&self, kind: ServerRequest) -> bool {
        self.0.get(kind.as_str()).is_some_and(Value::is_object)
    }

    /// Whether the client shows a link to whom it works for, instead of fetching it.
    fn opens_links(&self) -> bool {
        self.0["elicitation"]["url"].is_object()
    }

    /// Whether the client fills in forms: so does one that says nothing about how it can be asked.
    fn fills_in_forms(&self) -> bool {
        let able = &self.0["elicitation"];
        able.is_object() && (able["form"].is_object() || !self.opens_links())
    }

    /// Whether the client can be asked this.
    pub(crate) fn can_answer(&self, question: &Question) -> bool {
        match question.kind() {
            Some(ServerRequest::Elicitation) if question.is_page() => self.opens_links(),
            Some(ServerRequest::Elicitation) => self.fills_in_forms(),
            Some(kind) => self.has(kind),
            None => false,
        }
    }

    /// Whether the client takes a task for an answer.
    pub(crate) fn takes_tasks(&self) -> bool {
        self.0["extensions"][TASKS].is_object()
    }

    /// The same for one call of a legacy client, which says with each call whether it wants a task for an answer.
    pub(crate) fn for_call(mut self, wants_task: bool) -> Self {
        if let Some(members) = self.0.as_object_mut() {
            members.remove("extensions");
        }
        if wants_task {
            if !self.0.is_object() {
                self.0 = json!({});
            }
            self.0["extensions"] = json!({TASKS: {}});
        }
        self
    }

    /// What this client and a declaration have in common (PRO-63).
    pub(crate) fn within(&self, declared: &Value) -> Value {
        let mut common = json!({});
        for kind in [ServerRequest::Sampling, ServerRequest::Elicitation, ServerRequest::Roots] {
            let Some(declared) = declared.get(kind.as_str()).filter(|_| self.has(kind)) else { continue };
            common[kind.as_str()] = match kind {
                ServerRequest::Elicitation => {
                    let able = [("form", self.fills_in_forms()), ("url", self.opens_links())];
                    let able = able.iter().filter(|(how, able)| *able && declared.get(how).is_some());
                    Value::Object(able.map(|(how, _)| ((*how).to_owned(), json!({}))).collect())
                }
                // What else a client may be able to do, such as sampling with tools, is not carried.
                ServerRequest::Sampling | ServerRequest::Roots => json!({}),
            };
        }
        if self.takes_tasks() && declared["extensions"][TASKS].is_object() {
            common["extensions"] = json!({TASKS: {}});
        }
        common
    }
}

/// A question that may be put.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) method: String,
    pub(crate) params: Value,
}

impl Question {
    /// What kind of question it is; a prepared one always is of some.
    pub(crate) fn kind(&self) -> Option<ServerRequest> {
        ServerRequest::of_method(&self.method)
    }

    /// Whether it shows a page instead of a form.
    fn is_page(&self) -> bool {
        self.params["mode"] == "url"
    }

    /// What a client must be able to do for it, in a word.
    pub(crate) fn needed(&self) -> &'static str {
        match self.kind() {
            Some(ServerRequest::Elicitation) if self.is_page() => "elicitation by URL",
            kind => kind.map_or("", ServerRequest::as_str),
        }
    }

    /// The same in the words of a client's capabilities.
    pub(crate) fn needs(&self) -> Value {
        let kind = self.kind().map_or("", ServerRequest::as_str);
        let how = if self.is_page() { json!({"url": {}}) } else { json!({}) };
        json!({kind: how})
    }
}

/// Holds a server's question to its declaration, and words it so that a person knows who asks. What came in a result
/// was cleaned with it; what came by itself is cleaned here.
pub(crate) fn prepare(
    entry: &ToolEntry,
    method: &str,
    params: &RawValue,
    asked_before: u32,
    uncleaned: Option<&Gauntlet>,
) -> Result<Question, Unanswered> {
    let kind = ServerRequest::of_method(method).ok_or(Unanswered::Undeclared)?;
    let declared = entry.server.declaration.server_requests().iter().find(|request| request.kind == kind);
    let declared = declared.ok_or(Unanswered::Undeclared)?;
    let refuse = |message: &str| Unanswered::Refused { code: -32602, message: message.into() };
    if asked_before >= declared.max_per_call {
        return Err(refuse("more questions in one call than are declared"));
    }
    let mut params: Value =
        serde_json::from_str(params.get()).map_err(|_| refuse("params are not readable"))?;
    // Which request its progress is about is the server's affair (PRO-11); nobody here would know the token.
    if let Some(meta) = params["_meta"].as_object_mut() {
        meta.remove("progressToken");
        // And so is its own name for a task.
        meta.remove(RELATED_TASK);
    }
    if params["_meta"].as_object().is_none_or(serde_json::Map::is_empty)
        && let Some(members) = params.as_object_mut()
    {
        members.remove("_meta");
    }
    let clean = |text: &mut Value| {
        if let (Value::String(text), Some(gauntlet)) = (text, uncleaned) {
            let cleaned = gauntlet.clean_text(Raw::new(text.as_str()));
            *text = cleaned.map_or_else(|_| String::new(), |clean| clean.into_inner().into_owned());
        }
    };
    match kind {
        ServerRequest::Roots => {}
        ServerRequest::Sampling => {
            // PRO-71: it is the agent's model that pays.
            let wanted = params["maxTokens"].as_u64().unwrap_or(u64::MAX);
            params["maxTokens"] = wanted.min(declared.max_tokens.into()).into();
            if params.get("includeContext").is_some() {
                params["includeContext"] = json!("none");
            }
            if let Some(prompt) = params.get_mut("systemPrompt") {
                clean(prompt);
            }
            for message in params["messages"].as_array_mut().into_iter().flatten() {
                // One block, or since 2025-11-25 a list of them.
                let blocks = match message.get_mut("content") {
                    Some(Value::Array(blocks)) => blocks.as_mut_slice(),
                    Some(block) => std::slice::from_mut(block),
                    None => continue,
                };
                blocks.iter_mut().filter_map(|block| block.get_mut("text")).for_each(clean);
            }
        }
        ServerRequest::Elicitation => {
            if params["mode"] == "url" {
                if !params["url"].as_str().is_some_and(is_page) {
                    return Err(refuse("only a page of the web can be shown"));
                }
            } else if asks_for_secrets(&params["requestedSchema"]) {
                return Err(refuse("secrets cannot be asked for in a form"));
            }
            clean(&mut params["message"]);
            let message = params["message"].as_str().unwrap_or_default();
            params["message"] = format!("Server '{}' asks: {message}", entry.tool.id().server()).into();
        }
    }
    // What is not a text to be shown, such as a form's labels and choices, cannot be rewritten without changing what is
    // asked; so it must be clean as it is (GNT-O4).
    if uncleaned.is_some_and(|gauntlet| !is_clean(&params, gauntlet)) {
        return Err(refuse("the question holds text that cannot be shown"));
    }
    Ok(Question { method: method.to_owned(), params })
}

/// Whether no text and no key of a value holds a marker or an invisible character, however it is spelled.
fn is_clean(value: &Value, gauntlet: &Gauntlet) -> bool {
    let fine = |text: &str| gauntlet.clean_label(Raw::new(text)).is_ok_and(|clean| clean.get() == text);
    match value {
        Value::String(text) => fine(text),
        Value::Array(items) => items.iter().all(|item| is_clean(item, gauntlet)),
        Value::Object(members) => members.iter().all(|(key, member)| fine(key) && is_clean(member, gauntlet)),
        _ => true,
    }
}

/// Whether somebody can be shown what is there: over http or https, and at the host that it seems to be at.
fn is_page(url: &str) -> bool {
    url::Url::parse(url).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
    })
}

fn asks_for_secrets(schema: &Value) -> bool {
    let properties = schema["properties"].as_object();
    properties.into_iter().flatten().any(|(name, property)| {
        let name = name.to_ascii_lowercase();
        SECRETS.iter().any(|secret| name.contains(secret)) || property["format"] == "password"
    })
}

/// Whether an answer is one: what was elicited must fit what was asked for.
pub(crate) fn judge(question: &Question, answer: Value) -> Result<Value, Unanswered> {
    let refuse = |message: &str| Unanswered::Refused { code: -32603, message: message.into() };
    if !answer.is_object() {
        return Err(refuse("the client's answer is not an object"));
    }
    let form = question.kind() == Some(ServerRequest::Elicitation) && question.params["mode"] != "url";
    if form && answer["action"] == "accept" {
        let schema = CompiledSchema::compile(&question.params["requestedSchema"], SchemaRole::Input)
            .map_err(|_| refuse("the requested schema is not usable"))?;
        if schema.validate(&answer["content"]).is_err() {
            return Err(refuse("the client's answer does not fit the requested schema"));
        }
    }
    Ok(answer)
}

/// Questions a client owes answers to, by the ids we gave them.
#[derive(Debug, Default)]
pub(crate) struct Owed(Mutex<HashMap<String, oneshot::Sender<Result<Value, RpcError>>>>);

impl Owed {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<Result<Value, RpcError>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client's response; one to a question that was never asked is dropped.
    pub(crate) fn answered(&self, id: &RawValue, outcome: Result<&RawValue, &RawValue>) -> bool {
        let Ok(id) = serde_json::from_str::<String>(id.get()) else { return false };
        let Some(waiting) = self.lock().remove(&id) else { return false };
        let malformed = || RpcError { code: -32603, message: String::new(), data: None };
        let outcome = match outcome {
            Ok(result) => serde_json::from_str(result.get()).map_err(|_| malformed()),
            Err(error) => Err(serde_json::from_str(error.get()).unwrap_or_else(|_| malformed())),
        };
        waiting.send(outcome).is_ok()
    }
}

/// How the client of one call can be asked.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    pub(crate) abilities: Abilities,
    pub(crate) owed: Arc<Owed>,
    /// A modern client is asked by ending its call.
    pub(crate) turns: Option<mpsc::UnboundedSender<Turn>>,
    /// How long a person may take (PRO §4).
    pub(crate) patience: Duration,
}

impl Asker {
    /// Whether the client can be asked all of this.
    pub(crate) fn can_answer(&self, question: &Question) -> bool {
        self.abilities.can_answer(question)
    }

    /// Whether the client can be asked this, and hears it.
    pub(crate) fn reaches(&self, question: &Question, outlet: &Outlet) -> bool {
        self.can_answer(question) && (self.turns.is_some() || outlet.is_open())
    }

    /// Whether the client can be given a link to show.
    pub(crate) fn opens_links(&self, outlet: &Outlet) -> bool {
        self.abilities.opens_links() && (self.turns.is_some() || outlet.is_open())
    }

    /// Puts a question to the client, as a request of ours.
    pub(crate) fn ask(
        &self,
        question: Question,
        outlet: Outlet,
    ) -> BoxFuture<'static, Result<Value, Unanswered>> {
        let refuse = |code, message: &str| Unanswered::Refused { code, message: message.into() };
        if !self.reaches(&question, &outlet) {
            let error = refuse(-32601, "the client cannot be asked this");
            return Box::pin(async move { Err(error) });
        }
        let patience = self.patience;
        if let Some(turns) = self.turns.clone() {
            return Box::pin(async move {
                let (sender, answer) = oneshot::channel();
                let _ = turns.send(Turn { question, answer: sender });
                match tokio::time::timeout(patience, answer).await {
                    // It was judged when it came.
                    Ok(Ok(answer)) => Ok(answer),
                    _ => Err(refuse(-32603, "the client did not answer")),
                }
            });
        }
        let owed = self.owed.clone();
        Box::pin(async move {
            let id = to_hex(&rand::rng().random::<[u8; 16]>());
            let (sender, answer) = oneshot::channel();
            {
                let mut owed = owed.lock();
                owed.retain(|_, waiting| !waiting.is_closed());
                if owed.len() >= MOST {
                    return Err(refuse(-32603, "the client owes too many answers"));
                }
                owed.insert(id.clone(), sender);
            }
            let request =
                json!({"jsonrpc": "2.0", "id": id, "method": question.method, "params": question.params});
            if !outlet.send(request.to_string().into_bytes()) {
                return Err(refuse(-32603, "the client does not listen"));
            }
            match tokio::time::timeout(patience, answer).await {
                Ok(Ok(Ok(answer))) => judge(&question, answer),
                // The client's own text stays with the client.
                Ok(Ok(Err(error))) => {
                    Err(refuse(i32::try_from(error.code).unwrap_or(-32603), "the client declined"))
                }
                _ => Err(refuse(-32603, "the client did not answer")),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_with_a_marker_anywhere_is_not_clean() {
        // GNT-O4
        let gauntlet = Gauntlet::new(&Default::default()).unwrap();
        let form =
            |label: &str| json!({"properties": {"a": {"enum": ["x", "y"], "title": label}}, "n": [1, null]});
        assert!(is_clean(&form("Your name, <please> & thanks"), &gauntlet));
        for marker in ["__system__", "<|im_start|>", "__sys\u{200b}tem__", "&lt;|im_end|&gt;", "a\u{1b}[31mb"]
        {
            assert!(!is_clean(&form(marker), &gauntlet), "{marker:?}");
            assert!(!is_clean(&json!({ marker: 1 }), &gauntlet), "{marker:?} as a key");
        }
    }

    #[test]
    fn a_page_is_at_the_host_it_seems_to_be_at() {
        // PRO §3, PRO-70
        for fine in ["https://a.example/x?a=1&b=2#c", "http://127.0.0.1:3000/cb"] {
            assert!(is_page(fine), "{fine}");
        }
        for other in
            ["javascript:alert(1)", "file:///etc/passwd", "https://good.example@evil.example/", "x", ""]
        {
            assert!(!is_page(other), "{other}");
        }
    }

    #[test]
    fn a_client_is_asked_in_the_ways_it_named() {
        // PRO-63
        let able = |text: &str| Abilities(serde_json::from_str(text).unwrap());
        let question =
            |mode: &str| Question { method: "elicitation/create".into(), params: json!({"mode": mode}) };
        let declared = json!({"elicitation": {"form": {}, "url": {}}, "roots": {}});
        for (said, form, url, common) in [
            (r#"{"elicitation":{}}"#, true, false, json!({"elicitation": {"form": {}}})),
            (r#"{"elicitation":{"form":{}}}"#, true, false, json!({"elicitation": {"form": {}}})),
            (r#"{"elicitation":{"url":{}}}"#, false, true, json!({"elicitation": {"url": {}}})),
            (
                r#"{"elicitation":{"form":{},"url":{}}}"#,
                true,
                true,
                json!({"elicitation": {"form": {}, "url": {}}}),
            ),
            (r#"{"sampling":{"tools":{}},"roots":{"listChanged":true}}"#, false, false, json!({"roots": {}})),
            ("{}", false, false, json!({})),
        ] {
            let able = able(said);
            assert_eq!((able.can_answer(&question("form")), able.can_answer(&question("url"))), (form, url));
            assert_eq!(able.within(&declared), common, "{said}");
        }
        assert_eq!(able(r#"{"elicitation":{}}"#).within(&json!({"roots": {}})), json!({}));
    }

    #[test]
    fn forms_may_not_ask_for_secrets_and_answers_must_fit() {
        // PRO §3
        let form = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
        assert!(asks_for_secrets(&form("github_token")) && asks_for_secrets(&form("Password")));
        assert!(!asks_for_secrets(&form("name")));
        let params = json!({"mode": "form", "requestedSchema": form("name")});
        let question = Question { method: "elicitation/create".into(), params };
        assert!(judge(&question, json!({"action": "accept", "content": {"name": "x"}})).is_ok());
        assert!(judge(&question, json!({"action": "accept", "content": {"name": 7}})).is_err());
        assert!(judge(&question, json!({"action": "accept"})).is_err());
        assert!(judge(&question, json!({"action": "decline"})).is_ok());
        assert!(judge(&question, json!("accept")).is_err());
    }
}

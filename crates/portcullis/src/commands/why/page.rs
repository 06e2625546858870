//! The story as a page.

use serde_json::Value;

use crate::output::{Output, visible};
use portcullis_gateway::story::Story;

/// As much of a message as fits a page,
const SHOWN: usize = 1200;
/// in lines that no terminal breaks.
const WIDTH: usize = 100;

pub(super) fn render(story: &Story, output: &Output) -> String {
    let mut page = Page { lines: Vec::new(), output };
    let tool = text(&story.what["tool_id"]);
    let (tool, declaration) = tool.split_once('#').unwrap_or((&tool, ""));
    let name = if tool.is_empty() { visible(&text(&story.what["asked_for"])) } else { tool.to_owned() };
    page.lines.push(format!("{}  {}", output.bold(&format!("Call {}", story.proposal)), name));
    page.lines.push(format!("{}\n", text(&story.end["how"])));

    let client = visible(&text(&story.who["client"]));
    let client = if client.is_empty() { String::new() } else { format!(", calling itself {client:?}") };
    page.say("who", &format!("{}{client}", text(&story.who["actor"])));
    page.more(&format!(
        "session {}, step {}, at {}",
        text(&story.who["session"]),
        text(&story.who["step"]),
        text(&story.who["time"])
    ));

    page.say("what", &format!("{name}, {} bytes of arguments", text(&story.what["arguments_bytes"])));
    if !declaration.is_empty() {
        page.more(&format!(
            "held to declaration {}, trust {}",
            short(declaration),
            text(&story.what["trust"])
        ));
    }
    if !story.what["side_effects"].is_null() {
        page.more(&format!(
            "may: {}; scopes: {}",
            list(&story.what["side_effects"]),
            list(&story.what["scopes"])
        ));
    }
    if let Some(arguments) = story.what.get("arguments").filter(|arguments| !arguments.is_null()) {
        page.block(&arguments.to_string(), None);
    }

    if !story.decision.is_null() {
        let verdict = match story.decision["verdict"].as_str() {
            Some("unattended") => "allowed, nobody needs to be asked".to_owned(),
            Some("approval") => "allowed if an operator approves".to_owned(),
            _ => text(&story.decision["verdict"]),
        };
        page.say("rule", &format!("{verdict}: {}", list(&story.decision["rules"])));
        page.more(&format!("policy {}", short(&text(&story.decision["policy"]))));
    }
    page.approval(&story.approval);
    if !story.permit.is_null() {
        let checks = match (&story.permit["denied_by"], story.permit["validated"].as_bool()) {
            (Value::String(check), _) => format!("refused at the boundary: {check}"),
            (_, Some(true)) => "issued for exactly this request, passed all eight checks, used once".into(),
            _ => "issued, never used".into(),
        };
        page.say("permit", &format!("{}  {checks}", text(&story.permit["permit_id"])));
    }
    page.message("sent", &story.sent, "nothing was sent");
    page.message("received", &story.received, "no answer is on record");
    if !story.received.is_null() {
        let changed = match story.changed.as_object() {
            None => "nothing but escapes: the agent got what was received, marked with this call".to_owned(),
            Some(noted) => {
                let words = noted.iter().filter(|(name, _)| *name != "unicode");
                let words: Vec<String> =
                    words.map(|(name, value)| format!("{name} {}", text(value))).collect();
                words.join(", ")
            }
        };
        page.say("changed", &changed);
    }
    page.steps(&story.steps);
    let (first, last) = (story.records.first().unwrap_or(&0), story.records.last().unwrap_or(&0));
    page.say("evidence", &format!("records {first} to {last} of log {}", story.log));
    page.more(&format!("prove one: portcullis audit show {last} --proof"));
    page.lines.join("\n")
}

struct Page<'a> {
    lines: Vec<String>,
    output: &'a Output,
}

impl Page<'_> {
    fn say(&mut self, name: &str, line: &str) {
        self.lines.push(format!("{}  {line}", self.output.bold(&format!("{name:<8}"))));
    }

    fn more(&mut self, line: &str) {
        self.lines.push(format!("          {line}"));
    }

    /// Text of a server or agent: visible, broken and cut to what a page takes, set off. The rest is with record `seq`.
    fn block(&mut self, content: &str, seq: Option<&Value>) {
        let shown: String = content.chars().take(SHOWN).collect();
        let rest = content.len() - shown.len();
        for line in shown.lines().flat_map(|line| broken(&visible(line))) {
            self.lines.push(format!("            {}", self.output.dim(&line)));
        }
        if rest > 0 {
            let where_else = seq.map(|seq| format!(": portcullis audit show {seq} --evidence --reason WHY"));
            self.more(&format!("  … and {rest} bytes more{}", where_else.unwrap_or_default()));
        }
    }

    fn approval(&mut self, approval: &Value) {
        if approval.is_null() {
            return;
        }
        let id = text(&approval["approval_id"]);
        match approval["outcome"].as_str() {
            Some("not_needed") => self.say("approval", "not needed"),
            Some("suppressed") => {
                self.say("approval", "nobody was asked: operators had denied it three times");
            }
            _ if approval["by"].is_string() => {
                let scope = approval["scope"].as_str().map(|scope| format!(", {scope}")).unwrap_or_default();
                self.say(
                    "approval",
                    &format!("{} by {}{scope}", text(&approval["decision"]), text(&approval["by"])),
                );
                let waited =
                    approval["waited_ms"].as_u64().map(|ms| format!(" after {}", duration(ms * 1000)));
                self.more(&format!(
                    "“{}”, at {}{}",
                    visible(&text(&approval["reason"])),
                    text(&approval["decided_at"]),
                    waited.unwrap_or(" for an earlier, equal call".into())
                ));
                self.more(&format!("approval {id}"));
            }
            _ => self.say("approval", &format!("asked for, not decided: {id}")),
        }
    }

    fn message(&mut self, name: &str, message: &Value, nothing: &str) {
        if message.is_null() {
            return self.say(name, nothing);
        }
        let outcome = message["outcome"].as_str().map(|word| format!("{word}, ")).unwrap_or_default();
        let bytes = message["bytes"].as_u64().map(|bytes| format!("{bytes} bytes, ")).unwrap_or_default();
        self.say(name, &format!("{outcome}{bytes}record {} at {}", message["seq"], text(&message["time"])));
        match (message["content"]["text"].as_str(), message["content"]["evidence"].as_str()) {
            (Some(content), _) => self.block(content, Some(&message["seq"])),
            (_, Some(gone @ ("destroyed" | "missing"))) => self.more(&format!("evidence: {gone}")),
            _ => {}
        }
    }

    fn steps(&mut self, steps: &[(String, u64)]) {
        if steps.is_empty() {
            return;
        }
        let total = steps.last().map_or(0, |(_, at)| *at);
        self.say("took", &format!("{} in all", duration(total)));
        let (mut before, mut last) = (0, "");
        for (name, at) in steps {
            let spent = duration(at.saturating_sub(before));
            let on = self.output.dim(spent_on(last, name));
            self.more(format!("{spent:>10}  until {name:<24}{on}").trim_end());
            before = *at;
            last = name;
        }
    }
}

/// What the time before an event goes into, in plain words; nothing where it is of no interest.
fn spent_on(last: &str, name: &str) -> &'static str {
    match (last, name) {
        ("approval.requested", "approval.determined") => "an operator was waited for",
        (_, "proposal.canonicalized") => "the arguments were held to schema and scopes",
        (_, "policy.evaluated") => "the rules were asked",
        (_, "permit.validated") => "the server was connected, the permit checked",
        (_, "execution.result") => "the intent was written, the server answered",
        _ => "",
    }
}

/// A line in pieces that fit.
fn broken(line: &str) -> Vec<String> {
    let characters: Vec<char> = line.chars().collect();
    characters.chunks(WIDTH).map(|piece| piece.iter().collect()).collect()
}

/// Microseconds, for people.
pub(super) fn duration(us: u64) -> String {
    match us {
        0..1000 => format!("{us} µs"),
        1000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn list(value: &Value) -> String {
    let items: Vec<String> = value.as_array().into_iter().flatten().map(text).collect();
    if items.is_empty() { "none".into() } else { items.join(", ") }
}

/// A version with its digest cut: `7:a3f8…`.
fn short(version: &str) -> String {
    let cut: String = version.chars().take(12).collect();
    if cut.len() < version.len() { cut + "…" } else { cut }
}

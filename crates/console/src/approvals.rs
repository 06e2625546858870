//! Approvals: what waits, what it would do, and the decision (GOV-901 to GOV-906).

mod card;
mod decision;

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Console;
use crate::admission::LoggedIn;
use crate::desk::{Refused, text};
use crate::page::{Frame, rendered};
use crate::session::Session;
pub(crate) use card::Card;
pub(crate) use decision::{approve, deny};

/// Cards shown at once; more are counted.
const MOST_CARDS: usize = 20;
/// Decided ones shown below them.
const MOST_SETTLED: usize = 12;

/// What waits, and what was decided of late.
struct Inbox {
    cards: Vec<Card>,
    /// How many wait besides.
    more: usize,
    settled: Vec<Card>,
}

#[derive(Template)]
#[template(path = "approvals.html")]
struct ApprovalsPage {
    frame: Frame,
    inbox: Inbox,
    /// The one that was just decided.
    decided: Option<Card>,
}

#[derive(Template)]
#[template(path = "inbox.html")]
struct InboxPart {
    frame: Frame,
    inbox: Inbox,
}

#[derive(Template)]
#[template(path = "approval.html")]
struct ApprovalPage {
    frame: Frame,
    card: Card,
}

#[derive(Template)]
#[template(path = "approval_part.html")]
struct ApprovalPart {
    frame: Frame,
    card: Card,
}

#[derive(Template)]
#[template(path = "count.html")]
struct CountPart {
    waiting: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Shown {
    decided: String,
}

/// Everything that waits.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    LoggedIn(session): LoggedIn,
    Query(shown): Query<Shown>,
) -> Response {
    let frame = console.frame(&session, "/approvals").await;
    let inbox = match console.inbox(&session).await {
        Ok(inbox) => inbox,
        Err(refused) => return refused.page(frame),
    };
    let decided = match shown.decided.as_str() {
        "" => None,
        id => console.card(&session, id).await.ok(),
    };
    rendered(&ApprovalsPage { frame, inbox, decided })
}

/// The part of it that changes.
pub(crate) async fn inbox(State(console): State<Arc<Console>>, LoggedIn(session): LoggedIn) -> Response {
    let frame = Frame::of(&session, "/approvals");
    match console.inbox(&session).await {
        Ok(inbox) => rendered(&InboxPart { frame, inbox }),
        Err(refused) => refused.page(frame),
    }
}

/// How many wait, for the menu.
pub(crate) async fn count(State(console): State<Arc<Console>>, LoggedIn(session): LoggedIn) -> Response {
    rendered(&CountPart { waiting: console.waiting(&session).await })
}

/// One of them, as a link in a message leads to it (GOV-903).
pub(crate) async fn one(
    State(console): State<Arc<Console>>,
    LoggedIn(session): LoggedIn,
    Path(id): Path<String>,
) -> Response {
    let frame = console.frame(&session, "/approvals").await;
    match console.card(&session, &id).await {
        Ok(card) => rendered(&ApprovalPage { frame, card }),
        Err(refused) => not_known(&refused, frame),
    }
}

/// The part of it that changes.
pub(crate) async fn part(
    State(console): State<Arc<Console>>,
    LoggedIn(session): LoggedIn,
    Path(id): Path<String>,
) -> Response {
    let frame = Frame::of(&session, "/approvals");
    match console.card(&session, &id).await {
        Ok(card) => rendered(&ApprovalPart { frame, card }),
        Err(refused) => not_known(&refused, frame),
    }
}

/// An id that is none and an id that is unknown are the same to who follows a link.
fn not_known(refused: &Refused, frame: Frame) -> Response {
    match refused.status {
        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => {
            let message =
                "There is no such approval. It may be from before this gateway was set up anew.".to_owned();
            Refused { status: StatusCode::NOT_FOUND, message, unsigned: None }.page(frame)
        }
        _ => refused.page(frame),
    }
}

impl Console {
    /// How many calls wait for an operator.
    pub(crate) async fn waiting(&self, session: &Session) -> u64 {
        let args = json!({"status": "pending", "limit": 1});
        self.ask(session, "approvals_list", args).await.map_or(0, |answer| answer.total())
    }

    /// One approval, to be shown.
    async fn card(&self, session: &Session, id: &str) -> Result<Card, Refused> {
        let answer = self.ask(session, "approvals_get", json!({"approval_id": id})).await?;
        Ok(Card::new(&answer.data, session.operator.name()))
    }

    async fn inbox(&self, session: &Session) -> Result<Inbox, Refused> {
        let mut rows: Vec<Value> = Vec::new();
        loop {
            let args = json!({"limit": 500, "offset": rows.len()});
            let answer = self.ask(session, "approvals_list", args).await?;
            let (total, before) = (answer.total(), rows.len());
            rows.extend_from_slice(answer.rows());
            if rows.len() as u64 >= total || rows.len() == before {
                break;
            }
        }
        // Who has waited longest is first; what was asked for last is the first of those decided.
        rows.sort_by_cached_key(|row| text(&row["requested_at"]));
        let (pending, settled): (Vec<Value>, Vec<Value>) =
            rows.into_iter().partition(|row| row["status"] == "pending");
        let more = pending.len().saturating_sub(MOST_CARDS);
        let cards = self.cards(session, pending.iter().take(MOST_CARDS)).await;
        let settled = self.cards(session, settled.iter().rev().take(MOST_SETTLED)).await;
        Ok(Inbox { cards, more, settled })
    }

    async fn cards(&self, session: &Session, rows: impl Iterator<Item = &Value>) -> Vec<Card> {
        let mut cards = Vec::new();
        for row in rows {
            // One that is gone by now is not worth a word.
            cards.extend(self.card(session, &text(&row["approval_id"])).await.ok());
        }
        cards
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORPUS: &str = include_str!("../../gauntlet/corpus/sanitiser.jsonl");

    /// A page about an approval in which every text that others wrote is `text`.
    fn page_with(text: &str) -> String {
        let approval = json!({
            "approval_id": "0", "status": "pending", "tool": text, "requested_by": text, "risk_level": "low",
            "decisions": [{"by": text, "at": text, "reason": text}],
            "presented": {
                "arguments": {text: text}, "bindings": [text], "classes": [text], "scopes": [text], "credentials": [text],
                "policies": [text], "server": {"justification": text},
            },
        });
        let frame = Frame {
            operator: "alice".into(),
            csrf: "token".into(),
            here: "/approvals",
            version: "v",
            waiting: 1,
            alarms: Vec::new(),
        };
        ApprovalPart { frame, card: Card::new(&approval, "bob") }.render().unwrap()
    }

    #[test]
    fn whatever_others_wrote_is_text() {
        let tags = |page: &str| page.matches('<').count() - 2 * page.matches("<mark class=").count();
        let harmless = tags(&page_with("x"));
        let attacks = CORPUS.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut texts: Vec<String> =
            attacks.map(|case| text(&case["in"])).filter(|text| !text.is_empty()).collect();
        assert!(texts.len() > 20, "the corpus is elsewhere: {}", texts.len());
        texts.extend(
            [
                "<script>alert(1)</script>",
                "\"><img src=x onerror=alert(1)>",
                "' onmouseover='x",
                "</pre><form action=//e>",
                "<!--",
                "]]>",
            ]
            .map(ToOwned::to_owned),
        );
        for attack in texts {
            let page = page_with(&attack);
            assert_eq!(tags(&page), harmless, "{attack:?}");
            assert_eq!(page.matches("<form").count(), page_with("x").matches("<form").count());
        }
    }

    #[test]
    fn no_template_says_that_text_is_safe() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        let mut seen = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let template = std::fs::read_to_string(file.unwrap().path()).unwrap();
            seen += 1;
            for word in [
                "|safe",
                "| safe",
                "autoescape",
                "escape(\"none\")",
                "<style",
                " style=",
                "onclick",
                "javascript:",
            ] {
                assert!(!template.contains(word), "{word}");
            }
            assert_eq!(
                template.matches("<script").count(),
                template.matches("<script src=\"/assets/").count()
            );
        }
        assert!(seen > 10);
    }
}

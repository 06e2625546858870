//! Deciding: the forms of a card, and the second question where one is asked (GOV-902).

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use serde::Deserialize;
use serde_json::json;

use super::Card;
use crate::Console;
use crate::admission::Signed;
use crate::page::{Frame, rendered};

/// The form with which a card is approved.
#[derive(Debug, Deserialize)]
pub(crate) struct Approving {
    scope: String,
    reason: String,
    /// The digest of what was on the page: what is decided is what was seen.
    seen: String,
    /// Set by the second form, where one is needed.
    #[serde(default)]
    sure: String,
    /// Where the card was: `card` for its own page.
    #[serde(default)]
    from: String,
}

/// The form with which it is denied.
#[derive(Debug, Deserialize)]
pub(crate) struct Denying {
    reason: String,
    #[serde(default)]
    from: String,
}

#[derive(Template)]
#[template(path = "sure.html")]
struct SurePage {
    frame: Frame,
    card: Card,
    scope: String,
    covers: String,
    reason: String,
    from: String,
}

/// Approves, or asks once more.
pub(crate) async fn approve(
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
    Signed { session, form }: Signed<Approving>,
) -> Response {
    let frame = console.frame(&session, "/approvals").await;
    let card = match console.card(&session, &id).await {
        Ok(card) => card,
        Err(refused) => return super::not_known(&refused, frame),
    };
    if card.is_pending() && card.careful && form.sure != "yes" {
        let covers = card.offers.iter().find(|offer| offer.scope == form.scope);
        let covers = covers.map(|offer| offer.covers.clone()).unwrap_or_default();
        let Approving { scope, reason, from, .. } = form;
        return rendered(&SurePage { frame, card, scope, covers, reason, from });
    }
    let args = json!({
        "approval_id": id, "scope": form.scope, "presented_sha256": form.seen, "confirm": true, "reason": form.reason,
    });
    match console.ask(&session, "approvals_approve", args).await {
        Ok(_) => back(&id, &form.from),
        Err(refused) => refused.page(frame),
    }
}

/// Denies.
pub(crate) async fn deny(
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
    Signed { session, form }: Signed<Denying>,
) -> Response {
    let frame = console.frame(&session, "/approvals").await;
    let args = json!({"approval_id": id, "confirm": true, "reason": form.reason});
    match console.ask(&session, "approvals_reject", args).await {
        Ok(_) => back(&id, &form.from),
        Err(refused) => refused.page(frame),
    }
}

/// To where the card was. The id was accepted by then, so it is one.
fn back(id: &str, from: &str) -> Response {
    let path = if from == "card" { format!("/approvals/{id}") } else { format!("/approvals?decided={id}") };
    Redirect::to(&path).into_response()
}

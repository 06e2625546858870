//! Change events of records servers, delivered to us (REC-72, REC-73).

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use portcullis_audit::{Event, EventName};
use portcullis_core::Actor;
use portcullis_core::error::one_line;
use portcullis_upstream::records::hooks::{Delivery, MOST_BYTES, Taken};
use serde_json::json;

use super::{Reply, plain, rpc};
use crate::edge::Edge;

/// Where addresses for deliveries begin.
pub(super) const PREFIX: &str = "/records/";

impl Edge {
    /// One delivery. What is not believed is told no more than its status.
    pub(super) async fn delivered(&self, request: Request<Incoming>) -> Reply {
        let (parts, body) = request.into_parts();
        let place = parts.uri.path().strip_prefix(PREFIX).and_then(|place| place.split_once('/'));
        let Some((server, token)) = place.filter(|(_, token)| !token.contains('/')) else {
            return plain(StatusCode::NOT_FOUND, "not found");
        };
        if parts.method != Method::POST {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "deliveries are posted");
        }
        let Ok(body) = Limited::new(body, MOST_BYTES).collect().await else {
            return plain(StatusCode::PAYLOAD_TOO_LARGE, "too large");
        };
        let body = body.to_bytes();
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let delivery = Delivery {
            id: header("webhook-id"),
            timestamp: header("webhook-timestamp"),
            signature: header("webhook-signature"),
            body: &body,
        };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or(0);
        match self.hooks.take(server, token, delivery, now).await {
            Taken::Challenge(challenge) => {
                rpc(StatusCode::OK, json!({"challenge": challenge}).to_string().into_bytes())
            }
            Taken::New(event) => {
                let data = json!({
                    "server": server, "stream": event.stream.as_deref().map(one_line), "type": event.kind,
                    "webhook_id": one_line(&event.webhook_id),
                });
                let received = Event::new(EventName::RecordsEventReceived, &Actor::system()).data(data);
                let _ = self.lifecycle.log.append(vec![received]);
                if event.kind == "pdpp.grant.revoked" {
                    self.lifecycle.alarms.without_grant(server, "grant_revoked");
                }
                plain(StatusCode::OK, "received")
            }
            Taken::Again => plain(StatusCode::OK, "received before"),
            Taken::Unknown => plain(StatusCode::NO_CONTENT, ""),
            Taken::Refused(status) => {
                plain(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST), "refused")
            }
        }
    }
}

//! Tools of the gateway itself that an agent may be shown beside those of servers (ADM-3). What stands behind them is not for
//! the edge to know; it only asks whose call it is.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use portcullis_core::Principal;
use serde_json::value::RawValue;

use super::{Answer, Asked, Edge, Era, Params, Sender};

/// All their names begin so; nothing of a server is ever called so (ADM-14).
const PREFIX: &str = "portcullis_";

/// What a call of such a tool comes to: a result, or nothing where there is no such tool for this caller.
pub type OwnCall<'c> = Pin<Box<dyn Future<Output = Option<String>> + Send + 'c>>;

/// The gateway's own tools, as far as each agent sees them.
pub trait OwnTools: std::fmt::Debug + Send + Sync {
    /// The definitions that an agent is shown, as JSON.
    fn shown(&self, principal: &Principal) -> Vec<String>;

    /// Calls one.
    fn call<'c>(&'c self, principal: &'c Principal, name: &'c str, arguments: &'c RawValue) -> OwnCall<'c>;
}

impl Edge {
    /// Has agents be shown these, once: whoever puts a gateway together says so before anybody is served.
    pub fn offer(&self, own: Arc<dyn OwnTools>) {
        let _ = self.own.set(own);
    }

    pub(super) fn own_tools_of(&self, sender: &Sender) -> Vec<String> {
        let principal = sender.conversation.session().principal();
        self.own.get().map(|own| own.shown(principal)).unwrap_or_default()
    }

    /// The answer of a tool of ours; `None` if this is a call of none, which then is unknown like every other.
    pub(super) async fn own_answer(&self, sender: &Sender, asked: &Asked<'_>) -> Option<Answer> {
        let own = self.own.get()?;
        // Nearly every call is of a server's tool, and is not read twice.
        let params = asked.params.filter(|raw| asked.method == "tools/call" && raw.get().contains(PREFIX))?;
        let params = Params::read(params).ok()?;
        let name = params.name.filter(|name| name.starts_with(PREFIX))?;
        let none = RawValue::from_string("{}".into()).expect("an object");
        let arguments = params.arguments.unwrap_or(&none);
        let session = sender.conversation.session();
        let mut result = own.call(session.principal(), &name, arguments).await?;
        if sender.era() == Era::Modern {
            result.truncate(result.len() - 1);
            result.push_str(",\"resultType\":\"complete\"}");
        }
        Some(Answer::Result(result.into()))
    }
}

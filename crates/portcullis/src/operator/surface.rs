//! The admin tools as they are: one call by name, or all of them over MCP (ADM-2).

use portcullis_admin::mcp::{AdminMcp, Exposure};
use portcullis_admin::{Actor, Channel, Envelope, Invoker};
use portcullis_core::ErrorCode;
use portcullis_governance::operator::OperatorProof;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Answer, Request};
use crate::failure::Failure;

pub(super) async fn perform(invoker: &Invoker, operator: &OperatorProof, request: &Request) -> Answer {
    match request {
        Request::AdminCall { tool, args } => {
            let actor = Actor::operator_here(operator.clone());
            let raw = RawValue::from_string(args.clone())
                .map_err(|_| Failure::field("json", "the arguments are not JSON"))?;
            Ok(said(&invoker.call(tool, &raw, Some(&actor), Channel::Operator).await))
        }
        Request::AdminMcp { message, passthrough } => {
            let exposure = if *passthrough { Exposure::Passthrough } else { Exposure::Gateway };
            let server = AdminMcp::new(invoker.clone(), exposure, env!("CARGO_PKG_VERSION"));
            // A model speaks here, whoever's it is: files of this machine are not for it to name.
            Ok(json!(server.answer(&Actor::operator(operator.clone()), message.as_bytes()).await))
        }
        other => Err(Failure::new(ErrorCode::Internal, format!("{other:?} names no tool"))),
    }
}

/// An envelope as its own bytes, so that every surface answers the same.
fn said(envelope: &Envelope) -> Value {
    json!({"envelope": envelope.to_json(), "exit": envelope.exit_code()})
}

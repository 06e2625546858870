//! `portcullis_audit_*`.

use crate::args::Integer;
use crate::error::AdminError;
use crate::registry::Module;
use crate::reply::Reply;
use crate::services::Verification;
use crate::tool::read_tool;
use crate::{Cx, args};

/// The number of a record.
type Seq = Integer<0, 9_007_199_254_740_991>;

args! {
    pub(crate) struct Verify { from: Option<Seq>, to: Option<Seq> }
}

pub(super) fn module() -> Module {
    Module {
        name: "infrastructure/audit",
        tools: vec![read_tool("audit", "verify", "Check the audit log and its invariants.", verify)],
    }
}

async fn verify(cx: Cx, args: Verify) -> Result<Reply<Verification>, AdminError> {
    let number = |seq: Seq| seq.0.unsigned_abs();
    let (from, to) = (args.from.map_or(0, number), args.to.map(number));
    if to.is_some_and(|to| to < from) {
        return Err(AdminError::argument("from", "must not be after to"));
    }
    Ok(Reply::ok(cx.audit().verify(from, to).await?))
}

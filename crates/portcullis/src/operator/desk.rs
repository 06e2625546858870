//! Where operators are served: who asks is recognised, then one request is carried out.

use std::sync::Arc;

use portcullis_admin::Invoker;
use portcullis_admin::agents::AgentTools;
use portcullis_core::ErrorCode;
use portcullis_gateway::control::{Claimant, Credential as ShownCredential};
use portcullis_gateway::edge::Edge;
use portcullis_gateway::{Control, Gateway};
use portcullis_governance::operator::{Method, OperatorProof};

use super::door::Door;
use super::request::Behind;
use super::{Answer, Request, acts, captures, looks, surface};
use crate::failure::Failure;

/// Where operators are served: the control plane, and the one door to its operations.
pub(crate) struct Desk {
    pub(crate) control: Arc<Control>,
    pub(crate) invoker: Invoker,
    pub(super) edge: Arc<Edge>,
}

impl Desk {
    pub(crate) fn of(gateway: &Gateway) -> Result<Self, Failure> {
        let control = gateway.control.clone();
        let invoker = Invoker::new(control.clone())
            .map_err(|fault| Failure::new(ErrorCode::Internal, fault.to_string()))?;
        gateway.edge.offer(Arc::new(AgentTools::new(invoker.clone())));
        Ok(Self { control, invoker, edge: gateway.edge.clone() })
    }

    /// Carries out one request of this very process, as every other.
    pub(crate) async fn ask(&self, request: &Request) -> Answer {
        authorised(self, Method::Local, request, None).await
    }
}

/// Carries out one request, if who asks may.
pub(super) async fn authorised(
    desk: &Desk,
    channel: Method,
    request: &Request,
    credential: Option<(String, ShownCredential)>,
) -> Answer {
    let proof = if request.changes_something() {
        let claimant = Claimant { channel, user: user_name(), credential };
        let enrolling = matches!(
            request,
            Request::OperatorEnrol { .. } | Request::OperatorEnrolKey { .. } | Request::OperatorInvite { .. }
        );
        desk.control.authenticate(claimant, enrolling).await?
    } else {
        OperatorProof::authenticated(user_name(), channel, desk.control.separation())
    };
    perform(desk, &proof, request).await
}

/// Carries out one request, through the tool that it is. Boxed: whoever waits for this is large enough.
async fn perform(desk: &Desk, operator: &OperatorProof, request: &Request) -> Answer {
    match request.behind() {
        Behind::Look(tool) => Box::pin(looks::perform(&Door::to(tool, desk, operator), request)).await,
        Behind::Act(tool) => Box::pin(acts::perform(&Door::to(tool, desk, operator), request)).await,
        Behind::Named(_) | Behind::Surface => {
            Box::pin(surface::perform(&desk.invoker, operator, request)).await
        }
        Behind::Capture => Box::pin(captures::perform(&Door::to("", desk, operator), request)).await,
    }
}

/// Who the operator is, for the record: the login name, else the uid.
pub(crate) fn user_name() -> String {
    let uid = rustix::process::getuid().as_raw();
    let name = std::fs::read_to_string("/etc/passwd").ok().and_then(|passwd| {
        let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(&uid.to_string()))?;
        line.split(':').next().map(ToOwned::to_owned)
    });
    name.unwrap_or_else(|| format!("uid-{uid}"))
}

//! Approvals given in the step that accepts a declaration (GOV-1404).

use portcullis_core::{ErrorCode, Principal};
use portcullis_governance::accepted::AcceptedDeclaration;
use portcullis_governance::approval::{Ahead, GivenAhead};
use portcullis_governance::operator::OperatorProof;
use portcullis_governance::policy::Policy;
use portcullis_governance::record::RegistrationRecord;
use serde::{Deserialize, Serialize};

use super::{Control, ControlError};

/// What is approved while a declaration is accepted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GrantAhead {
    /// Which tools.
    pub which: Ahead,
    /// For which agent; for those that prove nothing, if none is named.
    #[serde(default)]
    pub agent: Option<String>,
}

impl Control {
    /// What is given; refused if policy lets nothing of it be given.
    pub(super) fn give_ahead(
        &self,
        operator: &OperatorProof,
        asked: Option<&GrantAhead>,
        accepted: (&AcceptedDeclaration, &RegistrationRecord),
        policy: &Policy,
        reason: &str,
    ) -> Result<GivenAhead, ControlError> {
        let Some(asked) = asked else { return Ok(GivenAhead::default()) };
        let agent = match &asked.agent {
            Some(name) => {
                Principal::agent(name).map_err(|error| ControlError::field("grant-to", error.to_string()))?
            }
            None => self.options.principal.clone(),
        };
        // GOV-905
        if agent.name() == operator.name() {
            let message = format!("{} would approve its own calls; another operator must", operator.name());
            return Err(ControlError::new(ErrorCode::Conflict, message));
        }
        let now = self.clock.now();
        let ahead = GivenAhead::new(asked.which, accepted, &agent, policy, (operator, reason), now);
        if ahead.given.is_empty() && !ahead.forbidden.is_empty() {
            let message = format!(
                "policy wants {} asked about, so nothing can be granted ahead; accept without --grant",
                ahead.forbidden.join(", ")
            );
            return Err(ControlError {
                field: Some("grant".into()),
                ..ControlError::new(ErrorCode::PolicyDenied, message)
            });
        }
        Ok(ahead)
    }

    /// Puts into the book what is durable.
    pub(super) fn enter_ahead(&self, ahead: GivenAhead) {
        for (approval, view) in ahead.given {
            self.book.enter(approval, &view);
        }
    }
}

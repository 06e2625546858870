//! Whether two operators are two people, as far as a gateway can tell (ADM-54, GOV-905).
//!
//! Who enrols another chooses its passphrase, and could be both. So an operator counts as the same as whoever enrolled it, and
//! that one as whoever enrolled it in turn, until somebody says otherwise: an operator who is not one of them vouches for it,
//! or the configuration names it a founder. The configuration is not written over the operators' channel; who can change it
//! can turn four eyes off besides.

use std::collections::BTreeSet;

use portcullis_audit::{Event, EventName};
use portcullis_core::ErrorCode;
use portcullis_governance::operator::OperatorProof;
use serde_json::json;

use super::operators::Enrolled;
use super::{Control, ControlError};

impl Control {
    /// Whether two operators count as two.
    pub fn are_two(&self, one: &str, other: &str) -> bool {
        self.origin(one) != self.origin(other)
    }

    /// How many of those who are enrolled count.
    pub fn independent_operators(&self) -> usize {
        let origins: BTreeSet<String> =
            self.operators().iter().map(|enrolled| self.origin(&enrolled.name)).collect();
        origins.len()
    }

    /// An operator who is neither of them says that this one is somebody else than who enrolled it.
    pub async fn vouch(&self, operator: &OperatorProof, name: &str) -> Result<Enrolled, ControlError> {
        let _one_at_a_time = self.state.lock().await;
        let found = self.operators().into_iter().find(|enrolled| enrolled.name == name);
        let Some(mut enrolled) = found else {
            let message = format!("no operator {} is enrolled", portcullis_core::name::printable(name));
            return Err(ControlError::new(ErrorCode::NotFound, message));
        };
        if !self.are_two(operator.name(), name) {
            let message = "this operator counts as you, or as who enrolled you; another has to vouch for it";
            return Err(ControlError::new(ErrorCode::PolicyDenied, message));
        }
        enrolled.vouched_by = Some(operator.name().to_owned());
        let data = json!({"by": operator.name(), "method": "vouched", "operator": enrolled});
        self.commit(operator, vec![Event::new(EventName::OperatorEnrolled, &operator.actor()).data(data)])
            .await?;
        self.operators.replace(enrolled.clone());
        Ok(enrolled)
    }

    /// Whom an operator counts as: the first of those who enrolled one another.
    fn origin(&self, name: &str) -> String {
        let enrolled = self.operators();
        let by = |name: &str| -> Option<String> {
            let found = enrolled.iter().find(|enrolled| enrolled.name == name)?;
            let stands = found.vouched_by.is_some() || self.options.admin.founders.iter().any(|f| f == name);
            found.enrolled_by.clone().filter(|by| !stands && by != name)
        };
        let mut met = vec![name.to_owned()];
        let mut last = name.to_owned();
        while let Some(before) = by(&last) {
            // They enrolled each other: all of them count as one.
            if let Some(begin) = met.iter().position(|one| *one == before) {
                return met.into_iter().skip(begin).min().unwrap_or(before);
            }
            met.push(before.clone());
            last = before;
        }
        last
    }
}

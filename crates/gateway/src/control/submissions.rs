//! Declarations that somebody handed in for a registered server, and those that were accepted before: read, compared,
//! accepted later, or rejected.

use portcullis_audit::{EventName, Role, read};
use portcullis_core::{ErrorCode, ServerIdentity, Sha256Digest};
use portcullis_governance::declaration::rules::{Expectations, check};
use portcullis_governance::declaration::{Declaration, Source};
use portcullis_governance::operator::OperatorProof;
use serde::{Deserialize, Serialize};

use super::kept::{Document, Versioned};
use super::{Control, ControlError};

/// A declaration that was handed in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Submission {
    /// For which server.
    pub server_id: String,
    /// Which of the server's, from 1.
    pub number: u64,
    /// Its text.
    pub declaration: String,
    /// `submitted`, `accepted` or `rejected`.
    pub state: String,
    /// What is wrong with it, as far as that can be told without looking at the server.
    pub problems: Vec<String>,
    /// Who handed it in.
    pub by: String,
}

impl Document for Submission {
    const KIND: &'static str = "submission";

    fn id(&self) -> String {
        format!("{}#{}", self.server_id, self.number)
    }
}

impl Submission {
    /// How it is called among a server's declarations.
    pub fn version(&self) -> String {
        format!("s{}", self.number)
    }
}

/// A declaration of a server.
#[derive(Debug, Clone)]
pub struct DeclarationText {
    /// How it is called.
    pub version: String,
    /// `submitted`, `accepted`, `rejected` or `superseded`.
    pub state: String,
    /// Its text.
    pub text: String,
    /// The digest of it.
    pub digest: Sha256Digest,
    /// What is wrong with it.
    pub problems: Vec<String>,
}

impl Control {
    /// What is wrong with a declaration for a registered server, without looking at the server.
    fn problems_of(&self, name: &ServerIdentity, text: &str) -> Result<Vec<String>, ControlError> {
        let world = self.world();
        let entry = world.registry().server(name).ok_or_else(|| ControlError::not_found(name))?;
        let file = "the declaration";
        let declaration = match Declaration::parse(&Source { name: file, text }) {
            Ok(declaration) => declaration,
            Err(rejection) => return Ok(vec![rejection.to_string()]),
        };
        let record = &entry.record;
        let expect = Expectations {
            identity: &record.server_identity,
            version: &record.server_version,
            surface: record.surface,
            pins: &record.artifact_pins,
            home: self.home(),
            protected: &self.options.protected,
            process: record.transport.process(),
        };
        Ok(match check(&declaration, file, &expect) {
            Ok(()) => Vec::new(),
            Err(rejections) => rejections.iter().map(ToString::to_string).collect(),
        })
    }

    /// Takes a declaration in, to be accepted or rejected later. It changes nothing by itself.
    pub async fn submit_declaration(
        &self,
        operator: &OperatorProof,
        name: &ServerIdentity,
        text: &str,
    ) -> Result<Submission, ControlError> {
        let problems = self.problems_of(name, text)?;
        let taken = self.submissions(name).iter().map(|submission| submission.document.number).max();
        let submission = Submission {
            server_id: name.to_string(),
            number: taken.unwrap_or(0) + 1,
            declaration: text.to_owned(),
            state: "submitted".into(),
            problems,
            by: operator.name().to_owned(),
        };
        self.set(operator, &submission, Some(0), Vec::new(), |_| Ok(())).await?;
        Ok(submission)
    }

    fn submissions(&self, name: &ServerIdentity) -> Vec<Versioned<Submission>> {
        let mut all: Vec<Versioned<Submission>> = self.documents();
        all.retain(|submission| submission.document.server_id == name.as_str());
        all
    }

    /// One that was handed in and nobody has decided about.
    pub fn submission(
        &self,
        name: &ServerIdentity,
        version: &str,
    ) -> Result<Versioned<Submission>, ControlError> {
        let found = self.submissions(name).into_iter().find(|found| found.document.version() == version);
        let found = found.ok_or_else(|| {
            let shown = portcullis_core::name::printable(version);
            ControlError::new(
                ErrorCode::NotFound,
                format!("no declaration {shown} was handed in for '{name}'"),
            )
        })?;
        match found.document.state.as_str() {
            "submitted" => Ok(found),
            state => Err(ControlError::new(ErrorCode::Conflict, format!("declaration {version} is {state}"))),
        }
    }

    /// Says what became of one that was handed in.
    pub async fn settle_submission(
        &self,
        operator: &OperatorProof,
        found: Versioned<Submission>,
        state: &str,
    ) -> Result<Submission, ControlError> {
        let submission = Submission { state: state.to_owned(), ..found.document };
        self.set(operator, &submission, Some(found.version), Vec::new(), |_| Ok(())).await?;
        Ok(submission)
    }

    /// A server's declaration: one that was handed in (`s1`), or one that was accepted, by its version or its number.
    pub async fn declaration(
        &self,
        name: &ServerIdentity,
        version: &str,
    ) -> Result<DeclarationText, ControlError> {
        if let Some(found) =
            self.submissions(name).into_iter().find(|found| found.document.version() == version)
        {
            let Submission { declaration, state, problems, .. } = found.document;
            let digest = Sha256Digest::of(declaration.as_bytes());
            return Ok(DeclarationText {
                version: version.to_owned(),
                state,
                text: declaration,
                digest,
                problems,
            });
        }
        let (log, server, wanted) = (self.log.clone(), name.to_string(), version.to_owned());
        let found = tokio::task::spawn_blocking(move || {
            let is = |full: &str| {
                full == wanted || full.split_once(':').is_some_and(|(number, _)| number == wanted)
            };
            let mut found = None;
            for record in read(log.dir()).ok()?.flatten() {
                let is_it = record.event == EventName::DeclarationAccepted
                    && record.data["server"] == server.as_str()
                    && record.data["version"].as_str().is_some_and(is);
                if !is_it {
                    continue;
                }
                let version = record.data["version"].as_str().unwrap_or_default().to_owned();
                let reference =
                    record.evidence.iter().find(|reference| reference.role == Role::Declaration)?;
                found = Some((version, log.evidence(reference, record.proposal).ok()?));
            }
            found
        });
        let found = found.await.ok().flatten();
        let (version, text) = found.ok_or_else(|| {
            let shown = portcullis_core::name::printable(version);
            ControlError::new(ErrorCode::NotFound, format!("server '{name}' never had a declaration {shown}"))
        })?;
        let in_force =
            self.world().registry().server(name).map(|entry| entry.record.declaration_version.to_string());
        let state = if in_force.as_deref() == Some(version.as_str()) { "accepted" } else { "superseded" };
        Ok(DeclarationText {
            digest: Sha256Digest::of(&text),
            text: String::from_utf8_lossy(&text).into_owned(),
            version,
            state: state.to_owned(),
            problems: Vec::new(),
        })
    }
}

//! One call's exact bytes, opened for an operator, beside what a model would be shown of them.
//!
//! What a model saw is no evidence and is not kept. It is made again, by the same gauntlet, from the bytes that are.

use portcullis_audit::Role;
use portcullis_gauntlet::{Args, Gauntlet, Grants, RawResult, screen};
use portcullis_governance::operator::OperatorProof;
use portcullis_governance::registry::ToolEntry;
use serde::Serialize;

use super::replay::args_in;
use super::{Control, ControlError, Piece};

/// The bytes of one call.
#[derive(Debug, Default, Serialize)]
pub struct Opened {
    /// The frame that was sent.
    pub request: Option<Piece>,
    /// What came back, as it came.
    pub response: Option<Piece>,
    /// What the gauntlet lets a model see of it.
    pub shown: Option<String>,
    /// Why nothing is shown, if nothing is.
    pub withheld: Option<String>,
}

impl Control {
    /// Opens what a call sent and got. That it was read, by whom and why, is on record first (AUD-44).
    pub async fn open_call(
        &self,
        operator: &OperatorProof,
        call: &str,
        reason: &str,
    ) -> Result<Opened, ControlError> {
        let story = self.story(call).await?;
        let pieces = self.read_evidence(operator, &story.records_with_evidence(), reason).await?;
        let take = |role: Role| pieces.iter().find(|piece| piece.role == role).cloned();
        let (request, response) = (take(Role::Request), take(Role::Response));
        let mut opened = Opened { request, response, ..Opened::default() };
        let Some(raw) = opened.response.as_ref().and_then(|piece| piece.text.clone()) else {
            return Ok(opened);
        };
        let world = self.world();
        let tool_id = story.what["tool_id"].as_str().unwrap_or_default();
        let entry = world.registry().tools().iter().find(|entry| entry.tool.id().as_str() == tool_id);
        let arguments = take(Role::Canonical).and_then(|piece| args_in(piece.text?.as_bytes()));
        let gauntlet = self.state.lock().await.gauntlet.clone();
        match (entry, arguments) {
            (Some(entry), Some(arguments)) => match shown(&gauntlet, entry, &arguments, raw) {
                Ok(text) => opened.shown = Some(text),
                Err(why) => opened.withheld = Some(why),
            },
            _ => opened.withheld = Some("the tool is not registered any more as it was then".into()),
        }
        Ok(opened)
    }
}

fn shown(gauntlet: &Gauntlet, entry: &ToolEntry, arguments: &str, raw: String) -> Result<String, String> {
    let passed = Args::parse(arguments.as_bytes(), entry.tool.spec().max_request_bytes)
        .and_then(|args| screen(entry.tool.spec(), &Grants::Declared, args))
        .and_then(|screened| gauntlet.finish(screened, RawResult::new(raw.into_bytes().into())));
    let passed = passed.map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(passed.json()).into_owned())
}

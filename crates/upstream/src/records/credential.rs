//! The bearer: where it comes from, and which kinds of it may be used.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use portcullis_core::{Secret, Sha256Digest};

use super::http::{Http, Request};
use super::refusal::Refusal;

/// What an owner's token is refused with.
pub(crate) const OWNER: &str = "owner_credential_refused";

/// A bearer, which cannot be printed.
#[derive(Debug)]
pub(crate) struct Token(Secret<String>);

impl Token {
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0.expose())
    }
}

/// The file that holds the bearer, and what is known of its content.
#[derive(Debug)]
pub(crate) struct Credential {
    file: PathBuf,
    allow_unlabelled: bool,
    /// The digest of the last token that was found to be one of a grant.
    checked: Mutex<Option<Sha256Digest>>,
}

impl Credential {
    pub(crate) fn new(file: PathBuf, allow_unlabelled: bool) -> Self {
        Self { file, allow_unlabelled, checked: Mutex::new(None) }
    }

    /// The bearer, once it is known to be one of a grant: asked of the server for every new content of the file (REC-10).
    pub(crate) async fn usable(&self, http: &Http) -> Result<Token, Refusal> {
        let (token, digest) = self.read()?;
        if *self.checked.lock().unwrap_or_else(PoisonError::into_inner) == Some(digest) {
            return Ok(token);
        }
        let mut request = Request::get(&["v1", "schema"]);
        request.query.push(("view".into(), "compact".into()));
        let answer = http.send(&request, &token).await?;
        if !(200..300).contains(&answer.status) {
            return Err(Refusal::upstream(answer.status, &answer.body));
        }
        let bearer = answer.body.get("bearer").or_else(|| answer.body.pointer("/data/bearer"));
        match bearer
            .map(|bearer| (bearer["token_kind"].as_str().unwrap_or_default(), bearer["scope"].as_str()))
        {
            Some(("client" | "mcp_package", Some("grant"))) => {}
            None if self.allow_unlabelled => {}
            None => {
                let message = "the records server does not say what kind of token this is, so it is not used; `allow_unlabelled_token` would";
                return Err(Refusal::auth(OWNER, message));
            }
            Some(_) => {
                let message = "the credential is not one of a grant; only grant-scoped tokens are used, never an owner's";
                return Err(Refusal::auth(OWNER, message));
            }
        }
        *self.checked.lock().unwrap_or_else(PoisonError::into_inner) = Some(digest);
        Ok(token)
    }

    fn read(&self) -> Result<(Token, Sha256Digest), Refusal> {
        let unusable = |what: &str| {
            Refusal::auth("credential_unavailable", format!("the bearer of the records server {what}"))
        };
        let metadata = fs::metadata(&self.file).map_err(|_| unusable("cannot be read"))?;
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(unusable("is in a file that others can read; give it mode 600"));
        }
        let text = fs::read_to_string(&self.file).map_err(|_| unusable("cannot be read"))?;
        let text = text.trim();
        let plain =
            !text.is_empty() && text.len() <= 8_192 && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !plain {
            return Err(unusable("is not one line of printable characters"));
        }
        Ok((Token(Secret::new(text.to_owned())), Sha256Digest::of(text.as_bytes())))
    }
}

/// Names that say that a credential is one that may not be used (REC-11).
pub fn is_named_like_an_owner(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["owner", "session_cookie", "control-plane", "control_plane", "admin"]
        .iter()
        .any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_owners_away() {
        // REC-11, T-REC-19
        for name in ["owner.token", "PDPP_OWNER_TOKEN", "session_cookie", "control-plane.key", "admin"] {
            assert!(is_named_like_an_owner(name), "{name}");
        }
        assert!(!is_named_like_an_owner("records.grant"));
    }
}

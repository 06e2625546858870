//! What is asked at a token endpoint, and what comes back.

use std::fs::File;
use std::io::Read as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portcullis_governance::broker::grant::{ClientAuthentication, Flow, Grant, Vouched};
use serde_json::Value;
use url::Url;

use super::OAuthError;
use super::dpop::Dpop;
use super::login::Client;
use super::signing::{SigningKey, client_assertion};
use crate::web::{FormAnswer, Web};

/// The longest life that is believed.
const LONGEST: u64 = 10 * 365 * 24 * 60 * 60;

/// How a statement about a client is called that it signed (RFC 7523).
const SIGNED: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// The grant for whom a token speaks.
pub(super) const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// The grant of one token for another (RFC 8693), and what is exchanged for what (SEP-990).
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
/// No token in a file is longer.
const LONGEST_TOKEN: u64 = 64 << 10;

/// Who asks, where, and for what.
#[derive(Debug)]
pub(super) struct Asking<'a> {
    pub(super) endpoint: &'a Url,
    pub(super) issuer: &'a str,
    pub(super) client: &'a Client,
    pub(super) resource: &'a str,
    /// The key that tokens are to be bound to.
    pub(super) dpop: Option<&'a Dpop>,
}

/// What a token endpoint gave.
pub(super) struct Given {
    pub(super) access_token: String,
    pub(super) refresh_token: Option<String>,
    pub(super) expires_at: Option<u64>,
    pub(super) scope: Option<String>,
}

impl Asking<'_> {
    /// One request of RFC 6749, with the resource it is for (RFC 8707).
    pub(super) async fn ask(&self, web: &Web, grant: &[(&str, &str)]) -> Result<Given, OAuthError> {
        let Client { id, secret, key, authentication } = self.client;
        let mut form = grant.to_vec();
        form.push(("resource", self.resource));
        let secret = secret.as_deref().unwrap_or_default();
        let encoded = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let (name, shared) = (encoded(id), encoded(secret));
        let signed;
        let mut basic = None;
        match authentication {
            ClientAuthentication::None => form.push(("client_id", id)),
            ClientAuthentication::ClientSecretBasic => basic = Some((name.as_str(), shared.as_str())),
            ClientAuthentication::ClientSecretPost => {
                form.extend([("client_id", id.as_str()), ("client_secret", secret)]);
            }
            ClientAuthentication::PrivateKeyJwt => {
                let key = SigningKey::from_pem(key.as_deref().unwrap_or_default())?;
                signed = client_assertion(&key, id, self.issuer, now())?;
                form.extend([
                    ("client_id", id.as_str()),
                    ("client_assertion_type", SIGNED),
                    ("client_assertion", &signed),
                ]);
            }
        }
        let mut answer = self.post(web, &form, basic).await?;
        // RFC 9449 section 8: once more, with what it wants to see in the proof.
        let wants_nonce = answer.status == 400 && answer.document["error"] == "use_dpop_nonce";
        if let (true, Some(dpop), Some(nonce)) = (wants_nonce, self.dpop, &answer.nonce)
            && dpop.told(nonce)
        {
            answer = self.post(web, &form, basic).await?;
        }
        if !(200..300).contains(&answer.status) {
            return Err(OAuthError::denied(&answer.document, answer.status));
        }
        given(&answer.document, self.dpop.is_some())
    }

    async fn post(
        &self,
        web: &Web,
        form: &[(&str, &str)],
        basic: Option<(&str, &str)>,
    ) -> Result<FormAnswer, OAuthError> {
        let proof = self.dpop.map(|dpop| dpop.proof("POST", self.endpoint, None)).transpose()?;
        Ok(web.post_form(self.endpoint, form, basic, proof.as_deref()).await?)
    }
}

fn given(document: &Value, bound: bool) -> Result<Given, OAuthError> {
    let text = |name: &str| document[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let kind = document["token_type"].as_str();
    // What was to be bound to a key and is not could be used by whoever finds it.
    let fits = match bound {
        true => kind.is_some_and(|kind| kind.eq_ignore_ascii_case("dpop")),
        false => kind.is_none_or(|kind| kind.eq_ignore_ascii_case("bearer")),
    };
    let access_token = text("access_token").filter(|_| fits).ok_or_else(|| {
        OAuthError::refused(match bound {
            true => "the issuer gave no token that is bound to a key",
            false => "the issuer gave no bearer token",
        })
    })?;
    let expires_in = document["expires_in"].as_u64().map(|seconds| seconds.min(LONGEST));
    Ok(Given {
        access_token,
        refresh_token: text("refresh_token"),
        expires_at: expires_in.map(|seconds| now() + seconds),
        scope: text("scope"),
    })
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// The token that somebody keeps fresh in a file on this machine.
async fn in_the_file(path: &str) -> Result<String, OAuthError> {
    let unusable = || OAuthError::refused("the file with the token cannot be read");
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        File::open(path)?.take(LONGEST_TOKEN).read_to_string(&mut text).map(|_| text)
    });
    let text = read.await.map_err(|_| unusable())?.map_err(|_| unusable())?;
    let token = text.trim();
    let plain = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    plain.then(|| token.to_owned()).ok_or_else(|| OAuthError::refused("the file has no token in it"))
}

/// What an issuer takes for who we are: the token in the file, or what an identity provider gives for it (SEP-990).
pub(super) async fn vouching(vouched: &Vouched, issuer: &str, resource: &str) -> Result<String, OAuthError> {
    let token = in_the_file(&vouched.file).await?;
    let Some(provider) = &vouched.provider else { return Ok(token) };
    let endpoint = Url::parse(&provider.token_endpoint)
        .map_err(|_| OAuthError::refused("the identity provider's token endpoint is no URL"))?;
    let form = [
        ("grant_type", TOKEN_EXCHANGE),
        ("requested_token_type", ID_JAG),
        ("subject_token", token.as_str()),
        ("subject_token_type", ID_TOKEN),
        ("audience", issuer),
        ("resource", resource),
        ("client_id", provider.client_id.as_str()),
    ];
    // An operator named the provider, which may be where the server is not.
    let web = Web::toward(&endpoint).await;
    let FormAnswer { status, document, .. } = web.post_form(&endpoint, &form, None, None).await?;
    if !(200..300).contains(&status) {
        return Err(OAuthError::denied(&document, status));
    }
    let exchanged = document["access_token"].as_str().filter(|_| document["issued_token_type"] == ID_JAG);
    exchanged
        .map(str::to_owned)
        .ok_or_else(|| OAuthError::refused("the identity provider gave nothing that an issuer takes"))
}

/// A grant again, with new tokens. An issuer that rotates refresh tokens gives a new one; one that does not, none.
pub(super) async fn renew(web: &Web, grant: &Grant) -> Result<Grant, OAuthError> {
    let endpoint = Url::parse(&grant.token_endpoint)
        .map_err(|_| OAuthError::refused("the grant's token endpoint is no URL"))?;
    let client = Client {
        id: grant.client_id.clone(),
        secret: grant.client_secret.clone(),
        key: grant.client_key.clone(),
        authentication: grant.client_authentication,
    };
    let dpop = grant.dpop_key.as_deref().map(SigningKey::kept).transpose()?.map(Dpop::new);
    let asking = Asking {
        endpoint: &endpoint,
        issuer: &grant.issuer,
        client: &client,
        resource: &grant.resource,
        dpop: dpop.as_ref(),
    };
    let assertion;
    let mut form = Vec::new();
    match (grant.flow, &grant.refresh_token, &grant.vouched) {
        (_, Some(refresh), _) => {
            form.extend([("grant_type", "refresh_token"), ("refresh_token", refresh.as_str())]);
        }
        (Flow::ClientCredentials, None, _) => form.push(("grant_type", "client_credentials")),
        (Flow::JwtBearer, None, Some(vouched)) => {
            assertion = vouching(vouched, &grant.issuer, &grant.resource).await?;
            form.extend([("grant_type", JWT_BEARER), ("assertion", assertion.as_str())]);
        }
        (Flow::AuthorizationCode | Flow::JwtBearer, None, _) => {
            return Err(OAuthError::refused("the issuer gave nothing to renew the login with"));
        }
    }
    if let Some(scope) = &grant.scope {
        form.push(("scope", scope));
    }
    let given = asking.ask(web, &form).await?;
    Ok(Grant {
        access_token: given.access_token,
        refresh_token: given.refresh_token.or_else(|| grant.refresh_token.clone()),
        expires_at: given.expires_at,
        scope: given.scope.or_else(|| grant.scope.clone()),
        ..grant.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_token_that_should_be_bound_and_is_not_is_refused() {
        // PRO-35, RFC 9449
        let answer = |kind: &str| json!({"access_token": "t", "token_type": kind});
        assert!(given(&answer("DPoP"), true).is_ok() && given(&answer("bearer"), false).is_ok());
        assert!(given(&answer("Bearer"), true).is_err() && given(&answer("DPoP"), false).is_err());
        assert!(given(&json!({"access_token": "t"}), true).is_err());
    }

    #[tokio::test]
    async fn a_file_without_a_token_is_refused_without_being_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let read = async |text: &str| {
            std::fs::write(&path, text).unwrap();
            in_the_file(path.to_str().unwrap()).await
        };
        assert_eq!(read("a.b.c\n").await.unwrap(), "a.b.c");
        for bad in ["", " \n", "hunter2 hunter3", "a\r\nhunter2: x"] {
            assert!(!read(bad).await.unwrap_err().to_string().contains("hunter"), "{bad}");
        }
        assert!(in_the_file("/nowhere/token").await.is_err());
    }
}

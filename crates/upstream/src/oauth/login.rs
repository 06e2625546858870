//! Becoming a client at an issuer, sending somebody there to log in, and taking what comes back.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_governance::broker::grant::{ClientAuthentication, Flow, Grant, Vouched};
use rand::RngExt as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::OAuthError;
use super::discovery::{Discovered, Issuer};
use super::dpop::Dpop;
use super::signing::SigningKey;
use super::tokens::{Asking, Given, JWT_BEARER, vouching};
use crate::web::Web;

/// Who we are at an issuer.
#[derive(Clone)]
pub struct Client {
    /// Our name there.
    pub id: String,
    /// What proves it, if anything does.
    pub secret: Option<String>,
    /// What signs that it is us, as PEM.
    pub key: Option<String>,
    /// How it is shown.
    pub authentication: ClientAuthentication,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What an operator says about who we are.
#[derive(Debug, Default)]
pub struct Known {
    /// A client that somebody registered.
    pub id: Option<String>,
    /// Its secret.
    pub secret: Option<String>,
    /// Its private key, as PEM.
    pub key: Option<String>,
    /// Where a document about us is published.
    pub document: Option<Url>,
}

/// The document about us that an issuer may fetch, to be published at `at` (CIMD).
pub fn client_document(at: &Url, redirects: &[Url]) -> Value {
    json!({
        "client_id": at,
        "client_name": "Portcullis",
        "redirect_uris": redirects,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    })
}

impl Client {
    /// A client that is known, else one by its document, else one that registers itself now.
    pub async fn at(web: &Web, issuer: &Issuer, known: Known, redirect: &Url) -> Result<Self, OAuthError> {
        if let Some(id) = known.id {
            let authentication = match &known.key {
                Some(key) => {
                    signs_as_wanted(issuer, key)?;
                    ClientAuthentication::PrivateKeyJwt
                }
                None => authentication(issuer, known.secret.is_some()),
            };
            return Ok(Self { id, secret: known.secret, key: known.key, authentication });
        }
        if let Some(document) = known.document.filter(|_| issuer.client_id_metadata_document_supported) {
            return Ok(Self {
                id: document.into(),
                secret: None,
                key: None,
                authentication: ClientAuthentication::None,
            });
        }
        let Some(endpoint) = &issuer.registration_endpoint else {
            return Err(OAuthError::refused(
                "the issuer knows no client of ours and lets none register itself; register one there and give its --client-id",
            ));
        };
        let wanted = match authentication(issuer, true) {
            ClientAuthentication::ClientSecretPost => "client_secret_post",
            ClientAuthentication::ClientSecretBasic if !takes(issuer, "none") => "client_secret_basic",
            _ => "none",
        };
        let mut about = client_document(redirect, std::slice::from_ref(redirect));
        if let Some(members) = about.as_object_mut() {
            members.remove("client_id");
        }
        about["token_endpoint_auth_method"] = json!(wanted);
        about["application_type"] = json!("native");
        let (status, document) = web.post_json(endpoint, &about).await?;
        if !(200..300).contains(&status) {
            return Err(OAuthError::denied(&document, status));
        }
        let text = |name: &str| document[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let id = text("client_id").ok_or_else(|| OAuthError::refused("the issuer gave the client no id"))?;
        let secret = text("client_secret");
        let authentication = match (text("token_endpoint_auth_method").as_deref(), &secret) {
            (Some("client_secret_basic"), Some(_)) => ClientAuthentication::ClientSecretBasic,
            (Some("client_secret_post"), Some(_)) => ClientAuthentication::ClientSecretPost,
            (Some("none"), _) | (_, None) => ClientAuthentication::None,
            _ => authentication(issuer, true),
        };
        Ok(Self { id, secret, key: None, authentication })
    }
}

/// A key of a kind that the issuer does not verify with is refused before anything is signed with it.
fn signs_as_wanted(issuer: &Issuer, key: &str) -> Result<(), OAuthError> {
    let algorithm = SigningKey::from_pem(key)?.algorithm();
    match &issuer.token_endpoint_auth_signing_alg_values_supported {
        Some(known) if !known.iter().any(|known| known == algorithm) => Err(OAuthError::refused(format!(
            "the issuer does not take {algorithm}, which is what the client's key signs with"
        ))),
        _ => Ok(()),
    }
}

fn takes(issuer: &Issuer, method: &str) -> bool {
    let methods = issuer.token_endpoint_auth_methods_supported.as_deref();
    methods.is_some_and(|methods| methods.iter().any(|known| known == method))
}

fn authentication(issuer: &Issuer, has_secret: bool) -> ClientAuthentication {
    match issuer.token_endpoint_auth_methods_supported {
        _ if !has_secret => ClientAuthentication::None,
        // RFC 8414: what is not said is the header.
        None => ClientAuthentication::ClientSecretBasic,
        Some(_) if takes(issuer, "client_secret_basic") => ClientAuthentication::ClientSecretBasic,
        Some(_) if takes(issuer, "client_secret_post") => ClientAuthentication::ClientSecretPost,
        Some(_) => ClientAuthentication::None,
    }
}

/// A login under way: where somebody must go, and what must come back.
#[derive(Debug)]
pub struct Login {
    discovered: Discovered,
    client: Client,
    redirect: Url,
    state: String,
    verifier: String,
    scope: Option<String>,
    binding: Option<Binding>,
}

/// The key that a token is to be bound to, and what is kept of it.
#[derive(Debug)]
struct Binding {
    dpop: Dpop,
    kept: String,
}

impl Binding {
    /// One where the server wants it or an operator does, and the issuer can.
    fn wanted(discovered: &Discovered, asked: bool) -> Result<Option<Self>, OAuthError> {
        if !discovered.dpop && !asked {
            return Ok(None);
        }
        let known = discovered.issuer.dpop_signing_alg_values_supported.as_deref().unwrap_or_default();
        if !known.iter().any(|algorithm| algorithm == "ES256") {
            return Err(OAuthError::refused(
                "tokens are to be bound to a key (DPoP), and the issuer does not bind any with ES256",
            ));
        }
        let (key, kept) = SigningKey::made()?;
        Ok(Some(Self { dpop: Dpop::new(key), kept }))
    }
}

impl Login {
    /// Begins a login. An issuer that does not bind codes to who asked for them is not used (PKCE).
    pub fn begin(
        discovered: Discovered,
        client: Client,
        redirect: Url,
        scope: Option<String>,
        dpop: bool,
    ) -> Result<Self, OAuthError> {
        let binding = Binding::wanted(&discovered, dpop)?;
        let methods = discovered.issuer.code_challenge_methods_supported.as_deref().unwrap_or_default();
        if !methods.iter().any(|method| method == "S256") {
            return Err(OAuthError::refused(
                "the issuer does not offer PKCE with S256; codes could be stolen",
            ));
        }
        let mut scope = scope.or_else(|| discovered.scope.clone());
        // What lets us come back without somebody is asked for where it is offered, and only there.
        let offers = |list: &Option<Vec<String>>, word: &str| {
            list.as_deref().is_some_and(|list| list.iter().any(|known| known == word))
        };
        if offers(&discovered.issuer.scopes_supported, "offline_access") {
            let words = scope.get_or_insert_default();
            if !words.split(' ').any(|word| word == "offline_access") {
                *words = format!("{words} offline_access").trim().to_owned();
            }
        }
        let random = || URL_SAFE_NO_PAD.encode(rand::rng().random::<[u8; 32]>());
        Ok(Self { discovered, client, redirect, state: random(), verifier: random(), scope, binding })
    }

    /// Where somebody must go.
    pub fn address(&self) -> Result<Url, OAuthError> {
        let endpoint = self.discovered.issuer.authorization_endpoint.clone();
        let mut url = endpoint.ok_or_else(|| OAuthError::refused("the issuer lets nobody log in"))?;
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()));
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client.id)
            .append_pair("redirect_uri", self.redirect.as_str())
            .append_pair("state", &self.state)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256")
            .append_pair("resource", &self.discovered.resource);
        if let Some(scope) = &self.scope {
            query.append_pair("scope", scope);
        }
        drop(query);
        Ok(url)
    }

    /// Takes what somebody came back with: the address they were sent to.
    pub async fn finish(self, web: &Web, came_back: &Url) -> Result<Grant, OAuthError> {
        let code = self.code(came_back)?;
        let Self {
            discovered: Discovered { resource, issuer, .. },
            client,
            redirect,
            verifier,
            scope,
            binding,
            ..
        } = self;
        let asking = asking(&issuer, &client, &resource, binding.as_ref());
        let form = [
            ("grant_type", "authorization_code"),
            ("code", &code),
            ("redirect_uri", redirect.as_str()),
            ("code_verifier", &verifier),
        ];
        let given = asking.ask(web, &form).await?;
        let known = (resource, issuer, client, binding);
        Ok(granted(given, known, Flow::AuthorizationCode, None, scope))
    }

    /// The code, if this is the answer to this login, from this issuer (RFC 9207).
    fn code(&self, came_back: &Url) -> Result<String, OAuthError> {
        let mut found: [Option<String>; 4] = Default::default();
        for (name, value) in came_back.query_pairs() {
            let place = match &*name {
                "code" => 0,
                "state" => 1,
                "iss" => 2,
                "error" => 3,
                _ => continue,
            };
            if found[place].replace(value.into_owned()).is_some() {
                return Err(OAuthError::refused("the answer says a thing twice"));
            }
        }
        let [code, state, iss, error] = found;
        if state.as_deref() != Some(&self.state) {
            return Err(OAuthError::refused("the answer is not one to this login; begin again"));
        }
        let issuer = &self.discovered.issuer;
        match iss {
            Some(iss) if iss != issuer.issuer => {
                return Err(OAuthError::refused("the answer is another issuer's; nothing was sent to it"));
            }
            None if issuer.authorization_response_iss_parameter_supported => {
                return Err(OAuthError::refused("the answer does not say which issuer it is from"));
            }
            _ => {}
        }
        if let Some(error) = error {
            return Err(OAuthError::Denied(portcullis_core::name::printable(&error)));
        }
        code.ok_or_else(|| OAuthError::refused("the answer has no code"))
    }
}

/// A grant for the gateway itself: nobody logs in.
pub async fn client_credentials(
    web: &Web,
    discovered: Discovered,
    client: Client,
    scope: Option<String>,
    dpop: bool,
) -> Result<Grant, OAuthError> {
    let binding = Binding::wanted(&discovered, dpop)?;
    let Discovered { resource, scope: wanted, issuer, .. } = discovered;
    if client.secret.is_none() && client.key.is_none() {
        return Err(OAuthError::refused(
            "a client without a secret or a key cannot ask for itself; give --client-secret-fd or --client-key-fd",
        ));
    }
    let scope = scope.or(wanted);
    let mut form = vec![("grant_type", "client_credentials")];
    if let Some(scope) = &scope {
        form.push(("scope", scope));
    }
    let given = asking(&issuer, &client, &resource, binding.as_ref()).ask(web, &form).await?;
    Ok(granted(given, (resource, issuer, client, binding), Flow::ClientCredentials, None, scope))
}

/// A grant for whom a token speaks that somebody keeps fresh in a file: a workload's, or a person's at an identity
/// provider. What the issuer refuses is neither asked again nor asked for in another way.
pub async fn vouched(
    web: &Web,
    discovered: Discovered,
    client: Client,
    scope: Option<String>,
    by: Vouched,
    dpop: bool,
) -> Result<Grant, OAuthError> {
    let binding = Binding::wanted(&discovered, dpop)?;
    let Discovered { resource, scope: wanted, issuer, .. } = discovered;
    let assertion = vouching(&by, &issuer.issuer, &resource).await?;
    let scope = scope.or(wanted);
    let mut form = vec![("grant_type", JWT_BEARER), ("assertion", &assertion)];
    if let Some(scope) = &scope {
        form.push(("scope", scope));
    }
    let given = asking(&issuer, &client, &resource, binding.as_ref()).ask(web, &form).await?;
    Ok(granted(given, (resource, issuer, client, binding), Flow::JwtBearer, Some(by), scope))
}

fn asking<'a>(
    issuer: &'a Issuer,
    client: &'a Client,
    resource: &'a str,
    binding: Option<&'a Binding>,
) -> Asking<'a> {
    Asking {
        endpoint: &issuer.token_endpoint,
        issuer: &issuer.issuer,
        client,
        resource,
        dpop: binding.map(|binding| &binding.dpop),
    }
}

fn granted(
    given: Given,
    (resource, issuer, client, binding): (String, Issuer, Client, Option<Binding>),
    flow: Flow,
    vouched: Option<Vouched>,
    scope: Option<String>,
) -> Grant {
    Grant {
        resource,
        issuer: issuer.issuer,
        token_endpoint: issuer.token_endpoint.into(),
        client_id: client.id,
        client_secret: client.secret,
        client_key: client.key,
        client_authentication: client.authentication,
        flow,
        vouched,
        dpop_key: binding.map(|binding| binding.kept),
        scope: given.scope.or(scope),
        access_token: given.access_token,
        refresh_token: given.refresh_token,
        expires_at: given.expires_at,
    }
}

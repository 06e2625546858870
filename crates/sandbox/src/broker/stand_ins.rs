//! What stands in for credentials in one process: placeholders in its environment, and an authority that it alone trusts,
//! so that its private conversations with one host can be opened to put the value in (SBX-52).

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::{FOLDER, Format, names};
use crate::profile::{EgressScope, Profile, Via};

/// Where the authority's certificate is inside, alone and with the system's.
pub(crate) const OWN_BUNDLE: &str = "/etc/ssl/certs/portcullis.pem";
pub(crate) const WHOLE_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// All stand-ins of one process.
#[derive(Default)]
pub(crate) struct StandIns {
    pub(crate) each: Vec<StandIn>,
    /// What the environment has besides: where files are, and text that stands for nothing.
    inert: BTreeMap<String, String>,
    authority: Option<CertifiedIssuer<'static, KeyPair>>,
}

/// What stands in for one credential.
#[derive(Debug, Clone)]
pub(crate) struct StandIn {
    pub(crate) class: String,
    pub(crate) name: String,
    pub(crate) placeholder: String,
    /// The host that the value may go to.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Where in a request it is replaced.
    pub(crate) within: Vec<String>,
}

impl std::fmt::Debug for StandIns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StandIns").finish_non_exhaustive()
    }
}

impl StandIns {
    /// Fresh ones for a process of this profile.
    pub(crate) fn of(profile: &Profile) -> io::Result<Self> {
        let mut each = Vec::new();
        for secret in profile.secrets.iter().filter(|secret| secret.via == Via::Proxy) {
            let toward = |scope: &&EgressScope| Some(&scope.scope) == secret.toward.as_ref();
            let Some(scope) = profile.egress.iter().find(toward) else {
                return Err(io::Error::other(format!("the credential {} leads nowhere", secret.name)));
            };
            let format = match &secret.format {
                Some(format) => Format::parse(format).map_err(io::Error::other)?,
                None => Format::default(),
            };
            each.push(StandIn {
                class: secret.class.clone(),
                name: secret.name.clone(),
                placeholder: format.fill()?,
                host: scope.host.clone(),
                port: scope.port,
                within: secret.within.clone(),
            });
        }
        let files = names(profile).map(|name| (format!("{name}_FILE"), format!("{FOLDER}/{name}")));
        let mut inert: BTreeMap<String, String> = files.collect();
        // A process that is only looked at has no value, and may not start without one.
        for secret in profile.secrets.iter().filter(|secret| secret.via == Via::Env) {
            inert.insert(secret.name.clone(), Format::default().fill()?);
        }
        let authority = if each.is_empty() { None } else { Some(authority()?) };
        Ok(Self { each, inert, authority })
    }

    /// What is added to the environment.
    pub(crate) fn variables(&self) -> BTreeMap<String, String> {
        let placeholders = self.each.iter().map(|one| (one.name.clone(), one.placeholder.clone()));
        let mut variables: BTreeMap<String, String> = placeholders.collect();
        variables.extend(self.inert.clone());
        if self.authority.is_some() {
            for (name, file) in [
                ("SSL_CERT_FILE", WHOLE_BUNDLE),
                ("REQUESTS_CA_BUNDLE", WHOLE_BUNDLE),
                ("NODE_EXTRA_CA_CERTS", OWN_BUNDLE),
            ] {
                variables.insert(name.into(), file.into());
            }
        }
        variables
    }

    /// The authority's certificate. Its key stays here.
    pub(crate) fn certificate(&self) -> Option<String> {
        self.authority.as_ref().map(CertifiedIssuer::pem)
    }

    /// Those whose value may go to a host.
    pub(crate) fn toward<'a>(&'a self, scope: &EgressScope) -> impl Iterator<Item = &'a StandIn> {
        let (host, port) = (scope.host.clone(), scope.port);
        self.each.iter().filter(move |one| one.host == host && one.port == port)
    }

    /// How we speak to the process in the name of a host.
    pub(crate) fn speaking_as(&self, host: &str) -> io::Result<Option<Arc<ServerConfig>>> {
        let Some(authority) = &self.authority else { return Ok(None) };
        let params = CertificateParams::new(vec![host.to_owned()]).map_err(io::Error::other)?;
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.signed_by(&key, authority).map_err(io::Error::other)?;
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .map_err(io::Error::other)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Some(Arc::new(config)))
    }
}

fn authority() -> io::Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, "Portcullis, for one process");
    CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(io::Error::other)?)
        .map_err(io::Error::other)
}

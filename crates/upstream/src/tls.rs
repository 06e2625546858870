//! TLS towards servers: the machine's own roots, the server's name, and the key an operator pinned (GOV §3).
//!
//! There is no switch that weakens any of it. What a certificate says about itself is written by whoever sent it, so
//! none of its words reach a message of ours.

use std::path::Path;
use std::sync::Arc;

use portcullis_core::Sha256Digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, SignatureScheme};
use rustls_platform_verifier::Verifier;

use crate::UpstreamError;

/// What to say and expect when a connection to a server is made private. `identity` is a private key with its certificates, in
/// PEM form, for a server that wants to know who we are (SBX-55).
pub(crate) fn client_config(
    pin: Option<Sha256Digest>,
    authorities: Option<&Path>,
    identity: Option<&[u8]>,
) -> Result<Arc<ClientConfig>, UpstreamError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let platform = match authorities {
        None => Verifier::new(Arc::clone(&provider)),
        Some(file) => Verifier::new_with_extra_roots(read_authorities(file)?, Arc::clone(&provider)),
    }
    .map_err(|_| UpstreamError::unavailable("this machine's certificate authorities cannot be read"))?;
    let verifier = Arc::new(Pinned { platform, pin });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| UpstreamError::unavailable("TLS cannot be set up"))?
        .dangerous() // only in name: the verifier is the platform's and asks for more
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        None => config.with_no_client_auth(),
        Some(pem) => {
            let unusable = || {
                UpstreamError::unavailable(
                    "the client key kept for this server is no key with its certificate",
                )
            };
            let chain: Vec<_> =
                CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|_| unusable())?;
            let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| unusable())?;
            config.with_client_auth_cert(chain, key).map_err(|_| unusable())?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The same for conversations of a confined process that credentials are put into: HTTP/1.1 is all that is spoken there.
pub(crate) fn private_http(authorities: Option<&Path>) -> Result<Arc<ClientConfig>, UpstreamError> {
    let mut config = ClientConfig::clone(&*client_config(None, authorities, None)?);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn read_authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, UpstreamError> {
    let unreadable =
        || UpstreamError::unavailable(format!("{} holds no certificates in PEM form", file.display()));
    let found: Vec<_> =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect).map_err(|_| unreadable())?;
    if found.is_empty() { Err(unreadable()) } else { Ok(found) }
}

/// Why a handshake failed, in our words; and whether it was the key that is not the pinned one.
pub(crate) fn failure(error: &std::io::Error) -> (String, bool) {
    let told = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
    let (words, pin) = match told {
        Some(TlsError::InvalidCertificate(problem)) => match problem {
            CertificateError::ApplicationVerificationFailure => {
                ("its key is not the one that was pinned at registration", true)
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                ("its certificate has expired", false)
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                ("its certificate is not valid yet", false)
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                ("its certificate is for another host", false)
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                ("its certificate is signed by nobody whom this machine trusts", false)
            }
            CertificateError::Revoked => ("its certificate has been revoked", false),
            _ => ("its certificate is not acceptable", false),
        },
        Some(TlsError::AlertReceived(_)) => ("it refused the TLS handshake", false),
        _ => ("it does not speak TLS as it should", false),
    };
    (format!("the server cannot be trusted: {words}"), pin)
}

/// The platform's verdict, and then the pin.
#[derive(Debug)]
struct Pinned {
    platform: Verifier,
    pin: Option<Sha256Digest>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let verified =
            self.platform.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        if let Some(pin) = self.pin {
            let key = ParsedCertificate::try_from(end_entity)?.subject_public_key_info();
            if Sha256Digest::of(key.as_ref()) != pin {
                return Err(CertificateError::ApplicationVerificationFailure.into());
            }
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.platform.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.platform.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.platform.supported_verify_schemes()
    }
}

//! Servers on other machines, as far as that can be tried on one: a spy behind a TLS door of ours.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use portcullis_audit::{AuditLog, Options};
use portcullis_core::Sha256Digest;
use portcullis_governance::boundary::CancellationSignal;
use portcullis_governance::broker::vault::{Entry, Kind, Vault};
use portcullis_governance::broker::{Broker, class_of_client_key};
use portcullis_governance::endpoint::HttpEndpoint;
use portcullis_sandbox::broker::Secret;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PublicKeyData as _, date_time_ymd,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::spy::{Ask, Scene, call, event, text};
use crate::{Endpoint, Remote, Settings, UpstreamError, UpstreamEvent};

/// A certificate authority of our own.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    file: PathBuf,
}

/// What is peculiar about a server's certificate.
#[derive(Clone, Copy, Default)]
struct Oddity {
    name: Option<&'static str>,
    expired: bool,
    self_signed: bool,
    without_alpn: bool,
    /// It wants to know who comes.
    asks_back: bool,
}

impl Authority {
    fn new(scene: &Scene) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = scene.path("ca.pem");
        std::fs::write(&file, issuer.pem()).unwrap();
        Self { issuer, file }
    }

    /// Lets in whom it has signed for, and nobody else.
    fn knows_its_own(&self) -> Arc<dyn ClientCertVerifier> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap()
    }

    /// A key with its certificate, as operators keep them.
    fn client(&self) -> Vec<u8> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["gateway.example".into()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        format!("{}{}", key.serialize_pem(), certificate.pem()).into_bytes()
    }
}

/// A vault in which the key for the scene's server lies.
fn keeping(scene: &Scene, key: Vec<u8>) -> (Arc<Broker>, AuditLog) {
    let log = AuditLog::open(Options::new(scene.path("lent"), scene.path("lent.kek"))).unwrap();
    let vault = Vault::open(scene.path("vault.json"), portcullis_core::Secret::new([7; 32])).unwrap();
    let entry = Entry {
        name: "client".into(),
        class: class_of_client_key("spy").unwrap(),
        kind: Kind::Mtls,
        version: 1,
        id: "01".into(),
        stored_at: portcullis_core::Timestamp::from_millis(0),
    };
    vault.put(&entry, &Secret::take(key).unwrap()).unwrap();
    (Arc::new(Broker::new(vault, log.clone())), log)
}

#[tokio::test]
async fn a_server_that_wants_to_know_who_comes_is_shown_the_key_that_is_kept_for_it() {
    // SBX-55 `mtls`
    let scene = Scene::new();
    let authority = Authority::new(&scene);
    let spy = scene.http_spy("both");
    let oddity = Oddity { asks_back: true, ..Oddity::default() };
    let door = Door::open(&authority, inside(&spy.url), oddity).await;
    let stranger = scene.connection(door.endpoint(None), trusting(&authority.file));
    assert!(stranger.ready().await.is_err());
    assert_eq!(door.used.load(Ordering::SeqCst), 0, "nothing is said to whom nobody knows");

    let (broker, log) = keeping(&scene, authority.client());
    let before = log.next_seq();
    let settings = Settings { broker: Some(broker), ..trusting(&authority.file) };
    let connection = scene.connection(door.endpoint(None), settings);
    let live = connection.ready().await.unwrap();
    assert_eq!(text(call(&live, "echo", json!({"text": "it is me"})).await), "it is me");
    connection.close().await;
    assert!(log.next_seq() > before, "that it was taken out is on record");

    let (broker, _log) = keeping(&Scene::new(), b"no key at all".to_vec());
    let settings = Settings { broker: Some(broker), ..trusting(&authority.file) };
    let error = scene.connection(door.endpoint(None), settings).ready().await.unwrap_err();
    assert!(error.to_string().contains("no key with its certificate"), "{error}");
}

/// A listener that takes TLS off and passes the bytes on.
struct Door {
    port: u16,
    key: Sha256Digest,
    /// Connections on which anything arrived after the handshake.
    used: Arc<AtomicUsize>,
}

impl Door {
    async fn open(authority: &Authority, inside: &str, oddity: Oddity) -> Self {
        let mut params = CertificateParams::new(vec![oddity.name.unwrap_or("localhost").into()]).unwrap();
        if oddity.expired {
            (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2020, 2, 1));
        }
        let key = KeyPair::generate().unwrap();
        let certificate = if oddity.self_signed {
            params.self_signed(&key).unwrap()
        } else {
            params.signed_by(&key, &authority.issuer).unwrap()
        };
        let spki = Sha256Digest::of(&key.subject_public_key_info());
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = match oddity.asks_back {
            false => config.with_no_client_auth(),
            true => config.with_client_cert_verifier(authority.knows_its_own()),
        };
        let mut config = config.with_single_cert(vec![certificate.der().clone()], private).unwrap();
        if !oddity.without_alpn {
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let used = Arc::new(AtomicUsize::new(0));
        let (acceptor, counted) = (TlsAcceptor::from(Arc::new(config)), Arc::clone(&used));
        let inside = inside.to_owned();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, counted, inside) = (acceptor.clone(), Arc::clone(&counted), inside.clone());
                tokio::spawn(async move {
                    let Ok(mut private) = acceptor.accept(stream).await else { return };
                    let mut first = vec![0; 4096];
                    let read = private.read(&mut first).await.unwrap_or(0);
                    if read == 0 {
                        return;
                    }
                    counted.fetch_add(1, Ordering::SeqCst);
                    let mut server = TcpStream::connect(&inside).await.unwrap();
                    tokio::io::AsyncWriteExt::write_all(&mut server, &first[..read]).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut private, &mut server).await;
                });
            }
        });
        Self { port, key: spki, used }
    }

    fn endpoint(&self, spki: Option<Sha256Digest>) -> Endpoint {
        let url = HttpEndpoint::parse(&format!("https://localhost:{}/mcp", self.port)).unwrap();
        Endpoint::Http(Remote { url, spki })
    }
}

fn trusting(authority: &Path) -> Settings {
    Settings { authorities: Some(authority.to_owned()), ..Settings::default() }
}

fn inside(url: &str) -> &str {
    url.strip_prefix("http://").unwrap().split('/').next().unwrap()
}

#[tokio::test]
async fn a_server_with_a_good_certificate_is_called_and_held_to_its_key() {
    // GOV §3, PRO-37
    for without_alpn in [false, true] {
        for revision in ["legacy", "modern"] {
            let scene = Scene::new();
            let authority = Authority::new(&scene);
            let spy = scene.http_spy(revision);
            let door =
                Door::open(&authority, inside(&spy.url), Oddity { without_alpn, ..Oddity::default() }).await;
            let connection = scene.connection(door.endpoint(Some(door.key)), trusting(&authority.file));
            let live = connection.ready().await.unwrap();
            assert_eq!(text(call(&live, "echo", json!({"text": "in private"})).await), "in private");
            connection.close().await;
        }
    }
}

#[tokio::test]
async fn a_server_that_cannot_prove_itself_gets_not_one_byte() {
    // T-REG-2
    let scene = Scene::new();
    let authority = Authority::new(&scene);
    let spy = scene.http_spy("both");
    let stranger = Settings::default();
    let trusting = trusting(&authority.file);
    for (oddity, settings, words) in [
        (Oddity::default(), &stranger, "trusts"),
        (Oddity { expired: true, ..Oddity::default() }, &trusting, "expired"),
        (Oddity { name: Some("elsewhere.example"), ..Oddity::default() }, &trusting, "another host"),
        (Oddity { self_signed: true, ..Oddity::default() }, &trusting, "trusts"),
    ] {
        let door = Door::open(&authority, inside(&spy.url), oddity).await;
        let connection = scene.connection(door.endpoint(None), settings.clone());
        let error = connection.ready().await.unwrap_err();
        assert!(matches!(&error, UpstreamError::Unavailable { reason } if reason.contains(words)), "{error}");
        assert!(!error.to_string().contains("elsewhere"), "what a certificate says is not repeated: {error}");
        assert_eq!(door.used.load(Ordering::SeqCst), 0);
    }
    assert!(scene.log().iter().all(|line| line.get("raw").is_none()), "{:?}", scene.log());
}

#[tokio::test]
async fn another_key_is_another_server() {
    // MP-FH-009
    let scene = Scene::new();
    let authority = Authority::new(&scene);
    let spy = scene.http_spy("both");
    let door = Door::open(&authority, inside(&spy.url), Oddity::default()).await;
    let other = Sha256Digest::of(b"another key");
    let connection = scene.connection(door.endpoint(Some(other)), trusting(&authority.file));
    let mut events = connection.events();
    let error = connection.ready().await.unwrap_err();
    assert!(error.to_string().contains("pinned"), "{error}");
    event(&mut events, |event| matches!(event, UpstreamEvent::OtherKey)).await;
    assert_eq!(door.used.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_file_without_authorities_is_said_to_be_one() {
    let scene = Scene::new();
    let file = scene.path("empty.pem");
    std::fs::write(&file, "nothing").unwrap();
    let endpoint =
        Endpoint::Http(Remote { url: HttpEndpoint::parse("https://localhost:9/mcp").unwrap(), spki: None });
    let connection = scene.connection(endpoint, trusting(&file));
    let error = connection.ready().await.unwrap_err();
    assert!(error.to_string().contains("no certificates"), "{error}");
}

/// A server of HTTP/2 of a few lines: answers every request with its own body as a JSON-RPC result.
mod second_version {
    use http_body_util::{BodyExt as _, Full};
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use serde_json::{Value, json};

    pub(super) async fn serve(
        io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    ) {
        let service = service_fn(|request: http::Request<hyper::body::Incoming>| async move {
            let authority = request.uri().authority().map(ToString::to_string);
            let body = request.into_body().collect().await?.to_bytes();
            let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
            if asked["params"]["name"] == "slow" {
                std::future::pending::<()>().await;
            }
            let result = match asked["method"].as_str() {
                Some("server/discover") => {
                    json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
                }
                _ => json!({"content": [{"type": "text", "text": authority.unwrap_or_default()}]}),
            };
            let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}).to_string();
            let mut response = http::Response::new(Full::new(bytes::Bytes::from(answer)));
            response.headers_mut().insert("content-type", "application/json".parse().unwrap());
            Ok::<_, hyper::Error>(response)
        });
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(io), service)
            .await;
    }
}

#[tokio::test]
async fn a_server_of_http_2_gets_every_call_over_one_connection() {
    // PRO-37
    let scene = Scene::new();
    let authority = Authority::new(&scene);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".into()]).unwrap();
    let certificate = params.signed_by(&key, &authority.issuer).unwrap();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicUsize::new(0));
    let (acceptor, counted) = (TlsAcceptor::from(Arc::new(config)), Arc::clone(&connections));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let private = acceptor.accept(stream).await.unwrap();
            tokio::spawn(second_version::serve(private));
        }
    });
    let url = HttpEndpoint::parse(&format!("https://localhost:{port}/mcp")).unwrap();
    let connection =
        Arc::new(scene.connection(Endpoint::Http(Remote { url, spki: None }), trusting(&authority.file)));
    let live = connection.ready().await.unwrap();
    // One that is given up does not take the others with it.
    let (canceller, signal) = CancellationSignal::pair();
    let (slow, arguments) = (Ask { cancel: Some(signal), ..Ask::default() }, json!({}));
    let calls = async {
        for _ in 0..20 {
            let answer = text(call(&live, "echo", json!({"text": "x"})).await);
            assert_eq!(answer, format!("localhost:{port}"));
        }
        canceller.cancel();
    };
    let _ = tokio::join!(slow.call(&live, "slow", &arguments), calls);
    assert_eq!(text(call(&live, "echo", json!({"text": "x"})).await), format!("localhost:{port}"));
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    connection.close().await;
}

//! S-3: how fast bytes get to a host through the gate, beside a plain relay in the same process.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use portcullis_sandbox::broker::Secret;
use portcullis_sandbox::{EgressScope, Gate, Launcher, Profile, SecretScope, Tls, Via};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::{own, program};

const NAME: &str = "api.bench";
const BYTES: usize = 128 << 20;

/// A host that takes everything and says when it has it; gives MiB per second, from the first byte on.
fn sink(listener: TcpListener, private: Option<Arc<ServerConfig>>) -> std::thread::JoinHandle<f64> {
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("somebody comes");
        let mut piece = vec![0; 256 << 10];
        let mut drain = |stream: &mut dyn ReadWrite| {
            let first = stream.read(&mut piece).expect("a first piece");
            let begun = Instant::now();
            let mut had = first;
            while had < BYTES {
                let more = stream.read(&mut piece).expect("more of it");
                assert_ne!(more, 0, "it ended after {had} bytes");
                had += more;
            }
            let spent = begun.elapsed().as_secs_f64();
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                .and_then(|()| stream.flush());
            (BYTES >> 20) as f64 / spent
        };
        match private {
            None => drain(&mut { stream }),
            Some(config) => {
                drain(&mut StreamOwned::new(ServerConnection::new(config).expect("a server"), stream))
            }
        }
    })
}

trait ReadWrite: std::io::Read + std::io::Write {}
impl<T: std::io::Read + std::io::Write> ReadWrite for T {}

fn host() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it has one").port();
    (listener, port)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Without a gate: the same bytes, from a process that nobody confines.
pub(crate) fn through_a_relay() -> f64 {
    let runtime = runtime();
    let (listener, port) = host();
    let arriving = sink(listener, None);
    let (relay, relayed) = host();
    relay.set_nonblocking(true).expect("it can be");
    runtime.spawn(async move {
        let relay = tokio::net::TcpListener::from_std(relay).expect("a listener");
        let (mut from, _) = relay.accept().await.expect("somebody comes");
        let mut to = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("the host");
        let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
    });
    let words = ["pour", &format!("127.0.0.1:{relayed}"), &BYTES.to_string()].map(str::to_owned);
    let mut child = Command::new(own()).args(words).stdin(Stdio::null()).spawn().expect("it starts");
    let rate = arriving.join().expect("it arrives");
    let _ = child.wait();
    rate
}

/// Through a door and the gate behind it; in private, with the gate opening what is said to put a credential in.
pub(crate) fn through_the_gate(launcher: &Launcher, private: bool) -> f64 {
    let runtime = runtime();
    let (listener, port) = host();
    let identity = private.then(identity);
    let arriving = sink(listener, identity.as_ref().map(|(server, _)| Arc::clone(server)));
    let profile = profile(port, private);
    let started = launcher.launch(&profile, Stdio::null(), Stdio::null(), Stdio::inherit());
    let portcullis_sandbox::Caged { mut child, cgroup, doors, .. } = started.expect("it can be confined");
    let inside = runtime.enter();
    let known = BTreeMap::from([(NAME.to_owned(), vec![Ipv4Addr::LOCALHOST.into()])]);
    let outward = identity.map(|(_, client)| client);
    let gate = Gate::open(doors, known, outward, Box::new(|_| {})).expect("a gate");
    let pass = gate.admit("permit".into(), vec!["api".into()], u64::MAX);
    let secret = Arc::new(Secret::take(b"a value of some length".to_vec()).expect("memory"));
    let loan = private.then(|| gate.lend("bench", Box::new(move || Some(Arc::clone(&secret)))));
    let rate = arriving.join().expect("it arrives");
    let _ = child.wait();
    drop((loan, pass, gate, cgroup, inside));
    rate
}

fn profile(port: u16, private: bool) -> Profile {
    let words =
        [if private { "pour-privately" } else { "pour" }, &format!("{NAME}:{port}"), &BYTES.to_string()];
    let mut profile = program(&words);
    profile.egress = vec![EgressScope {
        scope: "api".into(),
        host: NAME.into(),
        port,
        tls: Tls::Required,
        addrs: vec![Ipv4Addr::LOCALHOST.into()],
    }];
    // What is poured may come before the pass is there.
    profile.background_egress = true;
    if private {
        profile.secrets = vec![SecretScope {
            class: "bench".into(),
            via: Via::Proxy,
            name: "API_TOKEN".into(),
            toward: Some("api".into()),
            format: None,
            within: vec!["header".into()],
        }];
    }
    profile
}

/// Who the host is, and how one knows.
fn identity() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer =
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an issuer");
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(vec![NAME.to_owned()]).expect("parameters");
    let certificate = certificate.signed_by(&key, &issuer).expect("a certificate");
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = || Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let server = server.expect("versions").with_no_client_auth();
    let server = server.with_single_cert(vec![certificate.der().clone()], private).expect("a server");
    let mut roots = RootCertStore::empty();
    roots.add(issuer.der().clone()).expect("an authority");
    let client = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let client = client.expect("versions").with_root_certificates(roots).with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

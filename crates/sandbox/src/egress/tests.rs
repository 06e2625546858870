//! The gate between real sockets, without a namespace around the inner ones.

use std::sync::mpsc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener as Listener, TcpStream};

use super::*;
use crate::profile::Tls;

struct Scene {
    gate: Gate,
    door: std::net::SocketAddr,
    proxy: std::net::SocketAddr,
    seen: mpsc::Receiver<Observed>,
    host: Listener,
}

/// A gate in front of a host that listens on our own loopback.
async fn scene(tls: Tls, change: impl FnOnce(&mut Profile)) -> Scene {
    let host = Listener::bind("127.0.0.1:0").await.unwrap();
    let loopback: IpAddr = "127.0.0.1".parse().unwrap();
    let mut profile = Profile::bare("/bin/true", Vec::new());
    profile.egress = vec![EgressScope {
        scope: "api".into(),
        host: "api.example".into(),
        port: host.local_addr().unwrap().port(),
        tls,
        addrs: vec![loopback],
    }];
    change(&mut profile);
    let stand_ins = StandIns::of(&profile).unwrap();
    let (sentry, told) = Sentry::new(&profile.expected_denials);
    let outlook = Outlook { sentry: Arc::new(sentry), told, watched: Vec::new(), contents: Vec::new() };
    let (door, proxy) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let (door_at, proxy_at) = (door.local_addr().unwrap(), proxy.local_addr().unwrap());
    let open = vec![(Door::Host(0), door.into()), (Door::Proxy, proxy.into())];
    let doors = Doors::new(profile, open, stand_ins, outlook, Arc::default()).unwrap();
    let (sender, seen) = mpsc::channel();
    let known = BTreeMap::from([("api.example".to_owned(), vec![loopback])]);
    let gate = Gate::open(doors, known, None, Box::new(move |what| sender.send(what).unwrap())).unwrap();
    Scene { gate, door: door_at, proxy: proxy_at, seen, host }
}

impl Scene {
    fn port(&self) -> u16 {
        self.host.local_addr().unwrap().port()
    }

    fn pass(&self) -> Pass {
        self.gate.admit("permit".into(), vec!["api".into()], 1 << 20)
    }

    /// Answers the next connection with what it said, after `answer`.
    async fn serve(&self, answer: &str) -> String {
        let (mut stream, _) = self.host.accept().await.unwrap();
        let mut heard = vec![0; 4096];
        let length = stream.read(&mut heard).await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&heard[..length]).into_owned()
    }
}

async fn say(to: std::net::SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn refusal(seen: &mpsc::Receiver<Observed>) -> (String, &'static str, bool) {
    match seen.recv_timeout(Duration::from_secs(10)).unwrap() {
        Observed::Denied { target, reason, violation, .. } => (target, reason, violation.is_some()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_carried_while_a_call_is_under_way_and_told_with_its_bytes() {
    // SBX-46, SBX-47, SBX-48
    let scene = scene(Tls::None, |_| {}).await;
    let (port, pass) = (scene.port(), scene.pass());
    let request = format!("GET /x HTTP/1.1\r\nHost: api.example:{port}\r\nConnection: keep-alive\r\n\r\n");
    let (heard, answer) =
        tokio::join!(scene.serve("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), say(scene.door, &request));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(heard, format!("GET /x HTTP/1.1\r\nHost: api.example:{port}\r\nConnection: close\r\n\r\n"));
    let Observed::Allowed { scope, bytes_out, bytes_in, permit, .. } = scene.seen.recv().unwrap() else {
        panic!()
    };
    assert_eq!((scope.as_str(), permit.as_deref()), ("api", Some("permit")));
    assert_eq!((bytes_out, bytes_in), (heard.len() as u64, answer.len() as u64));

    // The same through the proxy, as clients that know proxies say it.
    let request = format!("GET http://api.example:{port}/y HTTP/1.1\r\nHost: api.example:{port}\r\n\r\n");
    let (heard, answer) =
        tokio::join!(scene.serve("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), say(scene.proxy, &request));
    assert!(
        answer.starts_with("HTTP/1.1 200") && heard.starts_with("GET /y HTTP/1.1\r\n"),
        "{answer} {heard}"
    );
    assert!(matches!(scene.seen.recv().unwrap(), Observed::Allowed { .. }));

    // When the call is over, nothing new goes out, and that is no crime.
    drop(pass);
    let request = format!("GET /z HTTP/1.1\r\nHost: api.example:{port}\r\n\r\n");
    assert!(say(scene.door, &request).await.starts_with("HTTP/1.1 403"));
    let (target, _, violation) = refusal(&scene.seen);
    assert_eq!((target.as_str(), violation), ("api.example", false));
    assert_eq!(scene.gate.escaped(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_declared_is_refused_and_told_as_what_it_is() {
    // SBX-46, S-NET-3
    let scene = scene(Tls::None, |_| {}).await;
    let (port, _pass) = (scene.port(), scene.pass());
    let requests = [
        (scene.proxy, "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned()),
        (scene.proxy, "CONNECT 93.184.216.34:443 HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()),
        (scene.proxy, "CONNECT api.example:22 HTTP/1.1\r\nHost: api.example\r\n\r\n".to_owned()),
        (scene.proxy, format!("GET http://evil.example:{port}/ HTTP/1.1\r\nHost: evil.example\r\n\r\n")),
        (scene.proxy, format!("GET http://api.example:{port}/ HTTP/1.1\r\nHost: evil.example\r\n\r\n")),
        (scene.proxy, "GET https://api.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n".to_owned()),
        (scene.door, format!("GET / HTTP/1.1\r\nHost: evil.example:{port}\r\n\r\n")),
        (scene.door, format!("GET http://evil.example/ HTTP/1.1\r\nHost: api.example:{port}\r\n\r\n")),
        (scene.door, "\x16\x03\x01 not this".to_owned()),
    ];
    for (to, request) in requests {
        let answer = say(to, &request).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 403"), "{request}: {answer}");
        let (_, reason, violation) = refusal(&scene.seen);
        assert!(violation, "{request}: {reason}");
    }
    assert_eq!(scene.gate.escaped(), Some("egress"));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_tls_is_required_the_name_in_it_counts() {
    // SBX-46
    let scene = scene(Tls::Required, |_| {}).await;
    let (port, _pass) = (scene.port(), scene.pass());
    for (name, carried) in [("api.example", true), ("evil.example", false)] {
        let hello = client_hello(name);
        let mut stream = TcpStream::connect(scene.door).await.unwrap();
        stream.write_all(&hello).await.unwrap();
        if carried {
            assert_eq!(scene.serve("").await.as_bytes()[0], b'\x16');
            drop(stream);
            assert!(matches!(scene.seen.recv().unwrap(), Observed::Allowed { .. }));
        } else {
            assert!(refusal(&scene.seen).2);
        }
    }
    let answer =
        say(scene.proxy, &format!("CONNECT api.example:{port} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n")).await;
    assert_eq!(answer, "", "what is sent before the answer is not taken");
    let mut stream = TcpStream::connect(scene.proxy).await.unwrap();
    stream.write_all(format!("CONNECT api.example:{port} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    stream.write_all(b"\r\n\r\nGET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(refusal(&scene.seen), ("api.example".into(), "no TLS where TLS is required", true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_leads_home_is_not_followed_and_a_silent_denial_stays_silent() {
    // SBX-46: rebinding. SBX-49: expected denials.
    let scene = scene(Tls::None, |profile| {
        profile.egress[0].addrs.clear();
        profile.expected_denials = vec!["telemetry.example".into()];
    })
    .await;
    let (port, _pass) = (scene.port(), scene.pass());
    let answer = say(scene.proxy, "CONNECT telemetry.example:443 HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert_eq!(refusal(&scene.seen), ("telemetry.example".into(), "not declared", false));
    assert_eq!(scene.gate.escaped(), None);
    say(scene.door, &format!("GET / HTTP/1.1\r\nHost: api.example:{port}\r\n\r\n")).await;
    let (_, reason, violation) = refusal(&scene.seen);
    assert!(violation && reason.contains("address"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_sends_no_more_than_it_may() {
    // SBX-48
    let scene = scene(Tls::None, |_| {}).await;
    let port = scene.port();
    let _pass = scene.gate.admit("permit".into(), vec!["api".into()], 4096);
    let body = "x".repeat(64 << 10);
    let request = format!(
        "POST / HTTP/1.1\r\nHost: api.example:{port}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let client = tokio::spawn(async move {
        let (door, request) = (scene.door, request);
        (say(door, &request).await, scene)
    });
    let (_, scene) = client.await.unwrap();
    let seen: Vec<Observed> = [scene.seen.recv().unwrap()].into_iter().chain(scene.seen.try_iter()).collect();
    let Some(Observed::Allowed { bytes_out, .. }) = seen
        .iter()
        .find(|seen| matches!(seen, Observed::Allowed { .. }))
        .cloned()
        .or_else(|| scene.seen.recv().ok())
    else {
        panic!("{seen:?}")
    };
    assert!(bytes_out <= 4096, "{bytes_out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_scope_s_call_does_not_open_the_door() {
    // SBX-47
    let scene = scene(Tls::None, |_| {}).await;
    let _pass = scene.gate.admit("permit".into(), vec!["other".into()], 1 << 20);
    let request = format!("GET / HTTP/1.1\r\nHost: api.example:{}\r\n\r\n", scene.port());
    assert!(say(scene.door, &request).await.starts_with("HTTP/1.1 403"));
    assert!(!refusal(&scene.seen).2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_may_talk_in_the_background_does() {
    // SBX-47
    let scene = scene(Tls::None, |profile| profile.background_egress = true).await;
    let request = format!("GET / HTTP/1.1\r\nHost: api.example:{}\r\n\r\n", scene.port());
    let (_, answer) = tokio::join!(scene.serve("HTTP/1.1 204 No Content\r\n\r\n"), say(scene.door, &request));
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert!(matches!(scene.seen.recv().unwrap(), Observed::Allowed { permit: None, .. }));
}

fn client_hello(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

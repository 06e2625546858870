//! The programs that are started, bare and in cages.

use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const PIECE: usize = 64 << 10;

/// Says every line back; `cpu` is answered with the CPU time used so far, in nanoseconds.
pub(crate) fn echo() {
    let mut output = io::stdout();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let answer = if line == "cpu" { cpu().to_string() } else { line };
        if output.write_all(format!("{answer}\n").as_bytes()).and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

/// Opens and reads a file of 64 KiB, so many times.
pub(crate) fn open(times: usize) {
    let path = "/tmp/file";
    std::fs::write(path, vec![7; PIECE]).expect("there is room");
    for _ in 0..times {
        std::fs::read(path).expect("it is there");
    }
}

fn cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("the kernel counts it");
    text.split_whitespace().next().and_then(|first| first.parse().ok()).expect("a number")
}

fn name_of(host: &str) -> ServerName<'static> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    ServerName::try_from(name.to_owned()).expect("a name")
}

fn config(roots: RootCertStore) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Arc::new(builder.expect("versions").with_root_certificates(roots).with_no_client_auth())
}

/// Says hello as TLS does, then pours bytes, which nobody looks at any more, and waits until all have arrived.
pub(crate) fn pour(host: &str, bytes: usize) {
    let mut stream = TcpStream::connect(host).expect("the host can be reached");
    let mut hello = ClientConnection::new(config(RootCertStore::empty()), name_of(host)).expect("a client");
    hello.write_tls(&mut stream).expect("it is heard");
    let piece = vec![7; PIECE];
    for _ in 0..bytes / PIECE {
        stream.write_all(&piece).expect("it flows");
    }
    stream.read_exact(&mut [0]).expect("all of it arrived");
}

/// One request with a long body, in private, with a placeholder in a header.
pub(crate) fn pour_privately(host: &str, bytes: usize) {
    let mut roots = RootCertStore::empty();
    let file = std::env::var("NODE_EXTRA_CA_CERTS").expect("an authority is made for us");
    for certificate in CertificateDer::pem_file_iter(file).expect("it can be read") {
        roots.add(certificate.expect("a certificate")).expect("it is one");
    }
    let stream = TcpStream::connect(host).expect("the host can be reached");
    let connection = ClientConnection::new(config(roots), name_of(host)).expect("a client");
    let mut stream = StreamOwned::new(connection, stream);
    let token = std::env::var("API_TOKEN").expect("a placeholder");
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Length: {bytes}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("it is heard");
    let piece = vec![7; PIECE];
    for _ in 0..bytes / PIECE {
        stream.write_all(&piece).expect("it flows");
    }
    stream.flush().expect("it flows");
    stream.read_exact(&mut [0; 12]).expect("an answer");
}

//! A private conversation with a host, as any program would have it: certificates that SSL_CERT_FILE names are trusted.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// One request; the whole answer. `$NAME` in a header stands for a variable of the environment.
pub(crate) fn get(address: &str, path: &str, headers: &[&str]) -> io::Result<String> {
    let mut roots = RootCertStore::empty();
    let bundle = std::env::var("SSL_CERT_FILE").map_err(io::Error::other)?;
    for certificate in CertificateDer::pem_file_iter(bundle).map_err(io::Error::other)?.flatten() {
        let _ = roots.add(certificate);
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let host = address.split(':').next().unwrap_or_default().to_owned();
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    let client = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    exchange(StreamOwned::new(client, stream), address, path, headers)
}

/// The same in the clear.
pub(crate) fn get_in_the_clear(address: &str, path: &str, headers: &[&str]) -> io::Result<String> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    exchange(stream, address, path, headers)
}

fn exchange(
    mut stream: impl io::Read + io::Write,
    address: &str,
    path: &str,
    headers: &[&str],
) -> io::Result<String> {
    write!(stream, "GET {} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n", filled(path))?;
    for header in headers {
        write!(stream, "{}\r\n", filled(header))?;
    }
    stream.write_all(b"\r\n")?;
    let mut answer = Vec::new();
    // A connection that is cut says nothing either.
    let _ = stream.read_to_end(&mut answer);
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn filled(text: &str) -> String {
    let Some((before, rest)) = text.split_once('$') else { return text.to_owned() };
    let end = rest.find(|c: char| !(c.is_ascii_uppercase() || c == '_')).unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    format!("{before}{}{after}", std::env::var(name).unwrap_or_default())
}

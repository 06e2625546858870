//! Resources under names of ours: `portcullis://<server>/<the server's own URI>` (PRO-12).
//!
//! A URI is percent-encoded whole, so that it comes back exactly. A template stays readable, since its variables are
//! expanded by the client and what it writes could not be told from our encoding: `portcullis://fs/file://{+path}`.
//! The two cannot be confused: an encoded URI has no colon, and every URI of a template has one.

use portcullis_core::ServerIdentity;

const SCHEME: &str = "portcullis://";

/// A server's URI as agents see it.
pub fn outward(server: &ServerIdentity, uri: &str) -> String {
    let mut out = format!("{SCHEME}{server}/");
    for byte in uri.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// A server's template as agents see it.
pub fn outward_template(server: &ServerIdentity, template: &str) -> String {
    format!("{SCHEME}{server}/{template}")
}

/// The server and its own URI, if the text is one of ours.
pub fn inward(uri: &str) -> Option<(ServerIdentity, String)> {
    let (server, rest) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    let server = server.parse().ok()?;
    if rest.contains(':') {
        return Some((server, rest.to_owned()));
    }
    let mut out = Vec::with_capacity(rest.len());
    let mut bytes = rest.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let value = digit(bytes.next())? * 16 + digit(bytes.next())?;
            out.push(u8::try_from(value).ok()?);
        } else {
            out.push(byte);
        }
    }
    Some((server, String::from_utf8(out).ok()?))
}

/// Whether a server's URI could be taken for one of ours.
pub fn is_ours(uri: &str) -> bool {
    uri.get(..11).is_some_and(|scheme| scheme.eq_ignore_ascii_case("portcullis:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_goes_out_and_comes_back_exactly() {
        // PRO-12
        let server: ServerIdentity = "fs".parse().unwrap();
        for uri in ["file:///a b", "file:///a%20b", "x:é?q=1#f", "portcullis://other/x", "urn:a:b", "x:%"] {
            let out = outward(&server, uri);
            assert!(out.starts_with("portcullis://fs/") && !out[16..].contains([':', '/', ' ']), "{out}");
            assert_eq!(inward(&out), Some((server.clone(), uri.to_owned())));
        }
        let expanded = outward_template(&server, "file://{+path}").replace("{+path}", "/a%20b");
        assert_eq!(inward(&expanded), Some((server, "file:///a%20b".into())));
        for other in ["file:///x", "portcullis://fs", "portcullis://FS/x", "portcullis://fs/%zz"] {
            assert_eq!(inward(other), None, "{other}");
        }
    }
}

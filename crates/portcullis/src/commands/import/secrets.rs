//! Secrets in clients' configurations: set apart from what is plain, so that the vault has them and nothing else does
//! (GOV-1401, SBX-50).

use std::collections::BTreeMap;

use portcullis_core::ServerIdentity;
use portcullis_core::scrub;
use portcullis_governance::draft::{Host, SecretFact, SecretWay};
use url::Url;

use super::entries::{Entry, How};
use crate::identity::Passphrase;

/// What a configuration gives a server that nobody else should have.
pub(super) struct Found {
    /// What a declaration says of it.
    pub(super) fact: SecretFact,
    /// Its value; nothing if the configuration only says to ask for it.
    pub(super) value: Option<Passphrase>,
}

/// An entry without its secrets.
pub(super) struct SetApart {
    /// The variables, with stand-ins for secrets: a program that looks for one finds something.
    pub(super) env: BTreeMap<String, String>,
    pub(super) secrets: Vec<Found>,
    /// Hosts that its configuration names.
    pub(super) hosts: Vec<Host>,
}

/// What a program finds in place of a secret that goes nowhere.
const STAND_IN: &str = "kept-by-portcullis";

/// Sets secrets apart. `toward` is where the operator says they go.
pub(super) fn set_apart(
    entry: &Entry,
    identity: &ServerIdentity,
    toward: Option<&Host>,
) -> Result<SetApart, String> {
    match &entry.how {
        How::Stdio { args, env, .. } => {
            if args.iter().any(|arg| scrub::is_bare_token(arg) || arg.contains("${")) {
                return Err("one of its arguments looks like a secret or is asked for; what a program is started with is no place for it".into());
            }
            let mut hosts: Vec<Host> = toward.cloned().into_iter().collect();
            let named = args.iter().chain(env.values()).filter_map(|text| host_of(text));
            for host in named {
                if !hosts.contains(&host) {
                    hosts.push(host);
                }
            }
            // If one host is named, that is where secrets go. If several are, nobody has said which.
            let way = match (toward, hosts.as_slice()) {
                (Some(host), _) | (None, [host]) => SecretWay::Toward(host.clone()),
                _ => SecretWay::Unknown,
            };
            let mut apart = SetApart { env: BTreeMap::new(), secrets: Vec::new(), hosts };
            for (name, value) in env {
                if is_secret(name, value) {
                    let fact = SecretFact {
                        name: name.clone(),
                        class: class_of(identity, name),
                        format: shape_of(value),
                        way: way.clone(),
                    };
                    apart.env.insert(name.clone(), STAND_IN.into());
                    apart.secrets.push(Found { fact, value: value_of(value) });
                } else {
                    apart.env.insert(name.clone(), value.clone());
                }
            }
            Ok(apart)
        }
        How::Http { headers, .. } | How::Sse { headers, .. } => {
            let secrets = headers.iter().map(|(name, value)| {
                let (scheme, rest) = match value.split_once(' ') {
                    Some((scheme, rest)) if scheme.bytes().all(|b| b.is_ascii_alphabetic()) => {
                        (Some(scheme), rest)
                    }
                    _ => (None, value.as_str()),
                };
                let fact = SecretFact {
                    name: name.clone(),
                    class: class_of(identity, name),
                    format: scheme.map(|scheme| format!("{scheme} {{secret}}")),
                    way: SecretWay::Header,
                };
                Found { fact, value: value_of(rest) }
            });
            Ok(SetApart { env: BTreeMap::new(), secrets: secrets.collect(), hosts: Vec::new() })
        }
    }
}

/// By its name, by its shape, or because it is asked for.
fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words = ["token", "secret", "password", "passwd", "api_key", "apikey", "private_key", "credential"];
    words.iter().any(|word| name.contains(word)) || scrub::is_bare_token(value) || value.contains("${")
}

fn value_of(value: &str) -> Option<Passphrase> {
    let is_there = !value.is_empty() && !value.contains("${");
    is_there.then(|| Passphrase::found(value.to_owned()))
}

/// `github.github_token`
fn class_of(identity: &ServerIdentity, name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c.to_ascii_lowercase() } else { '-' }
    };
    let name: String = name.chars().map(plain).collect();
    format!("{identity}.{name}").chars().take(63).collect()
}

/// Programs look at the shape of some tokens. Only beginnings that everybody knows are told.
fn shape_of(value: &str) -> Option<String> {
    const KNOWN: [&str; 9] =
        ["github_pat_", "ghp_", "gho_", "ghs_", "glpat-", "xoxb-", "xoxp-", "sk-ant-", "sk-"];
    let known = KNOWN.iter().find(|known| value.starts_with(**known))?;
    let rest = value.len() - known.len();
    (16..=200).contains(&rest).then(|| format!("{known}{{{rest}}}"))
}

fn host_of(text: &str) -> Option<Host> {
    let url = Url::parse(text).ok().filter(|url| url.scheme() == "https")?;
    let host = url.domain()?.to_owned();
    host.contains('.').then_some(Host { host, port: url.port().unwrap_or(443) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(env: &[(&str, &str)], toward: Option<&Host>) -> SetApart {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let how = How::Stdio { command: "x".into(), args: Vec::new(), env };
        let entry = Entry { name: "issues".into(), how };
        set_apart(&entry, &"issues".parse().unwrap(), toward).unwrap()
    }

    #[test]
    fn secrets_are_set_apart_and_go_where_the_configuration_says() {
        // GOV-1401, T-IMP-1
        let token = format!("ghp_{}", "a1B2".repeat(9));
        let found =
            apart(&[("LANG", "C"), ("API_TOKEN", &token), ("API_URL", "https://api.example.com/v1")], None);
        assert_eq!((found.env["LANG"].as_str(), found.env["API_TOKEN"].as_str()), ("C", STAND_IN));
        let host = Host { host: "api.example.com".into(), port: 443 };
        assert_eq!(found.hosts, std::slice::from_ref(&host));
        let fact = &found.secrets[0].fact;
        assert_eq!((fact.class.as_str(), fact.format.as_deref()), ("issues.api_token", Some("ghp_{36}")));
        assert_eq!(fact.way, SecretWay::Toward(host.clone()));
        assert_eq!(found.secrets[0].value.as_ref().unwrap().bytes(), token.as_bytes());
        // Nobody says where, or two places are named: then nobody guesses.
        assert_eq!(apart(&[("API_TOKEN", &token)], None).secrets[0].fact.way, SecretWay::Unknown);
        let two = [("API_TOKEN", token.as_str()), ("A", "https://a.example"), ("B", "https://b.example")];
        assert_eq!(apart(&two, None).secrets[0].fact.way, SecretWay::Unknown);
        assert_eq!(apart(&two, Some(&host)).secrets[0].fact.way, SecretWay::Toward(host));
        // What is to be asked for is not a value.
        assert!(apart(&[("API_TOKEN", "${input:token}")], None).secrets[0].value.is_none());
    }

    #[test]
    fn headers_are_secrets_of_the_server_itself() {
        let headers = BTreeMap::from([("Authorization".into(), "Bearer abc".into())]);
        let entry = Entry { name: "x".into(), how: How::Http { url: "https://x.example".into(), headers } };
        let found = set_apart(&entry, &"x".parse().unwrap(), None).unwrap();
        let fact = &found.secrets[0].fact;
        assert_eq!((fact.name.as_str(), fact.format.as_deref()), ("Authorization", Some("Bearer {secret}")));
        assert_eq!((fact.class.as_str(), &fact.way), ("x.authorization", &SecretWay::Header));
        assert_eq!(found.secrets[0].value.as_ref().unwrap().bytes(), b"abc");
    }
}

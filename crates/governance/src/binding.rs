//! Which argument must stay inside which scope (GOV-702).

use std::path::{Component, Path};

use portcullis_core::canon::push_segment;
use portcullis_core::name::ScopeName;
use serde::Serialize;
use serde_json::Value;

use crate::declaration::{BindingKind, Scope, Tls};

/// A binding with its scope, ready to be applied to arguments.
#[derive(Debug, Clone)]
pub struct Binding {
    param: Vec<Segment>,
    scope: ScopeName,
    reading: Reading,
}

#[derive(Debug, Clone)]
enum Segment {
    Name(String),
    Each,
}

/// How an argument is read, with what it must lie inside.
#[derive(Debug, Clone)]
enum Reading {
    FsPath { root: String },
    Url { host: String, port: u16, tls: bool },
    Host { host: String },
    ExecPath { path: String },
    Prefix { prefix: String },
}

/// One argument, resolved. Fields are in canonical (sorted) order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Resolved {
    /// Where the argument stands.
    pub param: String,
    /// What it means.
    pub resolved: String,
    /// The scope it lies in.
    pub scope: ScopeName,
}

/// An argument lies outside its scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {problem}")]
pub struct OutOfScope {
    /// RFC 6901 pointer to the argument.
    pub pointer: String,
    /// The scope it should lie in.
    pub scope: ScopeName,
    /// What is wrong; holds no argument value.
    pub problem: String,
}

impl Binding {
    /// A binding whose clause and scope passed the acceptance rules; `None` if they do not fit together.
    pub(crate) fn new(param: &str, name: &ScopeName, kind: BindingKind, scope: &Scope) -> Option<Self> {
        let segments = param.strip_prefix('/')?.split('/');
        let param = segments
            .map(|segment| match segment {
                "*" => Segment::Each,
                name => Segment::Name(name.replace("~1", "/").replace("~0", "~")),
            })
            .collect();
        let reading = match kind {
            BindingKind::FsPath => Reading::FsPath { root: scope.path.clone()? },
            BindingKind::Url => Reading::Url {
                host: scope.host.clone()?.to_ascii_lowercase(),
                port: scope.port?,
                tls: scope.tls? == Tls::Required,
            },
            BindingKind::Host => Reading::Host { host: scope.host.clone()?.to_ascii_lowercase() },
            BindingKind::ExecPath => Reading::ExecPath { path: scope.path.clone()? },
            BindingKind::Prefix => Reading::Prefix { prefix: scope.prefix.clone().unwrap_or_default() },
        };
        Some(Self { param, scope: name.clone(), reading })
    }

    /// The scope this binding belongs to.
    pub fn scope(&self) -> &ScopeName {
        &self.scope
    }

    /// Resolves every argument the binding names. An absent optional argument binds nothing; one of another shape
    /// than the binding expects is refused, or it would pass unbound.
    pub fn resolve(&self, args: &Value, into: &mut Vec<Resolved>) -> Result<(), OutOfScope> {
        self.walk(args, 0, &mut String::new(), into)
    }

    fn walk(
        &self,
        value: &Value,
        depth: usize,
        pointer: &mut String,
        into: &mut Vec<Resolved>,
    ) -> Result<(), OutOfScope> {
        let Some(segment) = self.param.get(depth) else { return self.leaf(value, pointer, into) };
        let length = pointer.len();
        match segment {
            Segment::Name(name) => {
                let members = value.as_object().ok_or_else(|| self.outside(pointer, "must be an object"))?;
                if let Some(child) = members.get(name) {
                    push_segment(pointer, name);
                    self.walk(child, depth + 1, pointer, into)?;
                }
            }
            Segment::Each => {
                let items = value.as_array().ok_or_else(|| self.outside(pointer, "must be an array"))?;
                for (index, child) in items.iter().enumerate() {
                    push_segment(pointer, &index.to_string());
                    self.walk(child, depth + 1, pointer, into)?;
                    pointer.truncate(length);
                }
            }
        }
        pointer.truncate(length);
        Ok(())
    }

    fn leaf(&self, value: &Value, pointer: &str, into: &mut Vec<Resolved>) -> Result<(), OutOfScope> {
        let text =
            value.as_str().ok_or_else(|| self.outside(pointer, "must be a string to be bound to a scope"))?;
        let resolved = self.reading.resolve(text).map_err(|problem| self.outside(pointer, problem))?;
        into.push(Resolved { param: pointer.to_owned(), resolved, scope: self.scope.clone() });
        Ok(())
    }

    fn outside(&self, pointer: &str, problem: impl Into<String>) -> OutOfScope {
        OutOfScope { pointer: pointer.to_owned(), scope: self.scope.clone(), problem: problem.into() }
    }
}

impl Reading {
    fn resolve(&self, text: &str) -> Result<String, String> {
        match self {
            Reading::FsPath { root } => resolve_fs_path(text, root),
            Reading::Url { host, port, tls } => resolve_url(text, host, *port, *tls),
            Reading::Host { host } if text.eq_ignore_ascii_case(host) => Ok(host.clone()),
            Reading::Host { .. } => Err("is not the declared host".into()),
            Reading::ExecPath { path } if text == path => Ok(path.clone()),
            Reading::ExecPath { .. } => Err("is not the declared program".into()),
            Reading::Prefix { prefix } if text.starts_with(prefix.as_str()) => Ok(text.to_owned()),
            Reading::Prefix { .. } => Err("does not start with the declared prefix".into()),
        }
    }
}

/// Absolute, without NUL, lexically normalised, component-wise inside the root. `%2e%2e` is a literal name.
fn resolve_fs_path(text: &str, root: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        return Err("must be an absolute path".into());
    }
    if text.contains('\0') {
        return Err("must not contain NUL".into());
    }
    let mut parts: Vec<&str> = Vec::new();
    for component in Path::new(text).components() {
        match component {
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            Component::ParentDir => {
                parts.pop().ok_or("climbs above the root")?;
            }
            Component::Normal(part) => parts.push(part.to_str().ok_or("is not UTF-8")?),
        }
    }
    let normal = format!("/{}", parts.join("/"));
    // Component-wise: /srv/project-evil is not inside /srv/project.
    if Path::new(&normal).starts_with(root) {
        Ok(normal)
    } else {
        Err("lies outside the declared folder".into())
    }
}

fn resolve_url(text: &str, host: &str, port: u16, tls: bool) -> Result<String, String> {
    let url = url::Url::parse(text).map_err(|_| "is not a URL")?;
    if url.scheme() != if tls { "https" } else { "http" } {
        return Err(format!("must be an {} URL", if tls { "https" } else { "http" }));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not carry user information".into());
    }
    if url.host_str() != Some(host) || url.port_or_known_default() != Some(port) {
        return Err("does not lead to the declared host and port".into());
    }
    Ok(url.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn path(text: &str) -> Result<String, String> {
        resolve_fs_path(text, "/srv/project")
    }

    #[test]
    fn paths_stay_inside_their_root_component_by_component() {
        // GOV-702
        assert_eq!(path("/srv/project/a.md").unwrap(), "/srv/project/a.md");
        assert_eq!(path("/srv/project//x/./y/../a.md").unwrap(), "/srv/project/x/a.md");
        assert_eq!(path("/srv/project").unwrap(), "/srv/project");
        assert_eq!(path("/srv/project/%2e%2e/x").unwrap(), "/srv/project/%2e%2e/x");
        for bad in [
            "/srv/project-evil/x",
            "/srv/project/../../etc/passwd",
            "/../../etc/passwd",
            "file:///srv/project/x",
            "~/x",
            "",
            "srv/project/x",
            "/srv/project/\0",
        ] {
            assert!(path(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn urls_lead_to_the_declared_host_and_port() {
        let url = |text| resolve_url(text, "api.example.com", 443, true);
        assert_eq!(url("https://API.example.com:443/a?b").unwrap(), "https://api.example.com/a?b");
        for bad in [
            "http://api.example.com/",
            "https://api.example.com:8443/",
            "https://u@api.example.com/",
            "https://api.example.com.evil.org/",
            "https://evil.org/?api.example.com",
            "api.example.com",
        ] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_star_binds_every_element_and_an_absent_argument_binds_nothing() {
        let binding = Binding {
            param: vec![Segment::Name("files".into()), Segment::Each, Segment::Name("path".into())],
            scope: "ws".parse().unwrap(),
            reading: Reading::FsPath { root: "/srv".into() },
        };
        let resolve = |args: Value| {
            let mut found = Vec::new();
            binding
                .resolve(&args, &mut found)
                .map(|()| found.into_iter().map(|r| r.resolved).collect::<Vec<_>>())
        };
        assert_eq!(
            resolve(json!({"files": [{"path": "/srv/a"}, {"path": "/srv/b"}]})).unwrap(),
            ["/srv/a", "/srv/b"]
        );
        assert_eq!(resolve(json!({})).unwrap(), Vec::<String>::new());
        let error = resolve(json!({"files": [{"path": "/srv/a"}, {"path": "/etc/b"}]})).unwrap_err();
        assert_eq!(error.pointer, "/files/1/path");
        assert!(!error.to_string().contains("/etc/b"), "no argument value in the text: {error}");
        // Another shape than the binding expects must not slip by unbound (GOV-702).
        for shape in [
            json!({"files": [{"path": 7}]}),
            json!({"files": "/etc/b"}),
            json!({"files": {"path": "/etc/b"}}),
            json!({"files": ["/etc/b"]}),
            json!({"files": [null]}),
        ] {
            assert!(resolve(shape.clone()).is_err(), "{shape}");
        }
    }
}

//! Chromium, driven through `browser.mjs`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::support::Daemon;

pub(super) struct Browser {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    origin: String,
}

/// Widths that pages must work at.
pub(super) const WIDTHS: [u32; 2] = [1280, 390];

impl Browser {
    /// A browser at a console, with a fresh profile.
    pub(super) fn at(daemon: &Daemon) -> Self {
        Self::with(daemon, true)
    }

    pub(super) fn without_scripts(daemon: &Daemon) -> Self {
        Self::with(daemon, false)
    }

    fn with(daemon: &Daemon, scripts: bool) -> Self {
        let modules = std::env::var_os("PORTCULLIS_NODE_MODULES").unwrap_or_else(|| {
            panic!("PORTCULLIS_NODE_MODULES is not set; run `cargo xtask test`, or `cargo xtask third-party`")
        });
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/console/browser.mjs");
        let mut child = Command::new("node")
            .arg(script)
            .arg(modules)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node starts");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut browser = Self { child, stdin, stdout, origin: daemon.console.clone() };
        browser.act("open", json!({"width": 1280, "dark": false, "scripts": scripts}));
        browser
    }

    pub(super) fn act(&mut self, act: &str, mut request: Value) -> Value {
        request["do"] = json!(act);
        writeln!(self.stdin.as_mut().unwrap(), "{request}").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let answer: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("{act}: the browser ended"));
        assert!(answer.get("error").is_none(), "{answer}");
        answer["ok"].clone()
    }

    /// The same by another name of the machine.
    pub(super) fn by_name(mut self) -> Self {
        self.origin = self.origin.replace("127.0.0.1", "localhost");
        self
    }

    /// The same gateway was started again.
    pub(super) fn move_to(&mut self, daemon: &Daemon) {
        self.origin = daemon.console.replace("127.0.0.1", "localhost");
    }

    /// Opens an address; its status.
    pub(super) fn visit(&mut self, url: &str) -> u64 {
        self.act("goto", json!({"url": url})).as_u64().unwrap_or_default()
    }

    /// Opens a page; its status.
    pub(super) fn goto(&mut self, path: &str) -> u64 {
        let url = format!("{}{path}", self.origin);
        self.act("goto", json!({"url": url})).as_u64().unwrap_or_default()
    }

    pub(super) fn log_in(&mut self, name: &str, passphrase: &str) {
        self.fill("#name", name);
        self.fill("#passphrase", passphrase);
        self.press("Enter");
        self.wait(".who");
    }

    pub(super) fn fill(&mut self, at: &str, text: &str) {
        self.act("fill", json!({"at": at, "text": text}));
    }

    pub(super) fn click(&mut self, at: &str) {
        self.act("click", json!({"at": at}));
    }

    pub(super) fn press(&mut self, key: &str) {
        self.act("press", json!({"key": key}));
    }

    pub(super) fn type_text(&mut self, text: &str) {
        self.act("type", json!({"text": text}));
    }

    /// Waits until something is there.
    pub(super) fn wait(&mut self, at: &str) {
        self.act("wait", json!({"at": at}));
    }

    /// Waits until it is not.
    pub(super) fn gone(&mut self, at: &str) {
        self.act("gone", json!({"at": at}));
    }

    pub(super) fn wait_url(&mut self, contains: &str) {
        self.act("waitUrl", json!({"contains": contains}));
    }

    pub(super) fn text(&mut self, at: &str) -> String {
        self.act("text", json!({"at": at})).as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn count(&mut self, at: &str) -> u64 {
        self.act("count", json!({"at": at})).as_u64().unwrap_or_default()
    }

    /// Nothing the browser complains about, at no width, in no light; nothing axe-core finds serious. Pictures go where
    /// `PORTCULLIS_SCREENSHOTS` says, if it does.
    pub(super) fn inspect(&mut self, name: &str) {
        for dark in [false, true] {
            for width in WIDTHS {
                let place = format!("{name}, {width} px, {}", if dark { "dark" } else { "light" });
                self.act("look", json!({"width": width, "dark": dark}));
                assert_eq!(self.act("overflow", json!({})), 0, "{place}: wider than the window");
                assert_eq!(self.act("axe", json!({})), json!([]), "{place}");
                if let Some(folder) = std::env::var_os("PORTCULLIS_SCREENSHOTS") {
                    let file = format!("{name}-{width}-{}.png", if dark { "dark" } else { "light" });
                    self.act("shot", json!({"path": PathBuf::from(folder).join(file)}));
                }
            }
        }
        self.act("look", json!({"width": 1280, "dark": false}));
        assert_eq!(self.act("errors", json!({})), json!([]), "{name}");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends with its input; one that does not is ended.
        self.stdin.take();
        for _ in 0..50 {
            if self.child.try_wait().ok().flatten().is_some() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

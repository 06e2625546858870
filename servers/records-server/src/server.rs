//! The server as a whole: what is turned on, and where it listens.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::faults::Faults;
use crate::seed::{self, Tokens};
use crate::store::Store;

/// How rich the contract is for client tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// As current releases are: no filters, no expansion.
    V01,
    /// With everything.
    Rich,
}

/// What a schema document looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Nested,
    Flat,
    Wrapped,
    WrappedNested,
}

impl FromStr for Profile {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "v01" => Ok(Profile::V01),
            "rich" => Ok(Profile::Rich),
            _ => Err("v01 or rich".into()),
        }
    }
}

impl FromStr for Shape {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "nested" => Ok(Shape::Nested),
            "flat" => Ok(Shape::Flat),
            "wrapped" => Ok(Shape::Wrapped),
            "wrapped-nested" => Ok(Shape::WrappedNested),
            _ => Err("nested, flat, wrapped or wrapped-nested".into()),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Options {
    pub listen: SocketAddr,
    pub admin_listen: SocketAddr,
    pub db: String,
    pub seed: bool,
    pub profile: Profile,
    pub shape: Shape,
    pub deterministic: bool,
}

impl Default for Options {
    fn default() -> Self {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        Self {
            listen: loopback,
            admin_listen: loopback,
            db: ":memory:".into(),
            seed: true,
            profile: Profile::V01,
            shape: Shape::Nested,
            deterministic: false,
        }
    }
}

/// What can be turned while it runs.
#[derive(Debug)]
pub struct Settings {
    pub profile: Profile,
    pub shape: Shape,
    /// Seconds since 1970, where the clock stands still.
    pub clock: Option<i64>,
}

#[derive(Debug)]
pub struct State {
    pub store: Store,
    pub settings: Mutex<Settings>,
    pub faults: Faults,
    pub base: String,
    deterministic: bool,
    counter: AtomicU64,
    keys: AtomicU64,
}

/// 2026-01-02T00:00:00Z, where tests want no time to pass.
const FIXED: i64 = 1_767_312_000;

impl State {
    pub fn settings(&self) -> (Profile, Shape) {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        (settings.profile, settings.shape)
    }

    /// Now, in seconds since 1970.
    pub fn now(&self) -> i64 {
        let fixed = self.settings.lock().unwrap_or_else(PoisonError::into_inner).clock;
        fixed.unwrap_or_else(|| jiff::Timestamp::now().as_second())
    }

    pub fn time(&self) -> String {
        let time = jiff::Timestamp::from_second(self.now()).unwrap_or_default();
        format!("{}.000Z", time.strftime("%Y-%m-%dT%H:%M:%S"))
    }

    /// An id with a prefix and so many hexadecimal digits.
    pub fn id(&self, prefix: &str, digits: usize) -> String {
        if self.deterministic {
            let number = self.counter.fetch_add(1, Ordering::Relaxed) + 1;
            return format!("{prefix}{number:0digits$x}");
        }
        let mut bytes = vec![0; digits / 2];
        getrandom::fill(&mut bytes).expect("the system has randomness");
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{prefix}{hex}")
    }

    /// A signing secret; the published test keys where nothing is random.
    pub fn secret(&self) -> String {
        let mut key = [0_u8; 32];
        if self.deterministic {
            let round = self.keys.fetch_add(1, Ordering::Relaxed) % 7;
            for (at, byte) in key.iter_mut().enumerate() {
                *byte = u8::try_from(at).unwrap_or(0) + 32 * u8::try_from(round).unwrap_or(0);
            }
        } else {
            getrandom::fill(&mut key).expect("the system has randomness");
        }
        format!("whsec_{}", STANDARD.encode(key))
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    pub rs: String,
    pub admin: String,
    pub tokens: Tokens,
    pub state: Arc<State>,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    pub async fn serve(options: Options) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        if !options.admin_listen.ip().is_loopback() {
            return Err("the admin listener is for loopback only".into());
        }
        let listener = TcpListener::bind(options.listen).await?;
        let admin = TcpListener::bind(options.admin_listen).await?;
        let (rs, admin_url) =
            (format!("http://{}", listener.local_addr()?), format!("http://{}", admin.local_addr()?));
        let settings = Settings {
            profile: options.profile,
            shape: options.shape,
            clock: options.deterministic.then_some(FIXED),
        };
        let state = Arc::new(State {
            store: Store::open(&options.db).await?,
            settings: Mutex::new(settings),
            faults: Faults::default(),
            base: rs.clone(),
            deterministic: options.deterministic,
            counter: AtomicU64::new(0),
            keys: AtomicU64::new(0),
        });
        let token = |label: &str| match options.deterministic {
            true => format!("tok_{label}_for_tests_only"),
            false => state.id("tok_", 48),
        };
        let tokens = Tokens { client: token("client"), narrow: token("narrow"), owner: token("owner") };
        seed::prepare(&state.store, &tokens, options.seed).await?;
        let tasks = vec![
            tokio::spawn(crate::http::serve(listener, state.clone(), false)),
            tokio::spawn(crate::http::serve(admin, state.clone(), true)),
            tokio::spawn(crate::deliver::run(state.clone())),
        ];
        Ok(Self { rs, admin: admin_url, tokens, state, tasks })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

//! Carrying checkpoints to witnesses (AUD-34): the log knows no HTTP, and asks from a thread of its own.

use portcullis_audit::{Answer, Courier};
use portcullis_upstream::web::Web;
use tokio::runtime::Handle;

/// A courier that works on this runtime.
#[derive(Debug)]
pub(crate) struct HttpCourier {
    web: Web,
    runtime: Handle,
}

impl HttpCourier {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { web: Web::default(), runtime }
    }
}

impl Courier for HttpCourier {
    fn post(&self, url: &str, body: String) -> Result<Answer, String> {
        let url = url.parse().map_err(|_| format!("{url:?} is not an address"))?;
        let (status, body) =
            self.runtime.block_on(self.web.post_text(&url, body)).map_err(|error| error.to_string())?;
        Ok(Answer { status, body })
    }
}

//! What happens with real processes. These live inside the crate because an exchange without a permit must not be
//! possible from outside it, not even for a test.

mod handshake;
mod http;
mod legacy_sse;
mod lifetime;
mod spy;
mod stdio;
mod tls;

pub(crate) use spy::launcher;

//! The only authority: who may do what, under which declaration, with whose approval.
//!
//! An agent proposes; this crate decides. It owns the types through which a proposal must pass, in this order,
//! before a byte may leave the gateway:
//!
//! ```text
//! AcceptedDeclaration ── AcceptedTool ──┐
//!                                       ├─ CanonicalRequest ─ Decision ─ Authorised ─ Permit ─ ValidatedPermit
//! Args ── Screened (gauntlet) ──────────┘
//! ```
//!
//! | module | what it decides |
//! |---|---|
//! | [`record`], [`endpoint`] | what is registered, and whether its transport may be used at all |
//! | [`declaration`] | what a server may offer: strict YAML, acceptance rules, comparison with the live server |
//! | [`accepted`] | the tools that came through acceptance; nothing else can be called |
//! | [`binding`] | which argument must stay inside which scope |
//! | [`request`] | the one canonical form of a call, and its digests |
//! | [`policy`] | Cedar: may it happen, may it happen unattended, which approvals may be asked for |
//! | [`approval`] | what operators decided, and what is left of it |
//! | [`permit`] | permission to transmit one exact request once |
//! | [`boundary`] | the eight checks between a permit and the wire |
//! | [`broker`] | which call is given which credential, and for how long |
//! | [`trust`] | who has earned to be asked about less often |
//! | [`registry`] | all of it as one immutable snapshot |
//!
//! It deliberately speaks no MCP, opens no socket and starts no process: `upstream` does, and only for a
//! [`boundary::ValidatedPermit`].
//!
//! # Invariants (GOV-1602)
//! - A [`request::CanonicalRequest`] is built only from an [`accepted::AcceptedTool`] (INV-MP-001).
//! - A [`permit::Permit`] is built only from an [`policy::Authorised`] over that very request (INV-MP-002).
//! - A [`boundary::ValidatedPermit`] is built only by [`boundary::Boundary::admit`], after its intent is durable,
//!   and `transmit` takes it by value (INV-MP-003). None of the three is `Clone` or `Deserialize`.
//! - A response cannot be read before it is recorded: [`boundary::SealedResponse`] has no accessors, and
//!   [`boundary::Boundary::settle`] is the one way from it to a [`boundary::ReleasedResponse`].
//! - An operator's change needs an [`operator::OperatorProof`] (INV-MP-004).

pub mod accepted;
pub mod approval;
pub mod binding;
pub mod boundary;
pub mod broker;
mod capability;
pub mod confinement;
pub mod declaration;
pub mod draft;
pub mod endpoint;
pub mod evidence;
#[cfg(test)]
mod fixture;
pub mod mirrored;
pub mod notes;
pub mod operator;
pub mod permit;
pub mod pinned;
pub mod policy;
pub mod record;
pub mod registry;
pub mod request;
#[cfg(test)]
mod sequence_tests;
pub mod session;
pub mod subject;
pub mod trail;
pub mod trust;
pub mod uri_template;
pub mod wire_uri;

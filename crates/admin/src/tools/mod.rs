//! The tools, one module of them per part of the gateway (admin §12).

mod approvals;
mod audit;
mod calls;
mod declarations;
mod meta;
mod policies;
mod servers;
mod trust;

use crate::registry::Module;

/// Every module.
pub fn modules() -> Vec<Module> {
    vec![
        approvals::module(),
        audit::module(),
        calls::module(),
        declarations::module(),
        meta::module(),
        policies::module(),
        servers::module(),
        trust::module(),
    ]
}

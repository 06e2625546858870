//! The tools, one module of them per part of the gateway (admin §12).

mod approvals;
mod audit;
mod calls;
mod catalogue;
mod history;
pub mod house;
mod later;
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
        catalogue::module(),
        history::module(),
        house::module(),
        later::module(),
        meta::module(),
        policies::module(),
        servers::module(),
        trust::module(),
    ]
}

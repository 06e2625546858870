//! The tools, one module of them per part of the gateway (admin §12).

mod approvals;
mod audit;
mod calls;
mod catalogue;
mod credentials;
mod history;
pub mod house;
mod later;
mod memory;
mod meta;
mod organisation;
mod policies;
mod servers;
mod sessions;
mod trust;

use crate::registry::Module;

/// Every module.
pub fn modules() -> Vec<Module> {
    vec![
        approvals::module(),
        audit::module(),
        calls::module(),
        catalogue::module(),
        credentials::module(),
        history::module(),
        house::module(),
        later::module(),
        memory::module(),
        meta::module(),
        organisation::module(),
        policies::module(),
        servers::module(),
        sessions::module(),
        trust::module(),
    ]
}

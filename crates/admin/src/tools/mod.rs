//! The tools, one module of them per part of the gateway (admin §12).

mod approvals;
mod audit;
mod calls;
mod catalogue;
mod clients;
mod credentials;
mod custody;
mod declarations;
mod drafting;
mod enrolling;
mod history;
pub mod house;
mod imports;
mod later;
mod memory;
mod meta;
mod notices;
mod organisation;
mod policies;
mod quality;
mod servers;
mod sessions;
mod settings;
mod trust;
mod upkeep;

use crate::registry::Module;

/// Every module.
pub fn modules() -> Vec<Module> {
    vec![
        approvals::module(),
        audit::module(),
        calls::module(),
        catalogue::module(),
        clients::module(),
        credentials::module(),
        custody::module(),
        declarations::module(),
        drafting::module(),
        enrolling::module(),
        history::module(),
        house::module(),
        imports::module(),
        later::module(),
        memory::module(),
        meta::module(),
        notices::module(),
        organisation::module(),
        policies::module(),
        quality::module(),
        servers::module(),
        sessions::module(),
        settings::module(),
        trust::module(),
        upkeep::module(),
    ]
}

//! `[[gate]]`: gates before tools, checked and tried when they are read (SURF-97).

use portcullis_gateway::gates::{ArgumentGate, GateOptions};

use crate::failure::Failure;

pub(crate) fn ready(gates: &[GateOptions]) -> Result<Vec<ArgumentGate>, Failure> {
    let mut ids = std::collections::BTreeSet::new();
    let ready = gates.iter().map(|options| {
        if !ids.insert(options.id.clone()) {
            return Err(Failure::field("gate.id", format!("two gates are called {:?}", options.id)));
        }
        let id = options.id.clone();
        ArgumentGate::new(options.clone()).map_err(|(key, message)| {
            Failure::field(&format!("gate.{id}.{key}"), format!("gate {id}: {key}: {message}"))
        })
    });
    ready.collect()
}

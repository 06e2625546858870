//! State as a projection of the audit log.

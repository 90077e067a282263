//! The audit log.

/// The target of all events of the audit log.
pub(crate) const AUDIT: &str = "throttlekit::audit";

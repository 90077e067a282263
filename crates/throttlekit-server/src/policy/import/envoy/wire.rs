//! The file format of that service.

use serde::Deserialize;

/// A file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Domain {
    pub(super) domain: String,
    pub(super) descriptors: Option<Vec<Descriptor>>,
}

/// A descriptor, and its children.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Descriptor {
    pub(super) key: String,
    pub(super) value: Option<String>,
    pub(super) rate_limit: Option<RateLimit>,
    pub(super) descriptors: Option<Vec<Descriptor>>,
    #[serde(default)]
    pub(super) shadow_mode: bool,
    #[serde(default)]
    pub(super) quota_mode: bool,
    #[serde(default)]
    pub(super) detailed_metric: bool,
    #[serde(default)]
    pub(super) value_to_metric: bool,
    #[serde(default)]
    pub(super) share_threshold: bool,
}

/// The limit of a descriptor.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateLimit {
    pub(super) unit: Option<String>,
    pub(super) unit_multiplier: Option<u64>,
    pub(super) requests_per_unit: Option<u64>,
    #[serde(default)]
    pub(super) unlimited: bool,
    pub(super) name: Option<String>,
    pub(super) replaces: Option<Vec<Replaced>>,
}

/// A limit that is not checked if this one is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Replaced {
    pub(super) name: String,
}

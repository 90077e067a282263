//! Differences between stores.

use throttlekit_core::rate::Limit;

use super::KEY_PART_MAX;

/// Differences between stores that limiters over them take into account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    pub(crate) key_part_max: usize,
    partial_leases: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self { key_part_max: KEY_PART_MAX, partial_leases: false }
    }
}

impl Capabilities {
    /// Sets the maximum length of a part of a key that is written out; a longer one is replaced by its hash. For stores
    /// that read keys. Default: [`KEY_PART_MAX`].
    pub fn key_part_max(self, bytes: usize) -> Self {
        Self { key_part_max: bytes, ..self }
    }

    /// Declares that a lease may be smaller than the request that needs it, although more units are left. Such leases
    /// add up for a window, to its limit at most. Those of a smooth rate do not, so that only requests of cost 1 are
    /// served from them. All others go to the store. Default: leases cover the request, or nothing is lent.
    pub fn partial_leases(self) -> Self {
        Self { partial_leases: true, ..self }
    }

    /// Returns the maximum cost of a request that is served from leases.
    pub(crate) fn leased_cost_max(&self, limit: &Limit) -> u64 {
        match (self.partial_leases, limit) {
            (false, _) => u64::MAX,
            (true, Limit::Window(_)) => limit.units(),
            (true, _) => 1,
        }
    }
}

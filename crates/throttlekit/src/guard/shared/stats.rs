//! Statistics of a shared guard, for dashboards.

use crate::guard::divided::DivisionStats;
use crate::guard::slot_leases::SlotStats;

/// A [`SharedGuard`](crate::SharedGuard) at one instant, as this process sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedGuardStats {
    /// Maximum number in flight: in all processes, of each key if limits are per key. Divided: on this node.
    pub limit: u32,
    /// Number in flight in this process, over all keys.
    pub in_flight: u32,
    /// `true` if a divided node has no valid share: it admits nothing, or only its local share.
    pub fenced: bool,
    /// Statistics of slots on the store. `None` if the limit is divided.
    pub slots: Option<SlotStats>,
    /// Statistics of the division. `None` unless the limit is divided.
    pub division: Option<DivisionStats>,
}

//! Defaults and limits of the file format that the engine and the APIs use as well.

use std::time::Duration;

use super::model::{ConcurrencySpec, FleetSpec, LearnSpec, LeaseSpec, WaitSpec};

/// The most keys of one request.
pub const KEYS_MAX: usize = 8;
/// Time for which servers hold leased units of a smooth rate.
pub const HELD_FOR: Duration = Duration::from_millis(100);
/// Time for which a client's slot is held without a heartbeat.
pub const LEASE_FOR: Duration = Duration::from_secs(2);
/// Maximum number of units that are leased to a client at a time.
pub const LENT_MAX: u64 = 1_000_000;
/// Time for which units of a smooth rate are leased to clients, and for which a fallback leases during an outage.
pub const LENT_FOR: Duration = Duration::from_secs(1);
/// Maximum number of tokens that a learned reservation has beyond the input.
const LEARNED_MAX: u64 = 4_096;
/// Maximum number of calls that wait for one policy.
const WAITING_MAX: u32 = 1_000;

impl LeaseSpec {
    /// Returns the time for which servers hold leased units of a smooth rate. Default: [`HELD_FOR`].
    pub fn hold_for(&self) -> Duration {
        self.hold.map_or(HELD_FOR, |hold| hold.0)
    }
}

impl ConcurrencySpec {
    /// Returns the time for which a client's slot is held without a heartbeat. Default: [`LEASE_FOR`].
    pub fn slot_lease(&self) -> Duration {
        self.lease_for.map_or(LEASE_FOR, |span| span.0)
    }
}

impl LearnSpec {
    /// Returns the maximum number of tokens to reserve beyond the input. Default: 4,096.
    pub fn tokens_max(&self) -> u64 {
        self.max.unwrap_or(LEARNED_MAX)
    }
}

impl FleetSpec {
    /// Returns the maximum number of units that are leased to a client at a time. Default: [`LENT_MAX`].
    pub fn units_max(&self) -> u64 {
        self.lease_max.unwrap_or(LENT_MAX)
    }
}

impl WaitSpec {
    /// Returns the maximum number of calls that wait. Default: 1,000.
    pub fn calls_max(&self) -> u32 {
        self.queue.unwrap_or(WAITING_MAX)
    }
}

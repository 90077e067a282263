//! Statistics of a guard, for dashboards.

/// A [`Guard`](crate::Guard) or a [`KeyedGuard`](super::KeyedGuard) at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardStats {
    /// Maximum number in flight.
    pub limit: u32,
    /// Number in flight.
    pub in_flight: u32,
    /// Number of waiters.
    pub waiting: u32,
    /// The limit before [`cap`](crate::Guard::cap): fixed, or inferred here.
    pub own_limit: u32,
    /// Completed calls whose latency was sampled.
    pub samples: u64,
    /// Completed calls with the outcome `dropped`.
    pub dropped: u64,
    /// Number of keys with a limit of their own in memory; at most `keys_max`.
    pub keys: usize,
    /// Number of requests of new keys that share one limit. Above zero, `keys_max` is too small for the load.
    pub overflowing: usize,
}

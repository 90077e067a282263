//! Statistics of a divided limit, for dashboards.

use throttlekit_core::concurrency::division::Grant;

/// One node of a divided [`SharedGuard`](crate::SharedGuard) at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DivisionStats {
    /// Maximum number in flight on this node: its share, or less if it infers less, or zero while it is fenced.
    pub limit: u32,
    /// Number in flight on this node.
    pub in_flight: u32,
    /// The last grant.
    pub grant: Option<Grant>,
    /// Number of nodes that share the limit, at the last grant.
    pub nodes: u32,
    /// Inferred limit of the whole backend; zero while it is unknown, or the limit is fixed.
    pub inferred: u32,
    /// Demand that it reported.
    pub wants: u32,
    /// `true` if its grant has expired: it admits nothing, or only its local share.
    pub fenced: bool,
    /// Heartbeats sent.
    pub heartbeats: u64,
    /// Of these, those that returned a valid grant.
    pub grants: u64,
    /// Of these, those that found a later one of this node, or returned an older grant.
    pub stale: u64,
    /// Of these, those that failed or got no response.
    pub failed: u64,
    /// Number of conflicts with another node's heartbeat: each cost one round trip.
    pub races: u64,
    /// Number of times that its grant expired.
    pub fences: u64,
    /// Requests that were denied.
    pub denied: u64,
}

//! What a fleet guard has seen, for dashboards.

use throttlekit_core::concurrency::fleet::Grant;

/// A fleet guard at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FleetStats {
    /// How many this node may have in flight: its share, or less where it infers less, or nothing while it is fenced.
    pub limit: u32,
    /// How many it has.
    pub in_flight: u32,
    /// What it was granted last.
    pub grant: Option<Grant>,
    /// What it infers that the whole backend takes; zero while it does not know, or the ceiling is fixed.
    pub inferred: u32,
    /// What it said that it wants.
    pub wants: u32,
    /// Its grant has died: it lets nothing in, or only its local share.
    pub fenced: bool,
    /// Reports sent.
    pub beats: u64,
    /// Of them, those that were answered with a grant that counts.
    pub grants: u64,
    /// Of them, those that found a later one of this node, or brought an older grant.
    pub stale: u64,
    /// Of them, those that were not answered, or with an error.
    pub failed: u64,
    /// How often another node's beat came between: each cost one round trip.
    pub races: u64,
    /// How often its grant died.
    pub fences: u64,
    /// Asks that were turned away.
    pub denied: u64,
}

//! `fleet-rolls`: a store of membership records swaps them as the in-memory one does, and loses no heartbeat of a race.
//!
//! * [`examine_membership`] runs traces of loads and swaps against a [`MembershipStore`](throttlekit::store::MembershipStore) and
//!   against a plain map, and compares every response.
//! * [`race`] lets nodes send heartbeats at once and replays their grants, in the order of their numbers, on the pure
//!   rebalance.

mod race;
mod same;
mod scenario;
mod seeded;

pub use race::{Race, find_in_race, race};
pub use same::{MembershipReport, examine_membership, find_membership_bug};
pub use scenario::{MembershipOperation, MembershipScenario};
pub use seeded::{MembershipBug, SeededMembership};

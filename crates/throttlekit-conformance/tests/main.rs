//! Tests of the suite itself: invariants hold, and seeded bugs are found.

mod golden;
mod invariants;
mod membership;
mod regions;
mod slots;
mod stores;
mod suite;

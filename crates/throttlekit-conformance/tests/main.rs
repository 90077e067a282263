//! Tests of the suite itself: laws hold, and seeded bugs are found.

mod golden;
mod laws;
mod membership;
mod regions;
mod slots;
mod stores;
mod suite;

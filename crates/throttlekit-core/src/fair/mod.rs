//! Fairness: one budget, many tenants, each by its weight.
//!
//! A [`Roster`] holds the members that share a budget and what each has used of it. It computes, without walking over
//! its members each time, each member's guarantee `⌊w·L/W⌋`, what is left, and what is reserved for the others.
//! [`Escrow`] and [`FairShare`] add windows and return a [`Decision`](crate::Decision); [`weighted_max_min`] divides
//! once among demands that are known.
//!
//! Members are handles here. The caller maps names (tenants, teams, regions) to handles.

pub mod branch;
mod class;
mod classes;
mod current_window;
mod escrow;
mod give_back;
mod least_used;
mod max_min;
pub mod pool;
mod roster;
mod share;
mod tree;
mod weight;

pub use escrow::Escrow;
pub use give_back::GiveBack;
pub use max_min::weighted_max_min;
pub use roster::{MEMBERS_MAX, Member, Roster};
pub use share::FairShare;
pub use tree::{DEPTH_MAX, Group, Leaf, Tree, TreeDecision};
pub use weight::{WEIGHT_MAX, Weight, WeightError, guarantee};

#[cfg(test)]
mod tests;

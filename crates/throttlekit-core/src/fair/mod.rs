//! Fairness: one budget, many tenants, each by its weight.
//!
//! A [`Roster`] is who shares a budget and what each has used of it. It knows, without walking over its members each time,
//! what fairness is made of: each member's guarantee `⌊w·L/W⌋`, what is left, and what is reserved for the others.
//! [`Escrow`] and [`FairShare`] give it windows and answer with a [`Decision`](crate::Decision);
//! [`weighted_max_min`] divides once among demands that are known.
//!
//! Members are handles here. Whoever holds names (tenants, teams, regions) maps them to handles.

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

//! Unified admission: one ask over all axes, whatever mix of stores they are on.
//!
//! * [`examine_fused`]: sequential ≡ fused, decisions and states, for every pair of rules.
//!
//! The same checks judge a [`Model`] with each of the [`ADMISSION_BUGS`], and must find them.

mod fused;
mod fused_world;
mod model;
mod pair;
mod subject;

pub use fused::{FusedReport, examine_fused, find_fused_bug};
pub use fused_world::{FusedOperation, FusedWorld, PAIRS, RULES, Rules};
pub use model::{ADMISSION_BUGS, AdmissionBug, Model, Setup, Ticket};
pub use pair::{OnStore, Pairs, PlantedPairs, StoreWay, Way};
pub use subject::{Asked, End, Heard, Subject, Told, Watch, Words};

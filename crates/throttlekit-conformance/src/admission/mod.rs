//! Unified admission: one ask over all axes, whatever mix of stores they are on.
//!
//! * [`examine_matrix`]: every subset of axes, whoever of them denies, in every mix of stores.
//! * [`examine_fused`]: sequential ≡ fused, decisions and states, for every pair of rules.
//!
//! The same checks judge a [`Model`] with each [`AdmissionBug`], and must find them.

mod cell;
mod fused;
mod fused_world;
mod matrix;
mod model;
mod pair;
mod seat;
mod subject;

pub use cell::{Cell, Denier, Limits, Mix};
pub use fused::{FUSED_BUGS, FusedReport, examine_fused, find_fused_bug};
pub use fused_world::{FusedOperation, FusedWorld, PAIRS, RULES, Rules};
pub use matrix::{MATRIX_BUGS, MatrixReport, cells, examine_matrix, find_matrix_bug};
pub use model::{AdmissionBug, Model, Setup, Ticket};
pub use pair::{OnStore, Pairs, PlantedPairs, StoreWay, Way};
pub use seat::{Bench, Either, PlantedBench, PlantedSeat, RealBench, RealSeat, Seat};
pub use subject::{Asked, End, Heard, Subject, Told, Watch, Words};

//! Unified admission: one request over all axes, in any mix of stores.
//!
//! * [`examine_matrix`]: every subset of axes, every possible denier, in every mix of stores.
//! * [`examine_fused`]: sequential ≡ fused, decisions and states, for every pair of rules.
//! * [`check_order`]: the response is the fold of the limits, in whatever order they are named.
//! * [`examine_priced`]: prices only remove admits, and are checked before anything is charged.
//!
//! The same checks run on a [`Model`] with each [`AdmissionBug`], and must find them.

mod cell;
mod fixture;
mod fused;
mod fused_scenario;
mod matrix;
mod model;
mod order;
mod pair;
mod priced;
mod subject;

pub use cell::{Cell, Denier, Limits, Mix};
pub use fixture::{Bench, Either, Fixture, RealBench, RealFixture, SeededBench, SeededFixture};
pub use fused::{FUSED_BUGS, FusedReport, examine_fused, find_fused_bug};
pub use fused_scenario::{FusedOperation, FusedScenario, PAIRS, RULES, Rules};
pub use matrix::{MATRIX_BUGS, MatrixReport, cells, examine_matrix, find_matrix_bug};
pub use model::{AdmissionBug, Model, Setup, Ticket};
pub use order::{AxisFold, OrderBug, check_order};
pub use pair::{Extras, OnStore, Pairs, Pricing, SeededPairs, StoreWay, Way};
pub use priced::{PRICED_BUGS, PricedReport, PricedScenario, examine_priced, find_priced_bug};
pub use subject::{Asked, End, Heard, Subject, Told, Watch, Words};

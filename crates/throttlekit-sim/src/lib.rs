//! The production lease machine under a model checker and in a simulated cluster.
//!
//! [`operation`] is the one vocabulary of what can happen, and [`state`] applies it to production code.
//! [`models`] explores every interleaving of small scenarios. [`cluster`] runs large ones under [`faults`], and finds
//! the seeded [`bugs`]. [`scale`] measures what leasing costs as clusters grow.

pub mod bugs;
pub mod cluster;
pub mod dice;
pub mod faults;
pub mod models;
pub mod operation;
pub mod scale;
pub mod slots;
pub mod state;

//! The production lease machine under a model checker and in a simulated fleet.
//!
//! [`operation`] is the one vocabulary of what can happen, and [`world`] lets it happen to production code.
//! [`models`] explores every interleaving of small worlds. [`fleet`] runs large ones under [`faults`], and finds
//! the seeded [`bugs`]. [`scale`] measures what leasing costs as fleets grow.

pub mod bugs;
pub mod dice;
pub mod faults;
pub mod fleet;
pub mod models;
pub mod operation;
pub mod scale;
pub mod slots;
pub mod world;

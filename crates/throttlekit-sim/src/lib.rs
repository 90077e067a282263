//! The production lease machine under a model checker and in a simulated fleet.
//!
//! [`models`] explores every interleaving of small worlds.

pub mod models;

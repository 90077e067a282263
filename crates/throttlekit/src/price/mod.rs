//! Prices: deny requests whose value is below the price of the budget they would use.
//!
//! A [`Pricer`] decides before the limits. Its [`Prices`] are fixed, computed from a workload, or follow the traffic
//! with a [`Refiner`].

mod pricer;

pub use pricer::Pricer;
pub use throttlekit_core::price::*;

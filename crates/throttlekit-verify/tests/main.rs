//! Tests of the experiments at a small size: guarantees hold, and seeded bugs are found.

mod admission;
mod budget;
mod budget_tree;
mod budget_use;
mod busiest;
mod drill;
mod extremes;
mod fair;
mod guard;
mod harness;
mod inference;
mod isolation;
mod learn;
mod metering;
mod outbound;
mod price;
mod rate_exact;
mod regions;
mod reload;
mod sketch;
mod streams;
mod throttle;
mod turn;

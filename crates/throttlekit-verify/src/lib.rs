//! Experiments and checks of the project's own components, with the seeded bugs that they find. Not
//! published.
//!
//! * [`admission`] compares requests over all axes with a model.
//! * [`fair`] checks rules that share a budget among tenants.
//! * [`learn`] compares the learners with the best fixed choice in hindsight.
//! * [`budget`] lets many gateways debit one token budget.
//! * [`budget_tree`] draws on several token budgets with one call: invariant `budget-tree`.
//! * [`budget_use`] shows that token budgets get used, whatever other keys do.
//! * [`price`] checks prices with other solvers and by their earnings.
//! * [`inference`] runs backends of a known capacity against estimators of a ceiling.
//! * [`isolation`] lets one of several callers misbehave.
//! * [`metering`] compares three ways to meter tokens.
//! * [`outbound`] sends arbitrary responses to a client that learns a provider's limits: invariant
//!   `learned-ceiling`.
//! * [`streams`] examines token budgets with reservations for streams.
//! * [`sketch`] floods limiters that keep any number of keys in fixed memory.
//! * [`busiest`] compares the tracked busiest keys with exact counts.
//! * [`throttle`] sends calls to a full backend.
//! * [`drill`] makes requests over all axes under faults.
//! * [`guard`] checks the guarantees of in-process slots.
//! * [`divided`] lets node processes share the ceiling of a backend process.
//! * [`regions`] divides one budget between tenants of several regions.
//! * [`reload`] changes the numbers of limits in flight: invariant `reload-room`.
//! * [`turn`] lets callers wait for a limiter: invariant `turn-order`.
//!
//! `throttlekit-verify-drivers` runs all of it by name for `cargo xtask verify`.

pub mod admission;
pub mod budget;
pub mod budget_tree;
pub mod budget_use;
pub mod busiest;
pub mod drill;
pub mod fair;
// It uses sockets, which tokio does not have where loom replaces its atomics.
#[cfg(not(loom))]
pub mod divided;
pub mod guard;
pub mod inference;
// It drives runtimes, which loom does not have.
#[cfg(not(loom))]
pub mod isolation;
pub mod key_capacity;
pub mod learn;
pub mod metering;
pub mod outbound;
pub mod postgres;
pub mod price;
pub mod python;
pub mod regions;
pub mod reload;
pub mod sketch;
pub mod streams;
pub mod throttle;
pub mod turn;

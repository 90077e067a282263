//! Experiments and checks that the project runs on its own parts, with the seeded bugs that they find. Not published.
//!
//! * [`admission`] holds one ask over all axes to its model, and its seeded bugs.
//! * [`fair`] judges whatever shares a budget among tenants, and its seeded bugs.
//! * [`learn`] shows what the learners pay beside the best in hindsight, and its seeded bugs.
//! * [`budget`] lets fleets of gateways debit one token budget, and its seeded bugs.
//! * [`budget_use`] shows that token budgets get used, whatever others do, and its seeded bugs.
//! * [`price`] judges prices by other solvers and by what they earn, and its seeded bugs.
//! * [`inference`] plays backends of a known capacity to whatever infers a ceiling, and its seeded bugs.
//! * [`isolation`] lets one of several callers misbehave, and its seeded bugs.
//! * [`metering`] plays three ways to meter tokens beside each other.
//! * [`outbound`] sends any responses to what learns a provider's limits: invariant `learned-ceiling`, and its seeded bugs.
//! * [`streams`] examines token budgets that streams hold, whatever is set aside for them.
//! * [`sketch`] floods limiters that keep any number of keys in fixed memory, and its seeded bugs.
//! * [`busiest`] holds what is told of the busiest of many keys against exact counts, and its seeded bugs.
//! * [`throttle`] plays calls to a backend that is full, and its seeded bugs.
//! * [`drill`] asks all axes at once among faults, and its seeded bugs.
//! * [`guard`] holds what slots in process promise, and its seeded bugs.
//! * [`divided`] lets node processes share the ceiling of a backend process, and its seeded bugs.
//! * [`regions`] divides one budget between tenants of several regions, and its seeded bugs.
//! * [`reload`] changes the numbers of limits in flight: invariant `reload-room`, and its seeded bugs.
//! * [`turn`] lets callers wait for a limiter: invariant `turn-order`, and its seeded bugs.
//!
//! `throttlekit-verify-drivers` runs all of it by name for `cargo xtask verify`.

pub mod admission;
pub mod budget;
pub mod budget_use;
pub mod busiest;
pub mod drill;
pub mod fair;
// It has sockets, of which tokio has none where loom takes its atomics.
#[cfg(not(loom))]
pub mod divided;
pub mod guard;
pub mod inference;
// It drives runtimes, which loom has none of.
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

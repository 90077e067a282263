//! What every store must pass, and the laws with the bugs they find.
//!
//! * [`Timeline`] is a limit, asks and answers as text; [`vectors`] keeps ours, [`golden`] reads those of the
//!   first implementation.
//! * [`Subject`] is anything that answers asks; [`suite`] examines it against the pure rules, field by field.
//! * [`World`] is a random sequence of [`Operation`]s from one seed; [`laws`] holds what no world may break, and
//!   shows with seeded bugs that each law can fail.
//! * [`bugs`] declares seeded bugs with their descriptions, and holds the outcome of looking for them.
//! * [`admission`] holds one ask over all axes to its model, and its seeded bugs.
//! * [`fair`] judges whatever shares a budget among tenants, and its seeded bugs.
//! * [`learn`] shows what the learners pay beside the best in hindsight, and its seeded bugs.
//! * [`budget`] lets fleets of gateways debit one token budget, and its seeded bugs.
//! * [`budget_use`] shows that token budgets get used, whatever others do, and its seeded bugs.
//! * [`price`] judges prices by other solvers and by what they earn, and its seeded bugs.
//! * [`fair`] judges whoever shares a budget by weight, nested or not, and its seeded bugs.
//! * [`budget`] lets fleets debit one token budget, and its seeded bugs.
//! * [`inference`] plays backends of a known capacity to whatever infers a ceiling, and its seeded bugs.
//! * [`isolation`] lets one of several callers misbehave, and its seeded bugs.
//! * [`metering`] plays three ways to meter tokens beside each other.
//! * [`streams`] examines token budgets that streams hold, whatever is set aside for them.
//! * [`sketch`] floods limiters that keep any number of keys in fixed memory, and its seeded bugs.
//! * [`busiest`] holds what is told of the busiest of many keys against exact counts, and its seeded bugs.
//! * [`throttle`] plays calls to a backend that is full, and its seeded bugs.
//! * [`regions`] holds what several regions may take of one budget, and its seeded bugs.
//! * [`drill`] asks all axes at once among faults, and its seeded bugs.
//! * [`guard`] holds what slots in process promise, and its seeded bugs.
//! * [`slots`] holds who may work in how many slots, and its seeded bugs.
//! * [`fleet`] lets node processes share the ceiling of a backend process, and its seeded bugs.
//! * [`reload`] changes the numbers of limits under way: invariant `reload-room`, and its seeded bugs.
//! * [`rolls`] examines whoever keeps the rolls of fleets, and its seeded bugs.
//! * [`stores`] examines what several processes share: every answer and every state of a
//!   [`Store`](throttlekit::store::Store).
//!
//! A store's test is ten lines:
//!
//! ```
//! use throttlekit_conformance::{CoreSubject, examine};
//!
//! let report = examine(|limit, _start| CoreSubject::new(*limit), 10);
//! # drop(report);
//! ```

pub mod admission;
pub mod budget;
pub mod budget_use;
pub mod bugs;
pub mod busiest;
mod check;
mod dice;
pub mod drill;
pub mod fair;
// It has sockets, of which tokio has none where loom takes its atomics.
#[cfg(not(loom))]
pub mod fleet;
pub mod golden;
pub mod guard;
pub mod inference;
// It drives runtimes, which loom has none of.
#[cfg(not(loom))]
pub mod isolation;
pub mod key_capacity;
pub mod laws;
pub mod learn;
pub mod metering;
mod played;
pub mod postgres;
pub mod price;
pub mod python;
pub mod regions;
pub mod reload;
pub mod rolls;
pub mod sketch;
pub mod slots;
mod spec;
pub mod stores;
pub mod streams;
mod subject;
mod suite;
mod text;
pub mod throttle;
pub mod timeline;
pub mod vectors;
pub mod world;

pub use dice::Dice;
pub use spec::Spec;
pub use subject::{CoreSubject, Subject};
pub use suite::{Report, WORLDS, examine, play, suite};
pub use timeline::Timeline;
pub use world::{Operation, World};

/// The README's code, run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

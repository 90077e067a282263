//! The conformance suite of stores, and the invariants with the seeded bugs they find.
//!
//! * [`Trace`] is a limit, requests and decisions as text; [`vectors`] reads ours, [`golden`] those of the
//!   first implementation.
//! * [`Subject`] is the object under test; [`suite`] compares it with the pure rules, field by field.
//! * [`Scenario`] is random: a sequence of [`Operation`]s from one seed; [`invariants`] contains the invariants that
//!   every scenario must keep, and shows with seeded bugs that each can fail.
//! * [`mod@bugs`] declares seeded bugs with their descriptions, and the outcome of looking for them.
//! * [`regions`] checks how several regions share one budget, and its seeded bugs.
//! * [`slots`] checks shared concurrency limits, and its seeded bugs.
//! * [`membership`] checks stores of membership records, and its seeded bugs.
//! * [`stores`] checks shared state: every response and every state of a [`Store`](throttlekit::store::Store).
//!
//! A store's test is ten lines:
//!
//! ```
//! use throttlekit_conformance::{CoreSubject, examine};
//!
//! let report = examine(|limit, _start| CoreSubject::new(*limit), 10)?;
//! assert!(report.answers > 100, "{report:?}");
//! # Ok::<(), throttlekit_conformance::Difference>(())
//! ```

pub mod bugs;
#[doc(hidden)]
pub mod check;
mod dice;
mod difference;
pub mod golden;
mod half_years;
pub mod invariants;
pub mod membership;
pub mod regions;
#[doc(hidden)]
pub mod runner;
pub mod scenario;
pub mod slots;
mod spec;
pub mod stores;
mod subject;
mod suite;
#[doc(hidden)]
pub mod text;
pub mod trace;
pub mod vectors;

pub use dice::Dice;
pub use difference::Difference;
pub use scenario::{Operation, Scenario};
pub use spec::Spec;
pub use subject::{CoreSubject, Subject};
pub use suite::{SCENARIOS, SuiteReport, examine, play, suite};
pub use trace::Trace;

/// The README's code, run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

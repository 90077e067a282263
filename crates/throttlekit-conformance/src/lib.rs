//! What every store must pass, and the laws with the bugs they find.
//!
//! * [`Timeline`] is a limit, asks and answers as text; [`vectors`] keeps ours, [`golden`] reads those of the
//!   first implementation.
//! * [`Subject`] is anything that answers asks; [`suite`] examines it against the pure rules, field by field.
//! * [`World`] is a random sequence of [`Operation`]s from one seed; [`laws`] holds what no world may break, and
//!   shows with seeded bugs that each law can fail.
//! * [`mod@bugs`] declares seeded bugs with their descriptions, and holds the outcome of looking for them.
//! * [`regions`] holds what several regions may take of one budget, and its seeded bugs.
//! * [`slots`] holds who may work in how many slots, and its seeded bugs.
//! * [`rolls`] examines whoever keeps the rolls of fleets, and its seeded bugs.
//! * [`stores`] examines what several processes share: every answer and every state of a
//!   [`Store`](throttlekit::store::Store).
//!
//! A store's test is ten lines:
//!
//! ```
//! use throttlekit_conformance::{CoreSubject, examine};
//!
//! let report = examine(|limit, _start| CoreSubject::new(*limit), 10)?;
//! assert!(report.answers > 100, "{report:?}");
//! # Ok::<(), String>(())
//! ```

pub mod bugs;
#[doc(hidden)]
pub mod check;
mod dice;
pub mod golden;
pub mod laws;
#[doc(hidden)]
pub mod played;
pub mod regions;
pub mod rolls;
pub mod slots;
mod spec;
pub mod stores;
mod subject;
mod suite;
#[doc(hidden)]
pub mod text;
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

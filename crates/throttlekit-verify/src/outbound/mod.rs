//! `learned-ceiling`: with any responses whatever, calls never exceed the configured ceiling, and never stop
//! for longer than the stated maximum.
//!
//! A case is one upstream with random ceilings and settings. Calls and responses come in any order; half of
//! the responses are of a truthful provider, by any clock, and half have any values in any headers. A judge
//! that has only the numbers of the ceiling, the admitted calls and the truthful responses checks every
//! decision:
//!
//! * `ceiling`: no call is admitted beyond the configured limits, and no learned limit is above them;
//! * `stop`: no call waits longer than the maximum because of responses, and no reported wait is longer;
//! * `heed`: after a truthful response, no call is admitted before its delay is over or beyond what it
//!   leaves;
//! * `raise`: learned limits rise only after successes, and no faster than stated.

mod account;
mod judge;
mod play;
mod report;
mod responses;
mod seeded;
mod subject;

pub use account::examine_account;
pub use play::{examine, find_seeded};
pub use report::LearnReport;
pub use responses::{Response, Truth};
pub use seeded::CeilingBug;
pub use subject::{Ceilings, Paces, Sent, Settings};

//! Leasing: units admitted upstream in bulk, spent locally, settled late.
//!
//! An [`Authority`] keeps one limit and lends parts of it. A [`Holder`] on each node asks for a batch, puts what it
//! is lent into a [`Purse`], and its callers spend from that without asking anyone. Neither does any I/O: a driver
//! hands in what arrived and the time, and carries away what to send. A server, a simulator and a model checker
//! drive these same types.
//!
//! What keeps the fleet within the limit, however many nodes there are:
//!
//! * Units are charged upstream before they are lent, so no more are lent than the limit has.
//! * Units of a window die with it. The authority says how *long* they live, never until when; the holder counts that
//!   from the moment at which it sent its request, on a clock of its own that never steps, less what the clocks
//!   may drift ([`Margin`]). So they die before the window does, whatever the network did.
//! * A grant is credited once, in the completion of the request that fetched it, however many callers wait for it.
//! * A unit is taken out of the purse before the clock is read, and the clock is read before the caller is told.

mod authority;
mod batch;
mod holder;
mod local_lease;
mod margin;
mod sizing;
mod want;

pub use authority::{Account, Authority, Epoch, Loan, Return, ReturnId, Term};
pub use batch::{Batch, Sizing};
pub use holder::{Holder, Plan, Reply, Request, Turn};
pub use local_lease::{Draw, PlainWord, Purse, Spend, UNITS_HELD_MAX, Word};
pub use margin::Margin;
pub use sizing::{PredictiveSizer, Sizer, SizerOptions, SizingError, eoq_cost, eoq_optimum};
pub use want::Want;

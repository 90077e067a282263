//! Leasing: units admitted upstream in bulk, spent locally, settled late.
//!
//! An [`Authority`] keeps one limit and lends parts of it. A [`Holder`] on each node requests a batch and puts the lent
//! units into a local lease ([`LocalLease`]), from which its callers spend locally. Neither does any I/O: a driver passes in
//! what arrived and the time, and sends what they return. A server, a simulator and a model checker drive these same
//! types.
//!
//! How all nodes together stay within the limit, for any number of nodes:
//!
//! * Units are charged upstream before they are lent, so no more are lent than the limit has.
//! * Units of a window expire with it. The authority reports how *long* they live, never until when; the holder counts
//!   that from the moment at which it sent its request, on its own clock that never steps, less what the clocks may
//!   drift ([`Margin`]). So they expire before the window ends, whatever the network did.
//! * A grant is credited once, in the completion of the request that fetched it, no matter how many callers wait for
//!   it.
//! * A unit is taken out of the local lease before the clock is read, and the clock is read before the caller gets a
//!   decision.

mod authority;
mod batch;
mod holder;
mod local_lease;
mod margin;
mod sizing;
mod want;

pub use authority::{Account, Authority, Epoch, Loan, Return, ReturnId, Term};
pub use batch::{Batch, Sizing};
pub use holder::{Holder, HolderOptions, HolderRequest, HolderStep, Reply};
pub use local_lease::{Draw, LocalLease, PlainWord, Spend, UNITS_HELD_MAX, Word};
pub use margin::Margin;
pub use sizing::{PredictiveSizer, Sizer, SizerOptions, SizingError, eoq_cost, eoq_optimum};
pub use want::Want;

//! Token budgets for streams whose length is unknown at the start.
//!
//! [`TokenBudget::open`] reserves tokens for a stream, so that used and reserved tokens together never exceed the
//! budget. It returns a [`TokenStream`], which is held while the stream runs: each chunk is debited, from the
//! reservation without a call to the store, beyond it at the store. The rest is returned when the stream settles or is
//! dropped. The size of reservations is learned for each key from the lengths of its streams, and from hints.
//!
//! ```
//! use throttlekit::budget::TokenBudget;
//! use throttlekit::{Budget, store::MemoryStore};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let minute = Budget::per_minute(100_000);
//! let budget = TokenBudget::builder(MemoryStore::new(), "tokens", minute).build()?;
//!
//! let opened = budget.open("acme", None).await?;
//! let Some(mut stream) = opened.stream else {
//!     panic!("come back: {:?}", opened.answer.retry_after);
//! };
//! for chunk in [12, 7, 31] {
//!     if !stream.debit(chunk).await?.allowed {
//!         break; // the budget is spent: stop generating
//!     }
//! }
//! assert_eq!(stream.produced(), 50);
//! stream.settle().await?;
//!
//! assert_eq!(budget.shared().peek("acme").await?.remaining, 99_950);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! In each window of the store at most `budget + g − 1` tokens are charged, where no chunk has more than g: only the
//! one debit that the store allows to cross the budget may exceed it, and a reservation never does. That holds for any
//! reservations, any number of streams and processes, streams that become idle or crash, and messages that are lost or
//! late (guarantee `budget-streams` in the
//! [guarantees](https://github.com/throttlekit/throttlekit/blob/main/docs/reference/guarantees.md)).
//!
//! Tokens are charged to the window in which they were reserved or debited. A reservation expires with its window;
//! later chunks are debited from the next.

mod builder;
mod handle;
pub(crate) mod learners;
mod ledger;
mod returner;
mod stats;
mod stream;
mod throughput;

pub use builder::{Reserve, TokenBudgetBuilder};
pub use handle::{Opened, TokenBudget};
pub use stats::BudgetStats;
pub use stream::TokenStream;
pub use throttlekit_core::learn::{Reservation, ReservationError, ReservationOptions};

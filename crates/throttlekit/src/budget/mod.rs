//! Token budgets for streams whose length is not known when they begin.
//!
//! [`TokenBudget::open`] sets tokens aside for a stream, so that what is used and what is set aside never exceed the
//! budget. The [`TokenStream`] it gives is held while the stream runs: each chunk is debited, from what was set
//! aside without a call to the store, beyond it by the store itself. What is left goes back when the stream settles
//! or is dropped. How much to set aside is learned for each key from the lengths of its streams, and from hints.
//!
//! ```
//! use std::time::Duration;
//! use throttlekit::{Limit, TokenBudget, store::MemoryStore};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let minute = Limit::token_budget(100_000, Duration::from_secs(60))?;
//! let budget = TokenBudget::builder(MemoryStore::new(), "tokens", minute).build()?;
//!
//! let opened = budget.open("acme", None).await?;
//! let Some(mut stream) = opened.stream else {
//!     panic!("come back: {:?}", opened.answer.decision.retry_after);
//! };
//! for chunk in [12, 7, 31] {
//!     if !stream.debit(chunk).await?.decision.allowed {
//!         break; // the budget is spent: stop generating
//!     }
//! }
//! assert_eq!(stream.produced(), 50);
//! stream.settle().await?;
//!
//! assert_eq!(budget.shared().peek_each([b"acme"]).await?[0].remaining, 99_950);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it promises
//!
//! In each window of the store at most `budget + g − 1` tokens are charged, where no chunk is of more than g: only the
//! debit that the store itself lets cross the edge may pass it, and a reservation never does. That holds for any
//! reservations, any number of streams and processes, streams that fall silent or crash, and messages that are lost or
//! late (law `budget-streams` in the
//! [guarantees](https://github.com/throttlekit/throttlekit/blob/main/docs/guarantees.md)).
//!
//! Tokens are charged to the window in which they were set aside or debited. What was set aside dies with its window;
//! later chunks are debited from the next.

mod builder;
mod handle;
mod learners;
mod ledger;
mod returner;
mod stats;
mod stream;
mod throughput;

pub use builder::{BudgetBuilder, Reserve};
pub use handle::{Opened, TokenBudget};
pub use stats::BudgetStats;
pub use stream::TokenStream;
pub use throttlekit_core::learn::{Reservation, ReservationError, ReservationOptions};

/// The guide's code, run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/reservations.md")]
struct Guide;

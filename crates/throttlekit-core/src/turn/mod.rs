//! Turns of callers that wait for a limiter: whose turn it is, and how long to pause after a denial.
//!
//! [`TurnQueue`] holds the waiters of one key. Only the waiter whose turn it is requests the limiter; the others wait.
//! [`RetryPace`] turns the denial into a pause. Both are pure: the driver passes the time, sends the requests, sleeps
//! and wakes.
//!
//! ```
//! use throttlekit_core::Timestamp;
//! use throttlekit_core::turn::{Departure, TurnQueue};
//!
//! let now = Timestamp::EPOCH;
//! let mut queue = TurnQueue::default();
//! let (batch, _) = queue.join(1, "batch", now);
//! assert!(queue.has_turn(batch));
//! // A waiter of a more urgent class takes the turn, unless its holder has a request in flight.
//! let (urgent, called) = queue.join(0, "urgent", now);
//! assert!(queue.has_turn(urgent) && called == Some(urgent));
//! // The turn passes on as soon as its holder leaves.
//! assert_eq!(queue.leave(urgent, Departure::Admitted, now), Some(batch));
//! ```

mod queue;
mod retry_pace;

pub use queue::{BY_AGE_EVERY, Departure, HEARTBEAT, STALLED_AFTER, Ticket, TurnQueue};
pub use retry_pace::{Jitter, Pause, RetryPace};

//! The trait of everything that decides, and what its callers receive.
//!
//! [`Admit`] is implemented by limiters, guards, fair limiters and policies, in process, shared and remote. The tower
//! layer takes anything that implements it; `Arc<dyn Admit>` does too.
//!
//! ```
//! use std::sync::Arc;
//! use throttlekit::{Admit, Call, Guard, Limiter, Rate};
//!
//! let parts: [Arc<dyn Admit>; 2] =
//!     [Arc::new(Limiter::new(Rate::per_minute(60))?), Arc::new(Guard::new(8)?)];
//! for part in parts {
//!     // Both decide in process, so no future has to be polled.
//!     let Ok(Ok(admission)) = part.admit(Call::by("alice")).now_or_later() else { continue };
//!     if let Some(permit) = admission.permit {
//!         permit.success(); // after the work
//!     }
//! }
//! # Ok::<(), throttlekit::BuildError>(())
//! ```

mod admission;
mod axis;
mod denied;
mod event;
mod eventual;
mod fair_limiter;
mod keyless_limiter;
mod limit_info;
mod limiter;
mod observed;
mod permit;
#[cfg(feature = "store")]
mod shared_fair_limiter;
#[cfg(feature = "store")]
mod shared_limiter;
#[cfg(test)]
mod tests;
mod unlimited;

use std::sync::Arc;

use throttlekit_core::Timestamp;
pub use throttlekit_core::concurrency::Ending;

use crate::call::Call;
pub use crate::fence::Fenced;
pub use crate::limit_name::LimitName;
pub use crate::priority::Priority;
pub use crate::store_error::StoreError;
pub use admission::Admission;
pub(crate) use admission::{Told, combined};
pub use axis::{Axes, Axis, Dimension};
pub use denied::Denied;
pub use event::{Event, Observer};
pub use eventual::{Admitting, BoxFuture, Debiting, Eventual};
pub use limit_info::LimitInfo;
pub use observed::Observed;
pub use permit::{Held, SharedPermit};
pub use unlimited::Unlimited;

/// Decides requests. Dyn-compatible: `Arc<dyn Admit>` is an `Admit`.
///
/// A type that hands out owned permits of its own state, and is no handle, implements it in an `Arc`: `Arc<Policy>`.
pub trait Admit: Send + Sync + 'static {
    /// Decides one request, and charges it if allowed. A denial is a result, not an error: an error means that nothing
    /// was decided.
    ///
    /// The future does not borrow. Dropping it before it is ready returns what it acquired.
    fn admit(&self, call: Call<'_>) -> Admitting;

    /// Like [`admit`](Self::admit), but waits in the queue for a slot, if there is a queue. Has no timeout. Default: the
    /// same as `admit`.
    fn admit_queued(&self, call: Call<'_>) -> Admitting {
        self.admit(call)
    }

    /// Returns the limits, for response headers and logs.
    fn limits(&self) -> Vec<LimitInfo>;

    /// Returns the current time of the clock that `reset_at` uses.
    fn now(&self) -> Timestamp;
}

impl<A: Admit + ?Sized> Admit for Arc<A> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        (**self).admit(call)
    }

    fn admit_queued(&self, call: Call<'_>) -> Admitting {
        (**self).admit_queued(call)
    }

    fn limits(&self) -> Vec<LimitInfo> {
        (**self).limits()
    }

    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

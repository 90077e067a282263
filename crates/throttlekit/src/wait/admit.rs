//! A queue as `Admit`: it waits, and a wait that takes too long is a denial.

use throttlekit_core::Timestamp;

use super::waiter::First;
use super::{NotReady, Queue};
use crate::Call;
use crate::admit::{Admission, Admit, Admitting, Axis, LimitInfo, SharedPermit, StoreError};
use crate::call::OwnedCall;

/// Waits for at most [`max_wait`](super::QueueBuilder::max_wait). A timeout and a full queue are denials.
impl<A: Admit> Admit for Queue<A> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        let first = match self.inner().begin(&call) {
            Ok(First::Ready(admission)) => return Admitting::ready(Ok(admission)),
            Ok(first) => first,
            Err(not_ready) => return Admitting::ready(denial(not_ready)),
        };
        let (queue, call) = (self.clone(), OwnedCall::of(&call));
        Admitting::pending(async move {
            let others = call.others();
            queue.inner().resume(call.borrowed(&others), first).await.or_else(denial)
        })
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.limiter().limits()
    }

    fn now(&self) -> Timestamp {
        self.limiter().now()
    }
}

fn denial(not_ready: NotReady) -> Result<Admission, StoreError> {
    match not_ready {
        NotReady::Never(denied) | NotReady::Timeout(denied) | NotReady::Full(denied) => {
            let axis = denied.axis.unwrap_or(Axis::Rate);
            Ok(Admission::of(axis, denied.decision, SharedPermit::none()))
        }
        NotReady::Store(error) => Err(error),
    }
}

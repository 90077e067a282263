//! Interface between the layer and a limiter, which decides at once or after a round trip.

use std::error::Error;
use std::fmt;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use crate::{Call, Clock, Cost, Decision, KeyHash, Limiter, Timestamp};

/// Decides about requests, and may fail to.
///
/// A [`Limiter`] decides at once and never fails; a network store returns a future and may be unreachable. The future
/// does not borrow: it outlives the call that made it, and may keep the `Arc`.
pub trait Admit: Send + Sync + 'static {
    /// Future of the decision. Dropped if the client disconnects meanwhile.
    type Answer: Future<Output = Result<Decision, AdmitError>>;

    /// Decides one request, and charges it if allowed. A denial is a decision, not an error.
    fn admit(self: &Arc<Self>, ask: Call<'_>) -> Self::Answer;

    /// Returns the maximum number of units that ever pass at once, as reported in `RateLimit-Policy`.
    fn units(&self) -> Cost;

    /// Returns the time until all of them are back; `None` if they do not come back with time.
    fn period(&self) -> Option<Duration>;

    /// Returns the current time of the clock that the decisions' `reset_at` uses.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + 'static, H: KeyHash + 'static> Admit for Limiter<C, H> {
    type Answer = Ready<Result<Decision, AdmitError>>;

    fn admit(self: &Arc<Self>, ask: Call<'_>) -> Self::Answer {
        ready(Ok(self.check(ask)))
    }

    fn units(&self) -> Cost {
        self.limit().units()
    }

    fn period(&self) -> Option<Duration> {
        Some(self.limit().period())
    }

    fn now(&self) -> Timestamp {
        self.now()
    }
}

/// A budget shared by callers, whose keys are its tenants. The policy reports the whole budget, each response the
/// caller's own part.
impl<C: Clock + 'static> Admit for crate::FairLimiter<C> {
    type Answer = Ready<Result<Decision, AdmitError>>;

    fn admit(self: &Arc<Self>, ask: Call<'_>) -> Self::Answer {
        ready(Ok(self.check(ask)))
    }

    fn units(&self) -> Cost {
        self.stats().limit
    }

    fn period(&self) -> Option<Duration> {
        Some(self.period())
    }

    fn now(&self) -> Timestamp {
        self.now()
    }
}

/// A limit shared through a store. While the store is unavailable, its own [`OnOutage`](crate::OnOutage) decides. If
/// that denies, the client gets an outage response instead of a limit response, unless the layer's `OnFailure` allows
/// the request. If it allows, the response reports no limit, because nothing was counted.
#[cfg(feature = "store")]
impl<S: crate::store::Store, C: crate::LeaseClock + 'static> Admit for crate::SharedLimiter<S, C> {
    type Answer = Later;

    fn admit(self: &Arc<Self>, ask: Call<'_>) -> Self::Answer {
        if let Some(decision) = self.try_check(ask) {
            return Box::pin(ready(Ok(decision)));
        }
        let (limiter, cost) = (Arc::clone(self), ask.units());
        let keys: Vec<Vec<u8>> = (0..ask.key_count()).map(|index| ask.key_at(index).to_vec()).collect();
        Box::pin(async move {
            let others: Vec<&[u8]> = keys[1..].iter().map(Vec::as_slice).collect();
            decision(limiter.check(Call::by(&keys[0]).and(&others[..]).cost(cost)).await)
        })
    }

    fn units(&self) -> Cost {
        self.limits()[0].units()
    }

    fn period(&self) -> Option<Duration> {
        Some(self.limits()[0].period())
    }

    fn now(&self) -> Timestamp {
        self.now()
    }
}

#[cfg(feature = "store")]
type Later = std::pin::Pin<Box<dyn Future<Output = Result<Decision, AdmitError>> + Send>>;

#[cfg(feature = "store")]
fn decision(answer: Result<crate::Answer, crate::store::StoreError>) -> Result<Decision, AdmitError> {
    let answer = answer.map_err(AdmitError::new)?;
    match answer.outage {
        Some(outage) if answer.guarantee == crate::Guarantee::Closed => Err(AdmitError::new(outage)),
        Some(outage) if answer.guarantee == crate::Guarantee::Open => Err(AdmitError::passing(outage)),
        _ => Ok(answer.decision),
    }
}

/// Allows a limiter to be used elsewhere as well.
impl<A: Admit + ?Sized> Admit for Arc<A> {
    type Answer = A::Answer;

    fn admit(self: &Arc<Self>, ask: Call<'_>) -> Self::Answer {
        (**self).admit(ask)
    }

    fn units(&self) -> Cost {
        (**self).units()
    }

    fn period(&self) -> Option<Duration> {
        (**self).period()
    }

    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// No decision: the store did not respond.
///
/// If the layer allows such a request, this error is in the extensions of request and response, so that uncounted
/// requests can be counted.
#[derive(Clone, Debug)]
pub struct AdmitError {
    cause: Arc<dyn Error + Send + Sync>,
    passes: bool,
}

impl AdmitError {
    /// Creates an error with `cause`. The layer's [`OnFailure`](super::OnFailure) decides what happens to the request.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause: cause.into().into(), passes: false }
    }

    /// Creates the error of a limiter that has itself chosen to allow the request uncounted, as `OnOutage::Open` does.
    pub fn passing(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { passes: true, ..Self::new(cause) }
    }

    pub(super) fn passes(&self) -> bool {
        self.passes
    }
}

impl fmt::Display for AdmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no decision could be made")
    }
}

impl Error for AdmitError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.cause)
    }
}

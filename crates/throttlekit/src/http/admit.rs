//! What the layer asks: anything that decides, now or after a round trip.

use std::error::Error;
use std::fmt;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use crate::{Ask, Clock, Cost, Decision, KeyHash, Limiter, Timestamp};

/// Decides about asks, and may fail to.
///
/// A [`Limiter`] answers at once and never fails; a store over a network takes a future and may not reach it. The
/// future does not borrow: it outlives the call that made it, and may keep the `Arc`.
pub trait Admit: Send + Sync + 'static {
    /// When the answer is there. Dropped if the client goes away meanwhile.
    type Answer: Future<Output = Result<Decision, AdmitError>>;

    /// Answers one ask, and charges it if allowed. A denial is an answer, not an error.
    fn admit(self: &Arc<Self>, ask: Ask<'_>) -> Self::Answer;

    /// The most units that ever pass at once, as told in `RateLimit-Policy`.
    fn units(&self) -> Cost;

    /// How long it takes until all of them are back; `None` where no clock brings them back.
    fn period(&self) -> Option<Duration>;

    /// The instant now, by the clock that the decisions' `reset_at` goes by.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + 'static, H: KeyHash + 'static> Admit for Limiter<C, H> {
    type Answer = Ready<Result<Decision, AdmitError>>;

    fn admit(self: &Arc<Self>, ask: Ask<'_>) -> Self::Answer {
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

/// A budget that callers share; their keys are its tenants. The policy tells the whole budget, each answer the caller's own.
impl<C: Clock + 'static, H: KeyHash + 'static> Admit for crate::FairLimiter<C, H> {
    type Answer = Ready<Result<Decision, AdmitError>>;

    fn admit(self: &Arc<Self>, ask: Ask<'_>) -> Self::Answer {
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

/// A limit that a fleet shares. While its store does not answer, its own [`OnOutage`](crate::OnOutage) does. Where
/// that refuses, the client is told of an outage, not of a limit, unless the layer's `OnFailure` lets it pass; where it
/// lets pass, the client is told nothing of a limit that nobody counted.
#[cfg(feature = "store")]
impl<S: crate::store::Store> Admit for crate::SharedLimiter<S> {
    type Answer = Later;

    fn admit(self: &Arc<Self>, ask: Ask<'_>) -> Self::Answer {
        let (limiter, key, cost) = (Arc::clone(self), ask.key.to_vec(), ask.cost);
        Box::pin(async move { decision(limiter.check(Ask::of(&key).cost(cost)).await) })
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

/// The same, answered mostly by this node.
#[cfg(feature = "store")]
impl<S: crate::store::Store, C: crate::LeaseClock + 'static> Admit for crate::TwoTier<S, C> {
    type Answer = Later;

    fn admit(self: &Arc<Self>, ask: Ask<'_>) -> Self::Answer {
        if let Some(decision) = self.try_check(ask) {
            return Box::pin(ready(Ok(decision)));
        }
        let (limiter, key, cost) = (Arc::clone(self), ask.key.to_vec(), ask.cost);
        Box::pin(async move { decision(limiter.check(Ask::of(&key).cost(cost)).await) })
    }

    fn units(&self) -> Cost {
        self.shared().limits()[0].units()
    }

    fn period(&self) -> Option<Duration> {
        Some(self.shared().limits()[0].period())
    }

    fn now(&self) -> Timestamp {
        self.shared().now()
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

/// Lets a limiter be used elsewhere as well.
impl<A: Admit + ?Sized> Admit for Arc<A> {
    type Answer = A::Answer;

    fn admit(self: &Arc<Self>, ask: Ask<'_>) -> Self::Answer {
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

/// Nothing was decided: the store did not answer.
///
/// Where the layer lets such a request pass, this stands in the extensions of request and response, so that what
/// passed uncounted can be counted.
#[derive(Clone, Debug)]
pub struct AdmitError {
    cause: Arc<dyn Error + Send + Sync>,
    passes: bool,
}

impl AdmitError {
    /// An error because of `cause`. The layer's [`OnFailure`](super::OnFailure) says what becomes of the request.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause: cause.into().into(), passes: false }
    }

    /// The same where the limiter itself has chosen that the request passes uncounted, as
    /// `OnOutage::Open` does.
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

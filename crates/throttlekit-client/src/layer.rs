//! Remote policies behind the library's tower layer.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use throttlekit::http::{Admit, AdmitError};
use throttlekit::{Call, Clock, Cost, Decision, Guarantee, LeaseClock, Timestamp, WallClock};

use crate::{ClientError, FleetLimiter, RemoteAnswer, RemotePolicy};

type Later = Pin<Box<dyn Future<Output = Result<Decision, AdmitError>> + Send>>;

/// In an outage that fails closed, the client gets an outage response, not a limit response.
fn decision(answer: Result<RemoteAnswer, ClientError>) -> Result<Decision, AdmitError> {
    let answer = answer.map_err(AdmitError::new)?;
    match answer.outage {
        Some(outage) if answer.guarantee == Guarantee::Closed => Err(AdmitError::new(outage)),
        Some(outage) if answer.guarantee == Guarantee::Open => Err(AdmitError::passing(outage)),
        _ => Ok(answer.decision),
    }
}

/// Makes one call per request. Set the policy's [limit](crate::LimiterBuilder::limit) to include its period in
/// `RateLimit-Policy`.
impl Admit for RemotePolicy {
    type Answer = Later;

    fn admit(self: &Arc<Self>, ask: Call<'_>) -> Self::Answer {
        let (limiter, key, cost) = (Arc::clone(self), ask.key().to_vec(), ask.units());
        Box::pin(async move { decision(limiter.check(Call::by(&key).cost(cost)).await) })
    }

    fn units(&self) -> Cost {
        self.units()
    }

    fn period(&self) -> Option<Duration> {
        self.limit().map(throttlekit::Limit::period)
    }

    fn now(&self) -> Timestamp {
        WallClock.now()
    }
}

/// Decides mostly in this process.
impl<C: LeaseClock + Clone + 'static> Admit for FleetLimiter<C> {
    type Answer = Later;

    fn admit(self: &Arc<Self>, ask: Call<'_>) -> Self::Answer {
        if let Some(decision) = self.try_check(ask) {
            return Box::pin(std::future::ready(Ok(decision)));
        }
        let (limiter, key, cost) = (Arc::clone(self), ask.key().to_vec(), ask.units());
        Box::pin(async move { decision(limiter.check(Call::by(&key).cost(cost)).await) })
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

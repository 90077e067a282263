//! Permits, held while work runs.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};
use throttlekit::rate::Timestamp;
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::{AdmitResponse, DebitRequest, ReleaseRequest};

use crate::client::Server;
use crate::renewer::Hold;
use crate::{Client, ClientError, RemoteAnswer, RemotePolicy, Work, wire};

/// Maximum number of attempts of a release before the lease is left to expire.
const RELEASE_TRIES: usize = 3;

/// Work that a server admitted. Heartbeats renew its lease; dropping it counts as ignored.
///
/// A permit [fences](Self::is_fenced) itself: when the server has reclaimed it, or when this process could not renew it
/// in time by its own clock, which is never later than the server does. Work that must not run concurrently with
/// another's stops then.
#[derive(Debug)]
pub struct RemotePermit {
    limiter: RemotePolicy,
    key: String,
    hold: Option<Arc<Hold>>,
    /// Time at which the work was requested.
    sent: Timestamp,
    estimate: u64,
    used: u64,
    actual_cost: Option<u64>,
}

/// The outcome of work.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    dropped: bool,
    ignored: bool,
    latency: Duration,
}

impl RemotePermit {
    /// Returns the time of the clock by which permits fence themselves.
    pub(crate) fn now() -> Timestamp {
        BootClock.now()
    }

    pub(crate) fn held(
        limiter: RemotePolicy,
        server: Arc<Server>,
        told: AdmitResponse,
        sent: Timestamp,
        work: &Work<'_>,
    ) -> Self {
        if told.lease_id.is_empty() {
            return Self::of_nothing(limiter, work);
        }
        let lives = Duration::from_millis(wire::units(told.lease_for_ms));
        let lives = if lives.is_zero() { limiter.client().inner.lease_for } else { lives };
        let background = limiter.client().inner.background.clone();
        let hold = Hold::new(told.lease_id, server, lives, sent, background);
        Client::keep(limiter.client(), &hold);
        let mut permit = Self::of_nothing(limiter, work);
        (permit.hold, permit.sent) = (Some(hold), sent);
        permit
    }

    pub(crate) fn of_nothing(limiter: RemotePolicy, work: &Work<'_>) -> Self {
        let (sent, estimate) = (Self::now(), work.cost);
        Self { limiter, key: work.key.into(), hold: None, sent, estimate, used: 0, actual_cost: None }
    }

    /// Returns the units counted so far.
    pub fn used(&self) -> u64 {
        self.actual_cost.unwrap_or(self.used)
    }

    /// Returns the units reserved and not used yet; none if nothing is held.
    pub fn reserved(&self) -> u64 {
        if self.hold.is_some() { self.estimate.saturating_sub(self.used()) } else { 0 }
    }

    /// Returns how long the work has been admitted, if something is held.
    pub fn elapsed(&self) -> Option<Duration> {
        self.hold.is_some().then(|| Self::now().since(self.sent))
    }

    /// Returns whether the permit no longer covers the work. Never for one that holds nothing.
    pub fn is_fenced(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.is_fenced())
    }

    /// Waits until the permit no longer covers the work.
    pub async fn fenced(&self) {
        match &self.hold {
            Some(hold) => hold.fenced().await,
            None => std::future::pending().await,
        }
    }

    /// Charges tokens to the reservation of the work, and beyond. One at a time, and sent once.
    pub async fn debit(&mut self, tokens: u64) -> Result<RemoteAnswer, ClientError> {
        let Some(hold) = &self.hold else { return self.limiter.debit(&self.key, tokens, None).await };
        let request = DebitRequest {
            policy: self.limiter.policy().into(),
            key: self.key.clone(),
            tokens: wire::cost(tokens)?,
            lease_id: hold.id.clone(),
            ..DebitRequest::default()
        };
        let call = |channel, request| async move { RateLimiterClient::new(channel).debit(request).await };
        let answer = wire::answer(self.limiter.client().ask_at(&hold.server, request, call).await?.decision)?;
        if answer.decision.allowed {
            self.used = self.used.saturating_add(tokens);
        }
        Ok(answer)
    }

    /// Sets the actual cost, which replaces the estimate when the work ends.
    pub fn settle(&mut self, actual: u64) {
        self.actual_cost = Some(actual);
    }

    /// Reports that the work succeeded.
    pub fn success(mut self) {
        self.end(Ended::default());
    }

    /// The same with the latency of the work. Default: measured by the server.
    pub fn success_after(mut self, latency: Duration) {
        self.end(Ended { latency, ..Ended::default() });
    }

    /// Reports that the backend was overloaded or failed.
    pub fn dropped(mut self) {
        self.end(Ended { dropped: true, ..Ended::default() });
    }

    /// Reports that the work is no sample of the backend.
    pub fn ignored(mut self) {
        self.end(Ended { ignored: true, ..Ended::default() });
    }

    /// Releases the lease, once, in a separate task. A lease whose release does not arrive expires.
    fn end(&mut self, how: Ended) {
        let Some(hold) = self.hold.take() else { return };
        let client = self.limiter.client().clone();
        client.inner.renewer.forget(&hold);
        let request = ReleaseRequest {
            lease_id: hold.id.clone(),
            dropped: how.dropped,
            actual_cost: self.actual_cost.map(|cost| i64::try_from(cost).unwrap_or(i64::MAX)),
            ignored: how.ignored,
            latency_ms: i64::try_from(how.latency.as_millis()).unwrap_or(i64::MAX),
        };
        let background = client.inner.background.clone();
        background.spawn(async move {
            for _ in 0..RELEASE_TRIES {
                let call =
                    |channel, request| async move { RateLimiterClient::new(channel).release(request).await };
                let told = client.ask_at(&hold.server, request.clone(), call).await;
                if !told.is_err_and(|error| error.is_outage()) {
                    return;
                }
            }
        });
    }
}

impl Drop for RemotePermit {
    fn drop(&mut self) {
        self.end(Ended { ignored: true, ..Ended::default() });
    }
}

//! Proof of admission, held while work runs.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::{BootClock, Clock, Timestamp};
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::{AdmitResponse, DebitRequest, ReleaseRequest};

use crate::client::Server;
use crate::renewer::Hold;
use crate::{Client, ClientError, Cost, RemoteAnswer, RemoteLimiter, wire};

/// How often a release is sent before the lease is left to lapse.
const RELEASE_TRIES: usize = 3;

/// Work that a server admitted. Heartbeats keep what it holds alive; dropping it counts as work that says nothing of the backend.
///
/// A permit [fences](Self::is_fenced) itself: when the server has reclaimed it, or when this process could not renew it
/// in time by its own clock, which is never later than the server does. Work that must not run beside another's stops
/// then.
#[derive(Debug)]
pub struct RemotePermit {
    limiter: RemoteLimiter,
    key: String,
    hold: Option<Arc<Hold>>,
    actual_cost: Option<Cost>,
}

/// How work ended.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    dropped: bool,
    ignored: bool,
    latency: Duration,
}

impl RemotePermit {
    /// The clock by which permits fence themselves.
    pub(crate) fn now() -> Timestamp {
        BootClock.now()
    }

    pub(crate) fn held(
        limiter: RemoteLimiter,
        server: Arc<Server>,
        told: AdmitResponse,
        sent: Timestamp,
        key: &str,
    ) -> Self {
        if told.lease_id.is_empty() {
            return Self::of_nothing(limiter, key);
        }
        let lives = Duration::from_millis(wire::units(told.lease_for_ms));
        let lives = if lives.is_zero() { limiter.client().inner.lease_for } else { lives };
        let background = limiter.client().inner.background.clone();
        let hold = Hold::new(told.lease_id, server, lives, sent, background);
        Client::keep(limiter.client(), &hold);
        Self { limiter, key: key.into(), hold: Some(hold), actual_cost: None }
    }

    pub(crate) fn of_nothing(limiter: RemoteLimiter, key: &str) -> Self {
        Self { limiter, key: key.into(), hold: None, actual_cost: None }
    }

    /// Whether the permit no longer covers the work. Of one that holds nothing, never.
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

    /// Counts tokens against what was set aside for the work, and beyond. One at a time, and sent once.
    pub async fn debit(&mut self, tokens: Cost) -> Result<RemoteAnswer, ClientError> {
        let Some(hold) = &self.hold else { return self.limiter.debit(&self.key, tokens, None).await };
        let request = DebitRequest {
            policy: self.limiter.policy().into(),
            key: self.key.clone(),
            tokens: wire::cost(tokens)?,
            lease_id: hold.id.clone(),
            ..DebitRequest::default()
        };
        let call = |channel, request| async move { RateLimiterClient::new(channel).debit(request).await };
        wire::answer(self.limiter.client().ask_at(&hold.server, request, call).await?.decision)
    }

    /// What the work did cost, which takes the place of the estimate when it ends.
    pub fn settle(&mut self, actual: Cost) {
        self.actual_cost = Some(actual);
    }

    /// The work went well.
    pub fn success(mut self) {
        self.end(Ended::default());
    }

    /// The same, having taken so long. Unless stated, the server measures.
    pub fn success_after(mut self, latency: Duration) {
        self.end(Ended { latency, ..Ended::default() });
    }

    /// The backend was too full for it, or failed.
    pub fn dropped(mut self) {
        self.end(Ended { dropped: true, ..Ended::default() });
    }

    /// It says nothing of the backend.
    pub fn ignored(mut self) {
        self.end(Ended { ignored: true, ..Ended::default() });
    }

    /// Gives back what is held, once, by a task of its own. What does not arrive lapses.
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

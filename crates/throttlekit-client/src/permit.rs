//! Permits, held while work runs.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::admit::{BoxFuture, Debiting, Ending, Held, LimitName};
use throttlekit::clock::{BootClock, Clock};
use throttlekit::rate::{ALLOW_FULL, Timestamp};
use throttlekit::store::{Background, DebitId, random_name};
use throttlekit::{Answer, Decision, Guarantee, StoreError};
use throttlekit_proto::v1::{AdmitResponse, DebitRequest, ReleaseRequest};
use tokio::task::JoinHandle;

use crate::client::Server;
use crate::failure::Failure;
use crate::renewer::Hold;
use crate::request::Request;
use crate::rpc::RELEASE_TRIES;
use crate::{Client, RemotePolicy, wire};

/// Work that a server admitted, or a stream of debits. Heartbeats renew its lease, if it holds one.
pub(crate) struct RemotePermit {
    policy: RemotePolicy,
    request: Request,
    hold: Option<Arc<Hold>>,
    /// Time at which the work was requested.
    sent: Timestamp,
    used: u64,
    actual_cost: Option<u64>,
    /// The last debit without a lease.
    last: DebitId,
    guarantee: Guarantee,
    /// Name of the limit that denied the last chunk.
    denied: Option<LimitName>,
}

impl RemotePermit {
    /// Creates the permit of work that was requested at `sent` and admitted.
    pub(crate) fn held(
        policy: RemotePolicy,
        server: Arc<Server>,
        told: AdmitResponse,
        sent: Timestamp,
        request: Request,
    ) -> Self {
        let mut permit = Self::unheld(policy, request);
        if !told.lease_id.is_empty() {
            let client = permit.policy.client();
            let lives = Duration::from_millis(wire::units(told.lease_for_ms));
            let lives = if lives.is_zero() { client.inner.lease_for } else { lives };
            // The lease begins after the wait.
            let sent = sent + Duration::from_millis(wire::units(told.waited_ms));
            let hold = Hold::new(told.lease_id, server, lives, sent, permit.background());
            Client::keep(client, &hold);
            (permit.hold, permit.sent) = (Some(hold), sent);
        }
        permit
    }

    /// Creates a permit that holds nothing.
    pub(crate) fn unheld(policy: RemotePolicy, request: Request) -> Self {
        let last = DebitId { stream: random_name(), number: 0 };
        let (hold, actual_cost, guarantee, denied) = (None, None, Guarantee::Exact, None);
        let sent = BootClock.now();
        Self { policy, request, hold, sent, used: 0, actual_cost, last, guarantee, denied }
    }

    /// Lowers the guarantee to this.
    pub(crate) fn weaken(mut self, guarantee: Guarantee) -> Self {
        self.guarantee = self.guarantee.weaker(guarantee);
        self
    }

    /// Charges tokens to the reservation of the work, and beyond.
    async fn charge(&mut self, tokens: u64) -> Result<Decision, StoreError> {
        let request = self.request.with_cost(tokens)?;
        let answer = match &self.hold {
            Some(hold) => self.debit_held(hold, request).await?,
            None => {
                self.last.number += 1;
                self.policy.debit_request(&request, self.last).await?
            }
        };
        if answer.allowed {
            self.used = self.used.saturating_add(tokens);
        }
        self.guarantee = self.guarantee.weaker(answer.guarantee);
        self.denied = answer.limit_name;
        Ok(answer.decision)
    }

    /// Sends one debit to the server that holds the lease, once.
    async fn debit_held(&self, hold: &Hold, request: Request) -> Result<Answer, Failure> {
        let message = DebitRequest {
            policy: self.policy.name().into(),
            key: request.key,
            tokens: request.cost,
            lease_id: hold.id.clone(),
            ..DebitRequest::default()
        };
        Ok(wire::answer(&self.policy.client().debit_at(&hold.server, message).await?))
    }

    fn background(&self) -> Background {
        self.policy.client().inner.background.clone()
    }

    /// Releases the lease, once, in a task. A lease whose release does not arrive expires.
    fn release(
        &mut self,
        ending: Ending,
        latency: Option<Duration>,
    ) -> Option<JoinHandle<Result<(), Failure>>> {
        let hold = self.hold.take()?;
        let client = self.policy.client().clone();
        client.inner.renewer.forget(&hold);
        let message = ReleaseRequest {
            lease_id: hold.id.clone(),
            dropped: ending == Ending::Dropped,
            actual_cost: self.actual_cost.map(|cost| i64::try_from(cost).unwrap_or(i64::MAX)),
            ignored: ending == Ending::Ignored,
            // The server measures it if it is 0.
            latency_ms: latency.map_or(0, |latency| i64::try_from(latency.as_millis()).unwrap_or(i64::MAX)),
        };
        Some(self.background().spawn(async move { client.release(&hold.server, message).await }))
    }
}

impl Held for RemotePermit {
    fn end(mut self: Box<Self>, ending: Ending, latency: Option<Duration>) {
        drop(self.release(ending, latency));
    }

    fn close(mut self: Box<Self>, ending: Ending) -> BoxFuture<'static, Result<(), StoreError>> {
        let (released, background) = (self.release(ending, None), self.background());
        Box::pin(async move {
            let Some(released) = released else { return Ok(()) };
            match background.wait(RELEASE_TRIES, released).await? {
                Ok(released) => Ok(released?),
                Err(_) => Err(StoreError::unavailable("the background runtime of the client ended")),
            }
        })
    }

    fn debit(&mut self, units: u64) -> Debiting<'_> {
        self.denied = None;
        // The wire reads 0 as 1.
        if units == 0 {
            return Debiting::ready(Ok(ALLOW_FULL));
        }
        Debiting::pending(self.charge(units))
    }

    fn settle(&mut self, actual: u64) {
        self.actual_cost = Some(actual);
    }

    fn used(&self) -> u64 {
        self.actual_cost.unwrap_or(self.used)
    }

    fn reserved(&self) -> u64 {
        if self.hold.is_some() { self.request.units().saturating_sub(self.used()) } else { 0 }
    }

    fn elapsed(&self) -> Option<Duration> {
        self.hold.is_some().then(|| BootClock.now().since(self.sent))
    }

    fn guarantee(&self) -> Guarantee {
        self.guarantee
    }

    fn limit_name(&self) -> Option<LimitName> {
        self.denied
    }

    fn is_fenced(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.is_fenced())
    }

    fn fenced(&self) -> BoxFuture<'_, ()> {
        match &self.hold {
            Some(hold) => Box::pin(hold.fenced()),
            None => Box::pin(std::future::pending()),
        }
    }
}

impl Drop for RemotePermit {
    fn drop(&mut self) {
        let ending = if std::thread::panicking() { Ending::Dropped } else { Ending::Ignored };
        drop(self.release(ending, None));
    }
}

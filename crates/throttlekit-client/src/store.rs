//! A server as the library's store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use throttlekit::clock::{BootClock, Clock, WallClock};
use throttlekit::rate::{Mark, Verdict};
use throttlekit::store::{
    Background, Capabilities, Charge, Charges, Debit, Debited, Epoch, LeaseRequest, LeaseReturn, Leased,
    LocalShares, Outcome, Settlement, Snapshot, Store, StoreError, Want,
};
use throttlekit::{Answer, Guarantee};
use throttlekit_proto::v1::{self, Lease, ReserveRequest, Returned};

use crate::failure::Failure;
use crate::fallback::closed;
use crate::guarantees::Guarantees;
use crate::request::Request;
use crate::returns::{Name, Returns};
use crate::store_key::StoreKey;
use crate::{Client, wire};

/// Above all windows that servers count, and below [`Epoch::NONE`]: for leases without a window.
const UNNAMED: u64 = 1 << 63;

/// A server as a [`Store`], from which leased [`SharedLimiter`](throttlekit::SharedLimiter)s take units. Cheap to clone.
///
/// The name of the limiter is that of the server's policy, which needs `fleet: {}`, and the limit must be the policy's:
/// the server determines how much it lends and for how long, and the limiter computes decisions by the limit. Units of a
/// smooth rate live for the limiter's [`hold`](throttlekit::leasing::Leasing::hold) time, and for a second at most.
///
/// However many processes do so, a window admits at most its limit (guarantee `lease-coupled`); a smooth rate admits at
/// most its limit plus what it refills in that time (guarantee `lease-rolling`).
///
/// ```no_run
/// use throttlekit::{Budget, OnOutage, SharedLimiter};
/// use throttlekit_client::Client;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::new("http://127.0.0.1:50051")?;
/// let api = SharedLimiter::builder(client.store(), "api", Budget::per_minute(10_000))
///     .leased()
///     .on_outage(OnOutage::Open)
///     .build()?;
/// assert!(api.check("alice").await?.allowed);
/// # Ok(())
/// # }
/// ```
///
/// It admits by `Check`, debits by `Debit`, leases and returns by `Reserve`. The server decides a request alone if it
/// costs more than the limit ever holds, and if it costs more than 1 on a smooth rate, whose units of different leases do
/// not add up. The server keeps the state and does not expose it, so peek, settle and reset are not supported, and denials
/// do not name the limit of the server: use a [`RemotePolicy`](crate::RemotePolicy).
#[derive(Clone)]
pub struct RemoteStore {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    returns: Returns,
    unnamed: AtomicU64,
    guarantees: Guarantees,
}

impl RemoteStore {
    pub(crate) fn new(client: Client) -> Self {
        let (returns, unnamed) = (Returns::default(), AtomicU64::new(UNNAMED));
        Self { shared: Arc::new(Shared { client, returns, unnamed, guarantees: Guarantees::default() }) }
    }

    fn client(&self) -> &Client {
        &self.shared.client
    }

    async fn check(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        let [charge] = charges.charges else {
            return Err(StoreError::misconfigured(
                "a server policy counts as exactly one limit on the client",
            ));
        };
        let StoreKey { policy, key } = StoreKey::parse(charge.key)?;
        let request = Request::by(key, charge.cost)?;
        let decision = self.client().check(&policy, &request).await;
        self.outcome(&policy, charge, decision)
    }

    async fn debit_one(&self, debit: &Debit<'_>) -> Result<Debited, StoreError> {
        let StoreKey { policy, key } = StoreKey::parse(debit.charge.key)?;
        let request = Request::by(key, debit.charge.cost)?;
        let decision = self.client().debit(&policy, &request, debit.id).await;
        Ok(Debited { outcome: self.outcome(&policy, &debit.charge, decision)?, repeated: false })
    }

    /// Converts a response. A policy that fails closed has denied, so that no fallback of the limiter overrides it.
    fn outcome(
        &self,
        policy: &str,
        charge: &Charge<'_>,
        decision: Result<v1::Decision, Failure>,
    ) -> Result<Outcome, StoreError> {
        let answer = match decision {
            Ok(decision) => wire::answer(&decision),
            Err(Failure::Closed(_)) => return Ok(outcome_of(&closed(charge.form.limit().units()))),
            Err(failure) => return Err(failure.into()),
        };
        self.shared.guarantees.note(policy, answer.guarantee);
        Ok(outcome_of(&answer))
    }

    async fn reserve(&self, ask: &LeaseRequest<'_>) -> Result<Leased, StoreError> {
        let key = StoreKey::parse(ask.key)?;
        let sent = BootClock.now();
        let lease = self.send(&key, Some(ask.want), None).await?;
        let unnamed = || Epoch(self.shared.unnamed.fetch_add(1, Relaxed));
        let leased = wire::leased(&lease, ask.term, ask.want, WallClock.now(), unnamed)?;
        if let (Some(lives), true) = (leased.loan.lives, leased.loan.granted > 0) {
            let name = Name { id: lease.return_id, wire_epoch: lease.epoch, units: leased.loan.granted };
            self.shared.returns.keep(key, leased.loan.epoch, name, sent + lives);
        }
        Ok(leased)
    }

    async fn hand_back(&self, back: &LeaseReturn<'_>) -> Result<(), StoreError> {
        let key = StoreKey::parse(back.key)?;
        let mut result = Ok(());
        for Name { id, wire_epoch, units } in self.shared.returns.take(&key, back.back.epoch, back.back.units)
        {
            let returned = Returned { return_id: id, units: signed(units), epoch: wire_epoch };
            // One that does not arrive does not stop the others.
            result = self.send(&key, None, Some(returned)).await.map(drop).and(result);
        }
        Ok(result?)
    }

    async fn send(
        &self,
        StoreKey { policy, key }: &StoreKey,
        want: Option<Want>,
        returned: Option<Returned>,
    ) -> Result<Lease, Failure> {
        let (wants, least) =
            want.map_or((0, 0), |want| (signed(want.wants), signed(want.least.min(want.wants))));
        let client_id = self.client().inner.name.clone();
        let caller = v1::Caller { domain: key.clone(), client_id, ..v1::Caller::default() };
        let message = ReserveRequest {
            policy: policy.clone(),
            caller: Some(caller),
            wants,
            least,
            returned,
            key: key.clone(),
            ..ReserveRequest::default()
        };
        self.client().reserve(message).await
    }
}

fn outcome_of(answer: &Answer) -> Outcome {
    let decision = answer.decision;
    let (verdict, guarantee) = (Verdict { decision, binding: 0 }, answer.guarantee);
    Outcome { now: answer.now, verdict, decisions: vec![decision], marks: vec![Mark(0)], guarantee }
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

impl Store for RemoteStore {
    fn background(&self) -> Background {
        self.client().inner.background.clone()
    }

    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        let mut outcomes = Vec::with_capacity(asks.len());
        for ask in asks {
            outcomes.push(self.check(ask).await?);
        }
        Ok(outcomes)
    }

    async fn admit_each(&self, asks: &[Charges<'_>]) -> Vec<Result<Outcome, StoreError>> {
        let mut outcomes = Vec::with_capacity(asks.len());
        for ask in asks {
            outcomes.push(self.check(ask).await);
        }
        outcomes
    }

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        let mut answers = Vec::with_capacity(debits.len());
        for debit in debits {
            answers.push(self.debit_one(debit).await);
        }
        answers
    }

    async fn peek(&self, _: &[Charge<'_>]) -> Result<Snapshot, StoreError> {
        Err(unsupported("peeks"))
    }

    async fn settle(&self, _: &[Settlement<'_>]) -> Result<(), StoreError> {
        Err(unsupported("settlements"))
    }

    async fn lease(&self, asks: &[LeaseRequest<'_>]) -> Vec<Result<Leased, StoreError>> {
        let mut answers = Vec::with_capacity(asks.len());
        for ask in asks {
            answers.push(self.reserve(ask).await);
        }
        answers
    }

    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        let mut result = Ok(());
        for back in backs {
            result = self.hand_back(back).await.and(result);
        }
        result
    }

    async fn reset(&self, _: &[&str]) -> Result<(), StoreError> {
        Err(unsupported("resets"))
    }

    fn guarantee(&self) -> Guarantee {
        self.shared.guarantees.weakest()
    }

    fn local_shares(&self) -> Option<&LocalShares> {
        Some(&self.client().inner.shares)
    }

    /// The server reads keys, and lends as much as its policy allows.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default().key_part_max(usize::MAX).partial_leases()
    }
}

fn unsupported(what: &str) -> StoreError {
    StoreError::rejected(format_args!(
        "a server does not support {what} of single limits: use a RemotePolicy"
    ))
}

throttlekit::debug_fields!([] RemoteStore, |it| client = it.client());

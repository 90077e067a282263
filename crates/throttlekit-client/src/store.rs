//! A server as the library's store for one policy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use throttlekit::clock::{BootClock, Clock, WallClock};
use throttlekit::rate::{Mark, Verdict};
use throttlekit::store::{
    Background, Charge, Charges, Debit, Debited, Epoch, LeaseRequest, LeaseReturn, Leased, Outcome,
    Settlement, Snapshot, Store, StoreError, Want,
};
use throttlekit::{Call, Guarantee};
use throttlekit_proto::v1::fleet_client::FleetClient;
use throttlekit_proto::v1::{self, ReserveRequest, Returned};

use crate::returns::{Name, Returns};
use crate::{Client, ClientError, RemoteAnswer, RemotePolicy, wire};

/// Above all windows that servers count, and below [`Epoch::NONE`]: for leases without a window.
const UNNAMED: u64 = 1 << 63;

/// A server as a [`Store`] of one policy, from which a leased
/// [`SharedLimiter`](throttlekit::SharedLimiter) takes units.
///
/// It admits by `Check`, debits by `Debit`, leases and returns by `Reserve`. The server keeps the state and does not
/// expose it, so peek, settle and reset are not supported: use a [`RemotePolicy`].
#[derive(Clone)]
pub struct RemoteStore {
    shared: Arc<Shared>,
}

struct Shared {
    strict: RemotePolicy,
    returns: Returns,
    unnamed: AtomicU64,
    /// The guarantee of the server's last response, as a number.
    worth: AtomicU64,
}

impl RemoteStore {
    pub(crate) fn new(client: Client, policy: &str) -> Self {
        let (returns, unnamed) = (Returns::default(), AtomicU64::new(UNNAMED));
        let strict = RemotePolicy::closed(client, policy);
        Self { shared: Arc::new(Shared { strict, returns, unnamed, worth: AtomicU64::new(0) }) }
    }

    fn client(&self) -> &Client {
        self.shared.strict.client()
    }

    async fn check(&self, ask: &Charges<'_>) -> Result<Outcome, StoreError> {
        let [charge] = ask.charges else {
            return Err(StoreError::misconfigured("a policy of a server is one limit to its clients"));
        };
        let key = key_of(charge.key)?;
        let answer = self.shared.strict.check(Call::by(&key).cost(charge.cost)).await?;
        self.outcome(answer)
    }

    async fn debit_one(&self, debit: &Debit<'_>) -> Result<Debited, StoreError> {
        let key = key_of(debit.charge.key)?;
        let answer = self.shared.strict.debit(&key, debit.charge.cost, Some(debit.id)).await?;
        Ok(Debited { outcome: self.outcome(answer)?, repeated: false })
    }

    /// Converts a response of the server. Those of our own fallback are errors.
    fn outcome(&self, answer: RemoteAnswer) -> Result<Outcome, StoreError> {
        if let Some(outage) = answer.outage {
            return Err(outage.into());
        }
        self.shared.worth.store(worth(answer.guarantee), Relaxed);
        let decision = answer.decision;
        let verdict = Verdict { decision, binding: 0 };
        let (decisions, marks) = (vec![decision], vec![Mark(0)]);
        Ok(Outcome { now: WallClock.now(), verdict, decisions, marks, guarantee: answer.guarantee })
    }

    async fn reserve(&self, ask: &LeaseRequest<'_>) -> Result<Leased, StoreError> {
        let key = key_of(ask.key)?;
        let sent = BootClock.now();
        let lease = self.send(&key, Some(ask.want), None).await?;
        let unnamed = || Epoch(self.shared.unnamed.fetch_add(1, Relaxed));
        let lent = wire::lent(&lease, ask.term, ask.want, WallClock.now(), unnamed)?;
        if let (Some(lives), true) = (lent.loan.lives, lent.loan.granted > 0) {
            let name = Name { id: lease.return_id, wire_epoch: lease.epoch, units: lent.loan.granted };
            self.shared.returns.keep(key, lent.loan.epoch, name, sent + lives);
        }
        Ok(lent)
    }

    async fn hand_back(&self, back: &LeaseReturn<'_>) -> Result<(), StoreError> {
        let key = key_of(back.key)?;
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
        key: &str,
        want: Option<Want>,
        returned: Option<Returned>,
    ) -> Result<v1::Lease, ClientError> {
        let (wants, least) =
            want.map_or((0, 0), |want| (signed(want.wants), signed(want.least.min(want.wants))));
        let client_id = self.client().inner.name.clone();
        let caller = v1::Caller { domain: key.into(), client_id, ..v1::Caller::default() };
        let request = ReserveRequest {
            policy: self.shared.strict.policy().into(),
            caller: Some(caller),
            wants,
            least,
            returned,
            key: key.into(),
            ..ReserveRequest::default()
        };
        let call = |channel, request| async move { FleetClient::new(channel).reserve(request).await };
        let lease = self.client().ask(request, call).await?.lease;
        lease.ok_or_else(|| ClientError::Failed("the server left a reservation without an answer".into()))
    }
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
        Err(untold("peeks"))
    }

    async fn settle(&self, _: &[Settlement<'_>]) -> Result<(), StoreError> {
        Err(untold("settlements"))
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
        Err(untold("resets"))
    }

    fn guarantee(&self) -> Guarantee {
        worth_of(self.shared.worth.load(Relaxed))
    }
}

fn untold(what: &str) -> StoreError {
    StoreError::misconfigured(format_args!("a server takes no {what} of single limits: ask a RemotePolicy"))
}

const LOCAL: u64 = u64::MAX;
const OPEN: u64 = u64::MAX - 1;
const CLOSED: u64 = u64::MAX - 2;

fn worth(guarantee: Guarantee) -> u64 {
    match guarantee {
        Guarantee::Exact => 0,
        Guarantee::Bounded(over) => over.clamp(1, CLOSED - 1),
        Guarantee::Local => LOCAL,
        Guarantee::Open => OPEN,
        Guarantee::Closed => CLOSED,
    }
}

fn worth_of(number: u64) -> Guarantee {
    match number {
        0 => Guarantee::Exact,
        LOCAL => Guarantee::Local,
        OPEN => Guarantee::Open,
        CLOSED => Guarantee::Closed,
        over => Guarantee::Bounded(over),
    }
}

/// Extracts the caller's key from a name that the library gave it: `prefix:{policy/key}rule:`, escaped.
fn key_of(name: &str) -> Result<String, StoreError> {
    let odd =
        || StoreError::misconfigured(format_args!("{name}: a server is asked by text of up to 200 bytes"));
    let inner = name.split_once(":{").and_then(|(_, rest)| rest.split_once('}')).ok_or_else(odd)?.0;
    let key = inner.split_once('/').ok_or_else(odd)?.1;
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let [byte, more @ ..] = rest {
        rest = more;
        match byte {
            b'%' => {
                let hex = rest.get(..2).and_then(|hex| str::from_utf8(hex).ok()).ok_or_else(odd)?;
                bytes.push(u8::from_str_radix(hex, 16).map_err(|_| odd())?);
                rest = &rest[2..];
            }
            // A hash, which cannot be decoded.
            b'#' => return Err(odd()),
            plain => bytes.push(*plain),
        }
    }
    String::from_utf8(bytes).map_err(|_| odd())
}

throttlekit::debug_fields!([] RemoteStore, |it| policy = it.shared.strict.policy());

#[cfg(test)]
mod tests {
    use throttlekit::rate::shared::ScriptEncoding;
    use throttlekit::store::KeySpace;
    use throttlekit::{Limit, Rate};

    use super::*;

    #[test]
    fn a_key_is_read_back_as_it_was_given() {
        let form = ScriptEncoding::of(&Limit::gcra(Rate::per_second(1)).unwrap()).unwrap();
        let space = KeySpace::new("tk", "a/pi {}", "", &form);
        for key in ["alice", "", "{x}/y:%#z", "ключ", &"k".repeat(200)] {
            assert_eq!(key_of(&space.key(key.as_bytes(), key.as_bytes())).as_deref(), Ok(key));
        }
        let long = "k".repeat(201);
        assert!(key_of(&space.key(long.as_bytes(), long.as_bytes())).is_err(), "a hash stands for it");
        assert!(key_of(&space.key(&[0xff], &[0xff])).is_err(), "the wire carries text");
    }

    #[test]
    fn what_an_answer_is_worth_survives_its_number() {
        let bounds =
            [Guarantee::Exact, Guarantee::Bounded(7), Guarantee::Local, Guarantee::Open, Guarantee::Closed];
        for guarantee in bounds {
            assert_eq!(worth_of(worth(guarantee)), guarantee);
        }
    }
}

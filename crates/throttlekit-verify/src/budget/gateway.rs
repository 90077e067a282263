//! Gateways between streams and the store.

use throttlekit::leasing::{Batch, Leasing};
use throttlekit::store::{DebitId, Store, StoreError};
use throttlekit::{Answer, Call, Limit, SharedLimiter};

use super::KEY;

/// The response to a debit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The stream may go on.
    Allowed,
    /// The budget is spent.
    Denied,
    /// Unknown; the stream may retry.
    Unknown,
    /// A later debit came first.
    Late,
}

/// Handles the debits of streams.
pub trait Gateway: Send + Sync + 'static {
    /// True if a debit may be sent again under its identifier.
    const NAMED: bool;

    /// Handles one debit.
    fn debit(&self, tokens: u64, id: DebitId) -> impl Future<Output = Told> + Send;
}

/// Sends each debit to the store.
pub struct StrictGateway<S: Store>(SharedLimiter<S>);

impl<S: Store> StrictGateway<S> {
    pub(super) fn new(store: S, policy: &str, limit: Limit) -> Self {
        Self(SharedLimiter::new(store, policy, limit).expect("a budget is shareable"))
    }
}

impl<S: Store> Gateway for StrictGateway<S> {
    const NAMED: bool = true;

    async fn debit(&self, tokens: u64, id: DebitId) -> Told {
        told(self.0.debit((KEY, tokens), id).await)
    }
}

/// Leases tokens in batches.
pub struct LeasedGateway<S: Store>(SharedLimiter<S>);

impl<S: Store> LeasedGateway<S> {
    pub(super) fn new(store: S, policy: &str, limit: Limit, batch: u64) -> Self {
        let leasing = Leasing::new().batch(Batch::Fixed(batch)).return_after(None);
        let limiter = SharedLimiter::builder(store, policy, limit).leased_with(leasing).build();
        Self(limiter.expect("a budget lends"))
    }
}

impl<S: Store> Gateway for LeasedGateway<S> {
    const NAMED: bool = false;

    async fn debit(&self, tokens: u64, _id: DebitId) -> Told {
        told(self.0.check(Call::by(KEY).cost(tokens)).await)
    }
}

pub(super) fn told(answer: Result<Answer, StoreError>) -> Told {
    match answer {
        Ok(answer) if answer.outage.is_some() => Told::Unknown,
        Ok(answer) if answer.decision.allowed => Told::Allowed,
        Ok(_) => Told::Denied,
        Err(StoreError::Stale(_)) => Told::Late,
        Err(error) => panic!("the store answers: {error}"),
    }
}

//! The source of units.

use std::pin::Pin;
use std::time::Duration;

use throttlekit_core::fair::Weight;
use throttlekit_core::lease::Loan;
use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_core::rate::{Limit, LimitError, Rule};

use crate::Guarantee;
use crate::store::{
    Background, Charge, KeySpace, LeaseRequest, PoolGrant, RegionGrant, RegionRequest, RegionStore, Store,
    StoreError, Term, Want,
};

const PREFIX: &str = "tk";
const ONE: Want = Want { wants: 1, least: 1, share: 1 };

pub(super) type Granting<'a> = Pin<Box<dyn Future<Output = Result<RegionGrant, StoreError>> + Send + 'a>>;

/// A budget that several participants share, as seen by one of them.
pub(super) trait Source: Send + Sync {
    /// Takes up to `wants` more units, for tenants of this total weight. If `wants` is zero, nothing is taken: then
    /// only the available units are reported.
    fn more(&self, weight: Weight, wants: u64) -> Granting<'_>;

    /// Returns the shared window.
    fn limit(&self) -> &Limit;

    /// Returns the guarantee of its decisions.
    fn guarantee(&self) -> Guarantee;

    /// Returns the background for its tasks.
    fn background(&self) -> Background;
}

/// A region's part of a pool that is shared by weight.
pub(super) struct Region<P> {
    pool: P,
    key: String,
    form: ScriptEncoding,
    region: String,
}

impl<P: RegionStore> Region<P> {
    /// Creates the region of this name, one of those that share a window of `limit` under this policy.
    pub(super) fn new(pool: P, policy: &str, region: &str, limit: &Limit) -> Result<Self, LimitError> {
        let form = ScriptEncoding::of(limit)?;
        let (key, region) = (KeySpace::pool(PREFIX, policy), KeySpace::part(region.as_bytes()));
        Ok(Self { pool, key, form, region })
    }
}

impl<P: RegionStore> Source for Region<P> {
    fn more(&self, weight: Weight, wants: u64) -> Granting<'_> {
        Box::pin(async move {
            let Self { pool, key, form, region } = self;
            pool.grant(&RegionRequest { key, form, region, weight, wants }).await
        })
    }

    fn limit(&self) -> &Limit {
        self.form.limit()
    }

    fn guarantee(&self) -> Guarantee {
        self.pool.guarantee()
    }

    fn background(&self) -> Background {
        self.pool.background()
    }
}

/// Quanta of one window that all participants take first come, first served.
pub(super) struct Quanta<S> {
    store: S,
    key: String,
    form: ScriptEncoding,
}

impl<S: Store> Quanta<S> {
    /// Creates the budget over the window of `limit` under this policy.
    pub(super) fn new(store: S, policy: &str, limit: &Limit) -> Result<Self, LimitError> {
        Ok(Self { store, key: KeySpace::quanta(PREFIX, policy), form: ScriptEncoding::of(limit)? })
    }

    fn ask(&self, want: Want) -> LeaseRequest<'_> {
        LeaseRequest { key: &self.key, form: &self.form, term: Term::Window, want }
    }

    async fn take(&self, wants: u64) -> Result<RegionGrant, StoreError> {
        let mut answers = self.store.lease(&[self.ask(Want { wants, ..ONE })]).await;
        let lent = answers
            .pop()
            .unwrap_or_else(|| Err(StoreError::bad_state("the store returned too few results")))?;
        let Loan { granted, decision, .. } = lent.loan;
        let more = if granted == 0 { 0 } else { decision.remaining };
        Ok(RegionGrant { now: lent.now, grant: grant_of(&lent.loan, granted, more) })
    }

    async fn look(&self) -> Result<RegionGrant, StoreError> {
        let charge = Charge { key: &self.key, form: &self.form, cost: 1 };
        let sight = self.store.peek(&[charge]).await?;
        let state = sight.states.first().ok_or_else(|| StoreError::bad_state(&self.key))?;
        let loan = self.ask(ONE).authority()?.look(state, ONE, sight.now);
        let left = self.form.limit().decide(state, 0, sight.now).remaining;
        Ok(RegionGrant { now: sight.now, grant: grant_of(&loan, 0, left) })
    }
}

fn grant_of(loan: &Loan, granted: u64, more: u64) -> PoolGrant {
    PoolGrant { granted, more, epoch: loan.epoch, lives: loan.lives.unwrap_or(Duration::ZERO) }
}

impl<S: Store> Source for Quanta<S> {
    fn more(&self, _: Weight, wants: u64) -> Granting<'_> {
        Box::pin(async move { if wants == 0 { self.look().await } else { self.take(wants).await } })
    }

    fn limit(&self) -> &Limit {
        self.form.limit()
    }

    fn guarantee(&self) -> Guarantee {
        self.store.guarantee()
    }

    fn background(&self) -> Background {
        self.store.background()
    }
}

//! Leasing units of a limit to clients, which spend them locally.

use throttlekit::rate::Timestamp;
use throttlekit::rate::shared::ScriptEncoding;
use throttlekit::store::{
    Epoch, KeySpace, LeaseRequest, LeaseReturn, Return, ReturnId, Store, StoreError, Term, Want,
};
use throttlekit::{BuildError, Decision, Guarantee, Limit, OnOutage, SharedLimiter};

use super::Granted;
use super::backend::Counted;
use crate::policy::{FleetSpec, LENT_FOR};

/// Prefix of the names of keys.
pub(super) const PREFIX: &str = "tk";

pub(super) struct Lender {
    store: Counted,
    form: ScriptEncoding,
    space: KeySpace,
    term: Term,
    /// Index of the call's key that the rate counts by.
    by: usize,
    lease_max: u64,
    share: u64,
    /// Used during an outage of the store: it applies the fallback.
    strict: SharedLimiter<Counted>,
}

/// The units that were lent, and their guarantee.
pub(super) struct LentUnits {
    pub(super) granted: Granted,
    pub(super) decision: Decision,
    pub(super) guarantee: Guarantee,
    /// The window that accepts returned units, if any.
    pub(super) epoch: Option<Epoch>,
    /// The store's time.
    pub(super) now: Timestamp,
}

impl Lender {
    pub(super) fn new(
        spec: &FleetSpec,
        store: Counted,
        policy: &str,
        (limit, by): (Limit, usize),
        on_outage: OnOutage,
    ) -> Result<Self, BuildError> {
        let form = ScriptEncoding::of(&limit)?;
        let term = if matches!(limit, Limit::Window(_)) { Term::Window } else { Term::Rolling(LENT_FOR) };
        Ok(Self {
            space: KeySpace::new(PREFIX, policy, "", &form),
            form,
            term,
            by,
            lease_max: spec.units_max().max(1),
            share: spec.share.unwrap_or(1).max(1),
            strict: SharedLimiter::builder(store.clone(), policy, limit).on_outage(on_outage).build()?,
            store,
        })
    }

    /// Returns the call's key that the rate counts by.
    fn key<'a>(&self, keys: &[&'a [u8]]) -> &'a [u8] {
        keys.get(self.by).copied().unwrap_or_default()
    }

    /// Lends the requested units or fewer, but none if that would be fewer than the minimum.
    pub(super) async fn lend(&self, keys: &[&[u8]], wants: u64, least: u64) -> Result<LentUnits, StoreError> {
        let key = self.key(keys);
        let name = self.space.key(key, key);
        let wants = wants.min(self.lease_max);
        let want = Want { wants, least: least.clamp(1, wants.max(1)), share: self.share };
        let ask = LeaseRequest { key: &name, form: &self.form, term: self.term, want };
        let lent = self.store.lease(&[ask]).await.into_iter().next();
        match lent
            .unwrap_or_else(|| Err(StoreError::bad_state("the store returned no result for a lease request")))
        {
            Ok(lent) => {
                let loan = lent.loan;
                let lives = loan.lives.unwrap_or(LENT_FOR);
                let granted = Granted {
                    units: loan.granted,
                    lives,
                    until: lent.now + lives,
                    refresh_after: lives,
                    retry_after: loan.decision.retry_after.wait(),
                    limit: self.form.limit().units(),
                    loan: None,
                };
                let decision = Decision { allowed: loan.granted > 0, ..loan.decision };
                let takes_back = self.term == Term::Window && loan.epoch != Epoch::NONE && loan.granted > 0;
                let epoch = takes_back.then_some(loan.epoch);
                let guarantee = Store::guarantee(&self.store);
                Ok(LentUnits { granted, decision, guarantee, epoch, now: lent.now })
            }
            Err(error) if error.is_outage() => self.stand_in(key, want).await,
            Err(error) => Err(error),
        }
    }

    /// Returns unspent units of a loan to the store. Returns that are late or repeated are not counted; those that do
    /// not arrive expire with their window. The client cannot fix either.
    pub(super) async fn take_back(&self, keys: &[&[u8]], id: u128, epoch: Epoch, units: u64) {
        let key = self.key(keys);
        let (name, back) = (self.space.key(key, key), Return { epoch, units });
        let give_back = LeaseReturn { key: &name, form: &self.form, id: ReturnId(id), back };
        let _ = self.store.give_back(&[give_back]).await;
    }

    /// Lends units for a short time by the fallback for an outage.
    async fn stand_in(&self, key: &[u8], want: Want) -> Result<LentUnits, StoreError> {
        let mut wants = want.wants;
        let mut answer = self.strict.check(throttlekit::Call::by(key).cost(wants)).await?;
        if !answer.allowed && (want.least..wants).contains(&answer.remaining) {
            wants = answer.remaining;
            answer = self.strict.check(throttlekit::Call::by(key).cost(wants)).await?;
        }
        let decision = answer.decision;
        let granted = Granted {
            units: if decision.allowed { wants } else { 0 },
            lives: LENT_FOR,
            until: answer.now + LENT_FOR,
            refresh_after: LENT_FOR,
            retry_after: decision.retry_after.wait(),
            limit: self.form.limit().units(),
            loan: None,
        };
        Ok(LentUnits { granted, decision, guarantee: answer.guarantee, epoch: None, now: answer.now })
    }
}

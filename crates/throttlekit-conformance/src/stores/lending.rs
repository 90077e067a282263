//! Leases and returns in a scenario, between the requests and settlements on the same keys.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use throttlekit::Limit;
use throttlekit::store::{LeaseRequest, LeaseReturn, Leased, Store, StoreError};
use throttlekit_core::lease::{Return, ReturnId, Term, Want};
use throttlekit_core::rate::{Mark, Rule, Settle};

use super::fixture::{Fault, Heard, same};
use super::play::Play;
use super::policy::{Placed, Policy};
use super::scenario::{StoreLease, Used};

/// Leases and their returns.
#[derive(Default)]
pub(super) struct Lending {
    /// Leases for a window, whose units may be returned.
    loans: Vec<Owed>,
    backs: Vec<Back>,
}

/// Leased units.
#[derive(Clone)]
struct Owed {
    limit: usize,
    name: String,
    lent: Return,
}

/// A return, as it first arrived.
#[derive(Clone)]
struct Back {
    owed: Owed,
    id: ReturnId,
    units: u64,
}

impl Play<'_> {
    /// Compares every lease field by field. After an error nothing may have changed, as after a denial.
    pub(super) async fn lease<S: Store>(&mut self, store: &Arc<S>, asks: &[StoreLease]) -> Heard {
        let placed: Vec<Placed> = asks.iter().map(|ask| self.policy.place_keys(&ask.keys)).collect();
        let (before, mut next) = (self.rules.clone(), self.rules.clone());
        let leases = leases_of(&self.policy, asks, &placed);
        let want: Vec<_> = leases.iter().map(|ask| next.lend(ask, self.now)).collect();
        if !self.adopt(next) {
            return Ok(());
        }
        let got = store.lease(&leases_of(&self.policy, asks, &placed)).await;
        self.notes.answers += want.len() as u64;
        same(&want.len(), &got.len())?;
        want.iter().zip(&got).try_for_each(|(want, got)| same_lent(want, got))?;
        placed.iter().for_each(|ask| self.remember(ask));
        self.notes.see_if(asks.len() > 1, "a flight of leases");
        for ((ask, placed), lent) in asks.iter().zip(&placed).zip(&want) {
            let state = before.state(&placed.names[ask.limit]);
            let left = self.policy.forms[ask.limit].limit().decide(&state, 0, self.now).remaining;
            self.take_loan(ask, placed, left, lent);
        }
        let nothing = |lent: &Result<Leased, _>| lent.as_ref().is_ok_and(|lent| lent.loan.granted == 0);
        if self.scenario.looks && want.iter().all(nothing) {
            return self.look_at_all(store).await;
        }
        Ok(())
    }

    /// Records a lease whose units may be returned later.
    fn take_loan(&mut self, ask: &StoreLease, placed: &Placed, left: u64, lent: &Result<Leased, StoreError>) {
        let Ok(Leased { loan, .. }) = lent else { return self.notes.see("a limit that does not lend") };
        let Want { wants, share, .. } = ask.want;
        let term = term_of(self.policy.forms[ask.limit].limit(), ask.carries);
        self.notes.see_if(loan.granted == 0, "lease refused");
        if loan.granted == 0 {
            return;
        }
        self.notes.see_if(loan.granted > left, "lease across the edge");
        self.notes.see_if(share > 1 && loan.granted < wants, "lease of a share");
        self.notes.see_if(share <= 1 && loan.granted < wants, "lease of what is left");
        self.notes.see(match term {
            Term::Window => "lease for a window",
            Term::Rolling(_) => "lease for a time",
            Term::Carry => "lease for ever",
        });
        if term == Term::Window {
            let lent = Return { epoch: loan.epoch, units: loan.granted };
            self.lending.loans.push(Owed { limit: ask.limit, name: placed.names[ask.limit].clone(), lent });
        }
    }

    pub(super) async fn give_back<S: Store>(
        &mut self,
        store: &Arc<S>,
        loan: usize,
        units: Used,
        twice: bool,
    ) -> Heard {
        let Lending { loans, backs } = &self.lending;
        if loans.is_empty() {
            return Ok(());
        }
        let owed = loans[loan % loans.len()].clone();
        let back = Back { units: units.of(owed.lent.units), id: self.return_id(backs.len()), owed };
        self.lending.backs.push(back.clone());
        self.note_back(&back);
        self.notes.see_if(twice, "give back again");
        self.hand_back(store, &vec![back; 1 + usize::from(twice)]).await
    }

    pub(super) async fn give_back_again<S: Store>(&mut self, store: &Arc<S>, back: usize) -> Heard {
        let backs = &self.lending.backs;
        if backs.is_empty() {
            return Ok(());
        }
        let back = backs[back % backs.len()].clone();
        self.notes.see("give back again");
        self.hand_back(store, &[back]).await
    }

    /// Returns units. The effect on states shows in later responses, and in the end.
    async fn hand_back<S: Store>(&mut self, store: &Arc<S>, backs: &[Back]) -> Heard {
        let policy = &self.policy;
        let backs: Vec<_> = backs.iter().map(|back| back.given(policy)).collect();
        for given in &backs {
            self.rules.take_back(given, self.now)?;
        }
        Ok(store.give_back(&backs).await?)
    }

    fn note_back(&mut self, Back { owed, units, .. }: &Back) {
        let limit = self.policy.forms[owed.limit].limit();
        let present = limit.mark(&self.rules.state(&owed.name), self.now);
        self.notes.see("give back");
        self.notes.see_if(present != Mark(owed.lent.epoch.0), "give back into a window that is over");
        self.notes.see_if(*units > owed.lent.units, "give back more than was lent");
    }

    /// Returns an id that no other return has: scenarios share their engines, and an engine may keep ids for all keys.
    fn return_id(&self, count: usize) -> ReturnId {
        let mut hash = DefaultHasher::new();
        self.policy.name.hash(&mut hash);
        ReturnId((u128::from(hash.finish()) << 64) | count as u128)
    }
}

impl Back {
    fn given<'a>(&'a self, policy: &'a Policy) -> LeaseReturn<'a> {
        let back = Return { units: self.units, ..self.owed.lent };
        LeaseReturn { key: &self.owed.name, form: &policy.forms[self.owed.limit], id: self.id, back }
    }
}

fn leases_of<'a>(policy: &'a Policy, asks: &[StoreLease], placed: &'a [Placed]) -> Vec<LeaseRequest<'a>> {
    let lease = |(ask, placed): (&StoreLease, &'a Placed)| {
        let form = &policy.forms[ask.limit];
        let term = term_of(form.limit(), ask.carries);
        LeaseRequest { key: &placed.names[ask.limit], form, term, want: ask.want }
    };
    asks.iter().zip(placed).map(lease).collect()
}

/// Returns the term for the limit's kind.
fn term_of(limit: &Limit, carries: bool) -> Term {
    match limit {
        _ if carries => Term::Carry,
        Limit::Gcra(_) => Term::Rolling(limit.period()),
        _ => Term::Window,
    }
}

/// Compares part by part, so that the first difference is reported separately. Error messages must be identical.
fn same_lent(want: &Result<Leased, StoreError>, got: &Result<Leased, StoreError>) -> Heard {
    match (want, got) {
        (Ok(want), Ok(got)) => {
            same(&want.now, &got.now)?;
            same(&("granted", want.loan.granted), &("granted", got.loan.granted))?;
            same(&want.loan.epoch, &got.loan.epoch)?;
            same(&("lives", want.loan.lives), &("lives", got.loan.lives))?;
            same(&want.loan.decision, &got.loan.decision)
        }
        (Ok(_), Err(error)) => Err(Fault::Error(error.clone())),
        _ => same(want, got),
    }
}

//! Stores that take a change of numbers wrongly, to show that the law can fail.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use throttlekit::ManualClock;
use throttlekit::store::{Charge, Charges, Debit, Debited, GiveBack, LeaseAsk, Lent, MemoryStore, Outcome};
use throttlekit::store::{Settlement, Sight, Store, StoreError};
use throttlekit_core::rate::shared::SharedForm;

/// What is wrong with a [`Reloaded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ReloadBug {
    /// Whoever has used all begins anew with each change.
    BeginsAnew,
    /// The same, but only where loans are asked for.
    LendsAnew,
    /// Keys keep the numbers they were first asked under.
    KeepsOldNumbers,
    /// What was used is forgotten where fewer are allowed, so that nobody is in debt.
    ForgivesWhereLess,
    /// The names of debits end with the version.
    NamesAnew,
    /// Nothing is handed back once the version has changed.
    KeepsRefunds,
}

/// Every bug with its name.
pub const RELOAD_BUGS: [(&str, ReloadBug); 6] = {
    use ReloadBug::*;
    [
        ("begins_anew", BeginsAnew),
        ("lends_anew", LendsAnew),
        ("keeps_old_numbers", KeepsOldNumbers),
        ("forgives_where_less", ForgivesWhereLess),
        ("names_anew", NamesAnew),
        ("keeps_refunds", KeepsRefunds),
    ]
};

type Met = (SharedForm, SharedForm, u128);

/// A store in memory with one bug.
#[derive(Debug)]
pub struct Reloaded {
    inner: MemoryStore<ManualClock>,
    bug: ReloadBug,
    /// The numbers under which each key was first and last asked for, or lent from, and how often they changed.
    forms: Mutex<HashMap<(String, bool), Met>>,
}

impl Reloaded {
    /// An empty store with this bug.
    pub fn new(clock: ManualClock, bug: ReloadBug) -> Self {
        Self { inner: MemoryStore::with_clock(clock), bug, forms: Mutex::default() }
    }

    /// The form to answer with, how often it has changed, and whether the key is forgotten first.
    fn meet(&self, key: &str, form: &SharedForm, lends: bool) -> (SharedForm, u128, bool) {
        let mut forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, last, changes) = forms.entry((key.into(), lends)).or_insert((*form, *form, 0));
        let changed = last != form;
        let fewer = form.limit().units() < last.limit().units();
        *changes += u128::from(changed);
        *last = *form;
        let forgets = changed
            && match self.bug {
                ReloadBug::BeginsAnew => true,
                ReloadBug::LendsAnew => lends,
                ReloadBug::ForgivesWhereLess => fewer,
                _ => false,
            };
        (if self.bug == ReloadBug::KeepsOldNumbers { *first } else { *form }, *changes, forgets)
    }

    async fn met(&self, key: &str, form: &SharedForm, lends: bool) -> Result<(SharedForm, u128), StoreError> {
        let (form, changes, forgets) = self.meet(key, form, lends);
        if forgets {
            self.inner.reset(&[key]).await?;
        }
        Ok((form, changes))
    }
}

impl Store for Reloaded {
    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        let mut outcomes = Vec::new();
        for ask in asks {
            let mut forms = Vec::new();
            for charge in ask.charges {
                forms.push(self.met(charge.key, charge.form, false).await?.0);
            }
            let each = ask.charges.iter().zip(&forms);
            let charges: Vec<_> = each.map(|(charge, form)| Charge { form, ..*charge }).collect();
            outcomes.extend(self.inner.admit(&[Charges { need: ask.need, charges: &charges }]).await?);
        }
        Ok(outcomes)
    }

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        let mut answers = Vec::new();
        for debit in debits {
            let Ok((form, changes)) = self.met(debit.charge.key, debit.charge.form, false).await else {
                continue;
            };
            let mut asked = Debit { charge: Charge { form: &form, ..debit.charge }, ..*debit };
            if self.bug == ReloadBug::NamesAnew {
                asked.id.stream ^= changes << 96;
            }
            answers.extend(self.inner.debit(&[asked]).await);
        }
        answers
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Sight, StoreError> {
        self.inner.peek(charges).await
    }

    async fn settle(&self, settlements: &[Settlement<'_>]) -> Result<(), StoreError> {
        for settlement in settlements {
            let (_, changes) = self.met(settlement.key, settlement.form, false).await?;
            if self.bug != ReloadBug::KeepsRefunds || changes == 0 {
                self.inner.settle(&[*settlement]).await?;
            }
        }
        Ok(())
    }

    async fn lease(&self, asks: &[LeaseAsk<'_>]) -> Vec<Result<Lent, StoreError>> {
        let mut answers = Vec::new();
        for ask in asks {
            let Ok((form, _)) = self.met(ask.key, ask.form, true).await else { continue };
            answers.extend(self.inner.lease(&[LeaseAsk { form: &form, ..*ask }]).await);
        }
        answers
    }

    async fn give_back(&self, backs: &[GiveBack<'_>]) -> Result<(), StoreError> {
        self.inner.give_back(backs).await
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.inner.reset(keys).await
    }
}

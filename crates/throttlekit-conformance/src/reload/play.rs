//! Plays worlds to a store and to a store in memory, and compares as it goes.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::time::Duration;

use throttlekit::store::{Charge, Charges, Debit, DebitId, GiveBack, KeySpace, LeaseAsk, MemoryStore};
use throttlekit::store::{Return, ReturnId, Settlement, Store, StoreError, Term, Want};
use throttlekit::{Clock, Limit, ManualClock};
use throttlekit_core::Cost;
use throttlekit_core::rate::shared::SharedForm;
use throttlekit_core::rate::{Mark, Need, Rule};

use super::judge::Change;
use super::planted::{ReloadBug, Reloaded};
use super::world::{KEYS, ReloadStep, ReloadWorld};
use crate::laws::Violation;
use crate::stores::{Used, policy_name};

/// After so many worlds the store is made anew: it may bound how many different limits it keeps.
const WORLDS_PER_STORE: usize = 100;

/// How much was seen of what matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// Worlds played.
    pub worlds: u64,
    /// Answers compared.
    pub answers: u64,
    /// Keys that were looked at before and after a change.
    pub changes: u64,
    /// Of these, keys that had used something.
    pub carried: u64,
    /// Keys in a window under way that is none of the new version's.
    pub off_grid: u64,
    /// Loans to keys, after a change.
    pub lent: u64,
    /// Debits that came again after a change.
    pub repeated: u64,
}

/// Plays the worlds of these seeds to a store: law `reload`. The first violation ends it.
///
/// `make` makes a store that reads the clock given; all it makes may share one engine.
pub async fn examine_reload<S, M, F>(make: M, seeds: Range<u64>) -> Result<ReloadReport, Violation>
where
    S: Store,
    M: Fn(ManualClock) -> F,
    F: Future<Output = Result<S, StoreError>>,
{
    let mut report = ReloadReport::default();
    for first in seeds.clone().step_by(WORLDS_PER_STORE) {
        let clock = ManualClock::default();
        let failed = |seed, story| Violation { seed, story };
        let store = make(clock.clone()).await.map_err(|error| failed(first, error.to_string()))?;
        for seed in first..seeds.end.min(first + WORLDS_PER_STORE as u64) {
            let world = ReloadWorld::roll(seed);
            match play(&world, &store, &clock).await {
                Ok(played) => report.add(&played),
                Err(fault) => return Err(failed(seed, shortest(world, fault, &store, &clock).await)),
            }
        }
    }
    Ok(report)
}

/// How many worlds it takes until the examination finds a planted bug, if `worlds_max` are enough.
pub async fn find_reload_bug(bug: ReloadBug, worlds_max: u64) -> Option<u64> {
    let make = |clock| async move { Ok(Reloaded::new(clock, bug)) };
    examine_reload(make, 0..worlds_max).await.err().map(|violation| violation.seed + 1)
}

impl ReloadReport {
    fn add(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.answers += other.answers;
        self.changes += other.changes;
        self.carried += other.carried;
        self.off_grid += other.off_grid;
        self.lent += other.lent;
        self.repeated += other.repeated;
    }
}

async fn shortest<S: Store>(
    mut world: ReloadWorld,
    mut fault: String,
    store: &S,
    clock: &ManualClock,
) -> String {
    'smaller: loop {
        for smaller in world.smaller() {
            if let Err(found) = play(&smaller, store, clock).await {
                (world, fault) = (smaller, found);
                continue 'smaller;
            }
        }
        return format!("{fault}\n{world}");
    }
}

async fn play<S: Store>(world: &ReloadWorld, store: &S, clock: &ManualClock) -> Result<ReloadReport, String> {
    clock.set(world.start);
    let mut play = Play::new(world, store, clock);
    for (index, step) in world.steps.iter().enumerate() {
        play.step(*step).await.map_err(|fault| format!("at step {index}: {fault}"))?;
    }
    play.report.worlds = 1;
    Ok(play.report)
}

/// One world under way.
struct Play<'a, S> {
    store: &'a S,
    beside: MemoryStore<ManualClock>,
    clock: &'a ManualClock,
    policy: String,
    forms: Vec<SharedForm>,
    /// A limit that never changes.
    other: SharedForm,
    version: usize,
    changed: bool,
    receipts: Vec<Paid>,
    loans: Vec<Paid>,
    /// The number of the last debit of each key.
    debits: [u64; KEYS as usize],
    returns: u64,
    report: ReloadReport,
}

/// What was charged or lent, under which version.
#[derive(Clone, Copy)]
struct Paid {
    key: u8,
    version: usize,
    mark: Mark,
    cost: Cost,
}

fn same<T: PartialEq + Debug>(want: &T, got: &T) -> Result<(), String> {
    if want == got { Ok(()) } else { Err(format!("\n  want {want:?}\n  got  {got:?}")) }
}

impl<'a, S: Store> Play<'a, S> {
    fn new(world: &ReloadWorld, store: &'a S, clock: &'a ManualClock) -> Self {
        let form = |limit: &Limit| SharedForm::of(limit).expect("worlds hold limits with a shared form");
        let version = |spec: &crate::Spec| form(&spec.limit().expect("worlds hold valid limits"));
        Self {
            store,
            beside: MemoryStore::with_clock(clock.clone()),
            clock,
            policy: policy_name(world.seed),
            forms: world.versions.iter().map(version).collect(),
            other: form(&Limit::fixed_window(1_000_000, Duration::from_secs(60)).expect("a valid limit")),
            version: 0,
            changed: false,
            receipts: Vec::new(),
            loans: Vec::new(),
            debits: [0; KEYS as usize],
            returns: 0,
            report: ReloadReport::default(),
        }
    }

    async fn step(&mut self, step: ReloadStep) -> Result<(), String> {
        self.report.answers += 1;
        match step {
            ReloadStep::Ask(key, cost) => self.ask(key, cost, false).await,
            ReloadStep::AskBoth(key, cost) => self.ask(key, cost, true).await,
            ReloadStep::Settle(nth, used, today) => self.settle(nth, used, today).await,
            ReloadStep::Lease(key, want) => self.lease(key, want).await,
            ReloadStep::GiveBack(nth, used, today) => self.give_back(nth, used, today).await,
            ReloadStep::Debit(key, cost, again) => self.debit(key, cost, again).await,
            ReloadStep::Change(version) => self.change(version).await,
            ReloadStep::Wait(by) => {
                self.clock.set(self.clock.now() + by);
                Ok(())
            }
        }
    }

    fn name(&self, key: u8) -> String {
        KeySpace::new("tk", &self.policy, "changes", &self.forms[self.version]).key(b"home", &[b'a' + key])
    }

    fn beside_name(&self) -> String {
        KeySpace::new("tk", &self.policy, "stays", &self.other).key(b"home", b"z")
    }

    async fn ask(&mut self, key: u8, cost: Cost, both: bool) -> Result<(), String> {
        let (name, beside, form) = (self.name(key), self.beside_name(), self.forms[self.version]);
        let charges =
            [Charge { key: &name, form: &form, cost }, Charge { key: &beside, form: &self.other, cost: 1 }];
        let ask = [Charges { need: Need::All, charges: &charges[..1 + usize::from(both)] }];
        let want = self.beside.admit(&ask).await;
        same(&want, &self.store.admit(&ask).await)?;
        let outcome = want.map_err(|error| error.to_string())?.remove(0);
        if outcome.verdict.decision.allowed {
            self.receipts.push(Paid { key, version: self.version, mark: outcome.marks[0], cost });
        }
        Ok(())
    }

    async fn settle(&mut self, nth: usize, used: Used, today: bool) -> Result<(), String> {
        if self.receipts.is_empty() {
            return Ok(());
        }
        let paid = self.receipts.swap_remove(nth % self.receipts.len());
        let version = if today { self.version } else { paid.version };
        let (name, form) = (self.name(paid.key), self.forms[version]);
        let (mark, charged, actual) = (paid.mark, paid.cost, used.of(paid.cost));
        let settlements = [Settlement { key: &name, form: &form, mark, charged, actual }];
        same(&self.beside.settle(&settlements).await, &self.store.settle(&settlements).await)?;
        self.look(paid.key).await.map(drop)
    }

    async fn lease(&mut self, key: u8, want: Want) -> Result<(), String> {
        let (name, form) = (self.name(key), self.forms[self.version]);
        let term = match form.limit() {
            Limit::Gcra(_) => Term::Rolling(form.limit().period()),
            _ => Term::Window,
        };
        let asks = [LeaseAsk { key: &name, form: &form, term, want }];
        let want = self.beside.lease(&asks).await;
        same(&want, &self.store.lease(&asks).await)?;
        if let [Ok(lent)] = &want[..]
            && lent.loan.granted > 0
        {
            self.report.lent += u64::from(self.changed);
            let (mark, cost) = (Mark(lent.loan.epoch.0), lent.loan.granted);
            self.loans.push(Paid { key, version: self.version, mark, cost });
        }
        Ok(())
    }

    async fn give_back(&mut self, nth: usize, used: Used, today: bool) -> Result<(), String> {
        let windows: Vec<Paid> =
            self.loans.iter().copied().filter(|paid| self.forms[paid.version].kind().is_window()).collect();
        let Some(paid) = windows.get(nth % windows.len().max(1)) else { return Ok(()) };
        let (name, form) = (self.name(paid.key), self.forms[if today { self.version } else { paid.version }]);
        self.returns += 1;
        let mut hash = DefaultHasher::new();
        self.policy.hash(&mut hash);
        let id = ReturnId(u128::from(hash.finish()) << 64 | u128::from(self.returns));
        let back = Return { epoch: throttlekit::store::Epoch(paid.mark.0), units: used.of(paid.cost) };
        let backs = [GiveBack { key: &name, form: &form, id, back }];
        same(&self.beside.give_back(&backs).await, &self.store.give_back(&backs).await)?;
        self.look(paid.key).await.map(drop)
    }

    async fn debit(&mut self, key: u8, cost: Cost, again: bool) -> Result<(), String> {
        let (name, form) = (self.name(key), self.forms[self.version]);
        let number = &mut self.debits[usize::from(key)];
        *number += u64::from(!again || *number == 0);
        let id = DebitId { stream: u128::from(key) + 1, number: *number };
        let charge = Charge { key: &name, form: &form, cost };
        let debits = [Debit { charge, id, remember: Duration::from_secs(3_600) }];
        let want = self.beside.debit(&debits).await;
        same(&want, &self.store.debit(&debits).await)?;
        let repeated = matches!(&want[..], [Ok(debited)] if debited.repeated);
        self.report.repeated += u64::from(self.changed && repeated);
        Ok(())
    }

    /// Every key is looked at under both versions.
    async fn change(&mut self, version: usize) -> Result<(), String> {
        let old = self.version;
        for key in 0..KEYS {
            self.version = old;
            let before = self.look(key).await?;
            self.version = version;
            let after = self.look(key).await?;
            let limits = [self.forms[old].limit(), self.forms[version].limit()];
            let change = Change { limits, before, after, now: self.clock.now() };
            self.report.changes += 1;
            self.report.carried += u64::from(before.remaining < before.limit);
            let window = self.forms[version].kind().is_window();
            let off_grid = window && !self.forms[version].ends_a_window(before.reset_at);
            self.report.off_grid += u64::from(off_grid && before.remaining < before.limit);
            if let Some(fault) = change.fault() {
                return Err(format!("key {key}: {fault}"));
            }
        }
        self.changed |= old != version;
        Ok(())
    }

    /// What a key has left, in the store and beside it, asked for nothing.
    async fn look(&self, key: u8) -> Result<throttlekit::Decision, String> {
        let (name, form) = (self.name(key), self.forms[self.version]);
        let charges = [Charge { key: &name, form: &form, cost: 0 }];
        let ask = [Charges { need: Need::All, charges: &charges }];
        let want = self.beside.admit(&ask).await;
        same(&want, &self.store.admit(&ask).await)?;
        let sights = [self.beside.peek(&charges).await, self.store.peek(&charges).await];
        let left = sights.map(|sight| sight.map(|sight| form.limit().peek(&sight.states[0], sight.now)));
        same(&left[0], &left[1])?;
        Ok(want.map_err(|error| error.to_string())?[0].decisions[0])
    }
}

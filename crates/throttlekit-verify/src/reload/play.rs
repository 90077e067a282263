//! Runs scenarios on a store and on a store in memory, and compares them step by step.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::time::Duration;

use throttlekit::Limit;
use throttlekit::clock::{Clock, ManualClock};
use throttlekit::store::{Charge, Charges, Debit, DebitId, KeySpace, LeaseRequest, LeaseReturn, MemoryStore};
use throttlekit::store::{Return, ReturnId, Settlement, Store, StoreError, Term, Want};
use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_core::rate::{Mark, Need, Rule, State};
use throttlekit_core::{Cost, Decision, Retry, Timestamp};

use super::judge::Change;
use super::oracle::{Book, Known};
use super::report::ReloadReport;
use super::scenario::{KEYS, ReloadScenario, ReloadStep};
use super::seeded::{ReloadBug, Seeded};
use throttlekit_conformance::invariants::Violation;
use throttlekit_conformance::stores::{MICRO, Used, policy_name};
use throttlekit_conformance::text::nanos;

/// The number of scenarios after which the store is recreated: it may bound the number of different limits.
const SCENARIOS_PER_STORE: usize = 100;

/// Runs the scenarios of these seeds on a store: invariant `reload-room`. Stops at the first violation.
///
/// `make` creates a store that reads the given clock; all of them may share one engine.
pub async fn examine_reload<S, M, F>(make: M, seeds: Range<u64>) -> Result<ReloadReport, Violation>
where
    S: Store,
    M: Fn(ManualClock) -> F,
    F: Future<Output = Result<S, StoreError>>,
{
    let mut report = ReloadReport::default();
    for first in seeds.clone().step_by(SCENARIOS_PER_STORE) {
        let clock = ManualClock::default();
        let failed = |seed, counterexample| Violation { seed, counterexample };
        let store = make(clock.clone()).await.map_err(|error| failed(first, error.to_string()))?;
        for seed in first..seeds.end.min(first + SCENARIOS_PER_STORE as u64) {
            let scenario = ReloadScenario::roll(seed);
            match play(&scenario, &store, &clock).await {
                Ok(played) => report.add(&played),
                Err(fault) => return Err(failed(seed, shortest(scenario, fault, &store, &clock).await)),
            }
        }
    }
    Ok(report)
}

/// Returns the number of scenarios until the examination finds a seeded bug, if `scenarios_max` are enough.
pub async fn find_reload_bug(bug: ReloadBug, scenarios_max: u64) -> Option<u64> {
    let make = |clock| async move { Ok(Seeded::new(clock, Some(bug))) };
    examine_reload(make, 0..scenarios_max).await.err().map(|violation| violation.seed + 1)
}

async fn shortest<S: Store>(
    mut scenario: ReloadScenario,
    mut fault: String,
    store: &S,
    clock: &ManualClock,
) -> String {
    'smaller: loop {
        for smaller in scenario.smaller() {
            if let Err(found) = play(&smaller, store, clock).await {
                (scenario, fault) = (smaller, found);
                continue 'smaller;
            }
        }
        return format!("{fault}\n{scenario}");
    }
}

async fn play<S: Store>(
    scenario: &ReloadScenario,
    store: &S,
    clock: &ManualClock,
) -> Result<ReloadReport, String> {
    clock.set(scenario.start);
    let mut play = Play::new(scenario, store, clock);
    for (index, step) in scenario.steps.iter().enumerate() {
        play.step(*step).await.map_err(|fault| format!("at step {index}: {fault}"))?;
    }
    play.report.scenarios = 1;
    Ok(play.report)
}

/// A running scenario.
struct Play<'a, S> {
    store: &'a S,
    beside: MemoryStore<ManualClock>,
    clock: &'a ManualClock,
    policy: String,
    forms: Vec<ScriptEncoding>,
    /// The same limits as the oracle models them, where it does.
    known: Vec<Option<Known>>,
    /// The use of keys, by their names in the store.
    books: HashMap<String, Book>,
    /// Keys that have been charged under any version.
    touched: HashSet<String>,
    /// A limit that never changes.
    other: ScriptEncoding,
    version: usize,
    changed: bool,
    receipts: Vec<Paid>,
    loans: Vec<Paid>,
    /// The number of the last debit of each key.
    debits: [u64; KEYS as usize],
    returns: u64,
    report: ReloadReport,
}

/// A charge or a loan, and its version.
#[derive(Clone, Copy)]
struct Paid {
    key: u8,
    version: usize,
    mark: Mark,
    cost: Cost,
    /// The time of the charge.
    at: Timestamp,
    /// The end of the charged window.
    end: Option<Timestamp>,
}

fn same<T: PartialEq + Debug>(want: &T, got: &T) -> Result<(), String> {
    if want == got { Ok(()) } else { Err(format!("\n  want {want:?}\n  got  {got:?}")) }
}

impl<'a, S: Store> Play<'a, S> {
    fn new(scenario: &ReloadScenario, store: &'a S, clock: &'a ManualClock) -> Self {
        let form =
            |limit: &Limit| ScriptEncoding::of(limit).expect("limits of scenarios have a script encoding");
        let version =
            |spec: &throttlekit_conformance::Spec| form(&spec.limit().expect("scenarios have valid limits"));
        Self {
            store,
            beside: MemoryStore::with_clock(clock.clone()),
            clock,
            policy: policy_name(scenario.seed),
            forms: scenario.versions.iter().map(version).collect(),
            known: scenario.versions.iter().map(Known::of).collect(),
            books: HashMap::new(),
            touched: HashSet::new(),
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
            ReloadStep::LeaseReturn(nth, used, today) => self.give_back(nth, used, today).await,
            ReloadStep::Debit(key, cost, again) => self.debit(key, cost, again).await,
            ReloadStep::Change(version) => self.change(version).await,
            ReloadStep::Wait(by) => {
                self.clock.set(self.clock.now() + by);
                Ok(())
            }
            ReloadStep::StepBack(by) => {
                self.clock.set(Timestamp::from_nanos(self.clock.now().as_nanos() - nanos(by)));
                Ok(())
            }
        }
    }

    fn name(&self, key: u8) -> String {
        self.name_at(key, self.version)
    }

    fn name_at(&self, key: u8, version: usize) -> String {
        KeySpace::new("tk", &self.policy, "changes", &self.forms[version]).key(b"home", &[b'a' + key])
    }

    /// Checks a response by the recorded use, and records its charge.
    fn judge(&mut self, name: &str, cost: Cost, said: &Decision, charged: bool) -> Result<(), String> {
        let (now, version) = (self.clock.now(), self.version);
        if charged && cost > 0 {
            self.touched.insert(name.into());
        }
        let Some(known) = &self.known[version] else { return Ok(()) };
        let book = self.books.get(name);
        self.report.judged += 1;
        self.report.at_other_pace += u64::from(known.is_at_other_pace(book));
        known.judge(book, cost, now, said)?;
        if charged && cost > 0 {
            let book = known.charge(book, cost, now);
            self.books.insert(name.into(), book);
        }
        Ok(())
    }

    /// Retries a denial at another pace when its wait is over, and a microsecond before.
    async fn try_wait(&mut self, name: &str, cost: Cost, said: &Decision) -> Result<(), String> {
        let form = self.forms[self.version];
        let sight = self.store.peek(&[Charge { key: name, form: &form, cost }]).await;
        let sight = sight.map_err(|error| error.to_string())?;
        let (State::Bucket(_), Retry::After(wait)) = (&sight.states[0], said.retry_after) else {
            return Ok(());
        };
        let passes = Timestamp::from_micros((sight.now + wait).as_nanos().div_ceil(MICRO));
        let early = Timestamp::from_micros(passes.as_micros() - 1);
        self.report.waits += 1;
        for (at, allowed) in [(early, false), (passes, true)] {
            let decision = form.limit().decide(&sight.states[0], cost, at);
            if decision.allowed != allowed && at >= sight.now {
                return Err(format!("told to wait until {passes}, and at {at} it is {decision:?}"));
            }
        }
        Ok(())
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
        let (charged, said) = (outcome.verdict.decision.allowed, outcome.decisions[0]);
        self.judge(&name, cost, &said, charged)?;
        if !said.allowed {
            self.try_wait(&name, cost, &said).await?;
        }
        if charged {
            let paid = self.paid(key, outcome.marks[0], cost);
            self.receipts.push(paid);
        }
        Ok(())
    }

    async fn settle(&mut self, nth: usize, used: Used, today: bool) -> Result<(), String> {
        if self.receipts.is_empty() {
            return Ok(());
        }
        let paid = self.receipts.swap_remove(nth % self.receipts.len());
        let version = self.version_for(&paid, today);
        let (name, form) = (self.name_at(paid.key, version), self.forms[version]);
        let (mark, charged, actual) = (paid.mark, paid.cost, used.of(paid.cost));
        let settlements = [Settlement { key: &name, form: &form, mark, charged, actual }];
        same(&self.beside.settle(&settlements).await, &self.store.settle(&settlements).await)?;
        self.note_settled(&name, version, &paid, actual);
        self.look(paid.key).await.map(drop)
    }

    async fn lease(&mut self, key: u8, want: Want) -> Result<(), String> {
        let (name, form) = (self.name(key), self.forms[self.version]);
        let term = match form.limit() {
            Limit::Gcra(_) => Term::Rolling(form.limit().period()),
            _ => Term::Window,
        };
        let (asks, least) = ([LeaseRequest { key: &name, form: &form, term, want }], want.least);
        let want = self.beside.lease(&asks).await;
        same(&want, &self.store.lease(&asks).await)?;
        if let [Ok(lent)] = &want[..]
            && lent.loan.granted > 0
        {
            self.report.lent += u64::from(self.changed);
            self.touched.insert(name.clone());
        }
        let [Ok(lent)] = &want[..] else { return Ok(()) };
        let (granted, now) = (lent.loan.granted, self.clock.now());
        if let Some(known) = &self.known[self.version] {
            known.judge_loan(self.books.get(&name), least, granted, now)?;
            if granted > 0 {
                let book = known.charge(self.books.get(&name), granted, now);
                self.books.insert(name, book);
            }
        }
        if granted > 0 {
            let paid = self.paid(key, Mark(lent.loan.epoch.0), granted);
            self.loans.push(paid);
        }
        Ok(())
    }

    async fn give_back(&mut self, nth: usize, used: Used, today: bool) -> Result<(), String> {
        let windows: Vec<Paid> =
            self.loans.iter().copied().filter(|paid| self.forms[paid.version].kind().is_window()).collect();
        let Some(paid) = windows.get(nth % windows.len().max(1)) else { return Ok(()) };
        let (paid, version) = (*paid, self.version_for(paid, today));
        let (name, form) = (self.name_at(paid.key, version), self.forms[version]);
        self.returns += 1;
        let mut hash = DefaultHasher::new();
        self.policy.hash(&mut hash);
        let id = ReturnId(u128::from(hash.finish()) << 64 | u128::from(self.returns));
        let back = Return { epoch: throttlekit::store::Epoch(paid.mark.0), units: used.of(paid.cost) };
        let backs = [LeaseReturn { key: &name, form: &form, id, back }];
        same(&self.beside.give_back(&backs).await, &self.store.give_back(&backs).await)?;
        self.note_window_back(&name, version, &paid, back.units);
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
        let [Ok(debited)] = &want[..] else { return Ok(()) };
        self.report.repeated += u64::from(self.changed && debited.repeated);
        if debited.repeated {
            return Ok(());
        }
        let said = debited.outcome.decisions[0];
        self.judge(&name, cost, &said, said.allowed)
    }

    /// Changes the version. Every key is probed under both versions.
    async fn change(&mut self, version: usize) -> Result<(), String> {
        let old = self.version;
        for key in 0..KEYS {
            self.version = old;
            let before = self.look(key).await?;
            self.version = version;
            let after = self.look(key).await?;
            let limits = [self.forms[old].limit(), self.forms[version].limit()];
            self.report.changes += 1;
            self.report.carried += u64::from(before.remaining < before.limit);
            let window = self.forms[version].kind().is_window();
            let off_grid = window && !self.forms[version].ends_a_window(before.reset_at);
            self.report.off_grid += u64::from(off_grid && before.remaining < before.limit);
            let names = [old, version].map(|version| self.name_at(key, version));
            let fault = if names[0] == names[1] {
                Change { limits, before, after }.fault()
            } else {
                self.is_another(&names[1], &after)
            };
            if let Some(fault) = fault {
                return Err(format!("key {key}: {fault}"));
            }
        }
        self.changed |= old != version;
        Ok(())
    }

    /// Checks that a limit of another kind has keys of its own, which start with all units.
    fn is_another(&self, name: &str, after: &Decision) -> Option<String> {
        let fresh = !self.touched.contains(name) && after.remaining != after.limit;
        fresh.then(|| format!("a limit of another kind begins with {after:?}"))
    }

    fn paid(&self, key: u8, mark: Mark, cost: Cost) -> Paid {
        let end = self.books.get(&self.name(key)).and_then(Book::end);
        Paid { key, version: self.version, mark, cost, at: self.clock.now(), end }
    }

    /// Returns the version under which a charge is settled: the current one only where it keeps the same
    /// keys.
    fn version_for(&self, paid: &Paid, today: bool) -> usize {
        let same = self.name(paid.key) == self.name_at(paid.key, paid.version);
        if today && same { self.version } else { paid.version }
    }

    fn note_settled(&mut self, name: &str, version: usize, paid: &Paid, actual: Cost) {
        let (now, charged) = (self.clock.now(), paid.cost);
        if actual > charged {
            self.touched.insert(name.into());
        }
        let Some(known) = self.known[version] else { return };
        if actual > charged {
            let book = known.charge(self.books.get(name), actual - charged, now);
            self.books.insert(name.into(), book);
        } else if let Some(book) = self.books.get(name).filter(|book| book.end().is_none()) {
            let book = if actual < charged {
                known.hand_back(book, charged - actual, paid.at, now)
            } else {
                book.clone()
            };
            self.books.insert(name.into(), book);
        } else {
            self.note_window_back(name, version, paid, charged - actual);
        }
    }

    /// Records units refunded to their window, if it still counts. The number of a window means another one, or none,
    /// under another version.
    fn note_window_back(&mut self, name: &str, version: usize, paid: &Paid, units: Cost) {
        let Some(book) = self.books.get_mut(name) else { return };
        if version != paid.version {
            book.maybe_less(units);
        } else if paid.mark != Mark::NONE && book.end() == paid.end {
            book.less(units);
        }
    }

    /// Returns the units left to a key, in the store and beside it, with a request of zero.
    async fn look(&mut self, key: u8) -> Result<throttlekit::Decision, String> {
        let (name, form) = (self.name(key), self.forms[self.version]);
        let charges = [Charge { key: &name, form: &form, cost: 0 }];
        let ask = [Charges { need: Need::All, charges: &charges }];
        let want = self.beside.admit(&ask).await;
        same(&want, &self.store.admit(&ask).await)?;
        let sights = [self.beside.peek(&charges).await, self.store.peek(&charges).await];
        let left = sights.map(|sight| sight.map(|sight| form.limit().peek(&sight.states[0], sight.now)));
        same(&left[0], &left[1])?;
        let said = want.map_err(|error| error.to_string())?[0].decisions[0];
        self.judge(&name, 0, &said, false)?;
        Ok(said)
    }
}

//! Stores that handle a change of numbers wrongly, to show that the invariant can fail.

use std::collections::{BTreeSet, HashMap};

use throttlekit::clock::{Clock, ManualClock};
use throttlekit::internals::{Mutex, MutexGuard};
use throttlekit::store::{
    Charge, Charges, Debit, Debited, LastDebit, LeaseRequest, LeaseReturn, Leased, Outcome,
};
use throttlekit::store::{Settlement, Snapshot, Store, StoreError};
use throttlekit_core::Timestamp;
use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_core::rate::stored::Stored;
use throttlekit_core::rate::{Bucket, Mark, Rule};

throttlekit_conformance::bugs! {
    /// A bug of a [`Seeded`] store.
    pub enum ReloadBug {
        KeepsTheInstant: "A bucket keeps the instant when it is full again, whatever the pace.",
        LendsFromTheInstant: "The same where units are lent.",
        PeeksTheInstant: "The same where nothing is asked for.",
        FreshOnChange: "Keys begin with a fresh budget whenever numbers change.",
        LendsFresh: "The same where units are lent.",
        ForgivesWhereLess: "What was used is forgotten where fewer are allowed.",
        IgnoresLowering: "Keys keep the most units they were ever asked under.",
        KeepsFirstNumbers: "Keys keep the numbers they were first asked under.",
        DoublesDebts: "Each change counts what was used twice.",
        RoundsDown: "Each change drops the part of a unit that is used.",
        RoundsUpToUnits: "Each change rounds the part of a unit that is used up to a whole one.",
        DenialWrites: "A denial writes what it found, at the new pace.",
        SlowsBackwards: "A slower pace counts from the last charge on.",
        SpeedsLate: "A faster pace counts only from the next charge on.",
        MovesBack: "A charge while the clock is behind moves the bucket back in time.",
        RefundsTwice: "What came back at a faster pace is handed back once more.",
        KeepsRefunds: "Nothing is handed back once the numbers have changed.",
        ForgetsNames: "The names of debits end with the numbers.",
    }
}

/// A store over a plain map, with one bug or none.
#[derive(Debug)]
pub struct Seeded {
    clock: ManualClock,
    bug: Option<ReloadBug>,
    kept: Mutex<HashMap<String, Kept>>,
}

#[derive(Debug)]
struct Kept {
    stored: Stored,
    first: ScriptEncoding,
    last: ScriptEncoding,
    largest: ScriptEncoding,
    changed: bool,
    debits: HashMap<u128, (LastDebit, Stored, Timestamp)>,
    returns: BTreeSet<u128>,
}

/// The purpose of a lookup.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Charge,
    Loan,
    Look,
}

impl Seeded {
    /// Creates an empty store.
    pub fn new(clock: ManualClock, bug: Option<ReloadBug>) -> Self {
        Self { clock, bug, kept: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.kept.lock()
    }

    fn has(&self, bug: ReloadBug) -> bool {
        self.bug == Some(bug)
    }

    /// Looks up a key: its encoding, and its state.
    fn visit<'k>(
        &self,
        all: &'k mut HashMap<String, Kept>,
        key: &str,
        form: &ScriptEncoding,
        what: For,
    ) -> (&'k mut Kept, ScriptEncoding, Stored) {
        let kept = all.entry(key.into()).or_insert_with(|| Kept::new(*form));
        let changes = kept.last != *form;
        let fewer = form.limit().units() < kept.last.limit().units();
        let forgets = changes
            && (self.has(ReloadBug::FreshOnChange)
                || (self.has(ReloadBug::LendsFresh) && what == For::Loan)
                || (self.has(ReloadBug::ForgivesWhereLess) && fewer));
        if forgets {
            kept.stored = Stored::default();
        }
        if changes && self.has(ReloadBug::ForgetsNames) {
            kept.debits.clear();
        }
        if what != For::Look {
            kept.changed |= changes;
            kept.last = *form;
        }
        if form.limit().units() > kept.largest.limit().units() {
            kept.largest = *form;
        }
        let form = match self.bug {
            Some(ReloadBug::KeepsFirstNumbers) => kept.first,
            Some(ReloadBug::IgnoresLowering) => kept.largest,
            _ => *form,
        };
        let found = self.found(&kept.stored, &form, what);
        (kept, form, found)
    }

    /// Returns the state of a key, with the bug applied.
    fn found(&self, stored: &Stored, form: &ScriptEncoding, what: For) -> Stored {
        let (Stored::Bucket(bucket), Some(bug)) = (stored, self.bug) else { return stored.clone() };
        if bucket.pace == form.pace() {
            return stored.clone();
        }
        let (now, pace) = (self.clock.now().as_micros(), form.pace());
        let at = now.max(bucket.since);
        let whole =
            |units: u64| at + (u128::from(units) * u128::from(pace.unit)).div_ceil(pace.base.into()) as u64;
        let units = (debt(bucket, at) / u128::from(bucket.pace.unit)) as u64;
        let in_part = !debt(bucket, at).is_multiple_of(bucket.pace.unit.into());
        let own = |full: u64, since: u64| Bucket { full, rest: 0, since: since.min(full), pace };
        let instant = own(bucket.full + u64::from(bucket.rest > 0), bucket.since);
        let changed = match bug {
            ReloadBug::KeepsTheInstant => instant,
            ReloadBug::LendsFromTheInstant if what == For::Loan => instant,
            ReloadBug::PeeksTheInstant if what == For::Look => instant,
            ReloadBug::DoublesDebts => Bucket { full: bucket.full.max(at) * 2 - at, since: at, ..*bucket },
            ReloadBug::RoundsDown => own(whole(units), at),
            ReloadBug::RoundsUpToUnits => own(whole(units + u64::from(in_part)), at),
            ReloadBug::SlowsBackwards if is_slower(form, bucket) => {
                own(bucket.since + time_at(bucket, bucket.since, form), bucket.since)
            }
            ReloadBug::SpeedsLate => Bucket { since: at.min(bucket.full), ..*bucket },
            _ => *bucket,
        };
        Stored::Bucket(changed)
    }

    /// Charges an admitted cost.
    fn charge(&self, kept: &mut Kept, found: Stored, form: &ScriptEncoding, cost: u64, now: Timestamp) {
        kept.stored = found;
        kept.stored.charge(form, cost, now);
        if let (Stored::Bucket(bucket), true) = (&mut kept.stored, self.has(ReloadBug::MovesBack)) {
            bucket.since = now.as_micros().min(bucket.full);
        }
    }

    fn deny(&self, kept: &mut Kept, form: &ScriptEncoding, now: Timestamp) {
        let foreign = |bucket: &Bucket| bucket.pace != form.pace() && bucket.full > now.as_micros();
        if let (Stored::Bucket(bucket), true) = (&kept.stored, self.has(ReloadBug::DenialWrites))
            && foreign(bucket)
        {
            let at = now.as_micros().max(bucket.since);
            let full = at + time_at(bucket, at, form);
            kept.stored = Stored::Bucket(Bucket { full, rest: 0, since: at, pace: form.pace() });
        }
    }

    fn answer(&self, ask: &Charges<'_>) -> Result<Outcome, StoreError> {
        let (mut all, now) = (self.lock(), self.clock.now());
        let found: Vec<_> = ask
            .charges
            .iter()
            .map(|charge| {
                let what = if charge.cost > 0 { For::Charge } else { For::Look };
                let (_, form, found) = self.visit(&mut all, charge.key, charge.form, what);
                (form, found)
            })
            .collect();
        let charges: Vec<_> =
            ask.charges.iter().zip(&found).map(|(charge, (form, _))| Charge { form, ..*charge }).collect();
        let states: Vec<_> = found.iter().map(|(form, found)| found.state(form, now).into_owned()).collect();
        let decide = |(charge, state): (&Charge<'_>, _)| charge.form.limit().decide(state, charge.cost, now);
        let decisions: Vec<_> = charges.iter().zip(&states).map(decide).collect();
        let admitted = ask.need.judge(&decisions).decision.allowed;
        let ends: Vec<_> = found.iter().map(|(_, found)| found.end(now)).collect();
        for (charge, (form, found)) in charges.iter().zip(found.clone()).filter(|(charge, _)| charge.cost > 0)
        {
            let Some(kept) = all.get_mut(charge.key) else { continue };
            if admitted {
                self.charge(kept, found, &form, charge.cost, now);
            } else {
                self.deny(kept, &form, now);
            }
        }
        let ask = Charges { need: ask.need, charges: &charges };
        Ok(Outcome::of(&ask, &states, now, admitted)?.in_windows(&ask, ends.into_iter()))
    }

    fn debit_once(&self, debit: &Debit<'_>) -> Result<Debited, StoreError> {
        debit.check()?;
        let (mut all, now) = (self.lock(), self.clock.now());
        let (kept, form, found) = self.visit(&mut all, debit.charge.key, debit.charge.form, For::Charge);
        let asked = Debit { charge: Charge { form: &form, ..debit.charge }, ..*debit };
        let last = kept.debits.get(&debit.id.stream).filter(|(.., until)| now < *until);
        let read = |last: &LastDebit, stored: &Stored| LastDebit {
            state: stored.state(&form, last.now).into_owned(),
            ..last.clone()
        };
        if let Some(before) = asked.repeats(last.map(|(last, stored, _)| read(last, stored)).as_ref())? {
            return Ok(before);
        }
        let state = found.state(&form, now).into_owned();
        let admitted = form.limit().decide(&state, debit.charge.cost, now).allowed;
        let last = LastDebit { number: debit.id.number, cost: asked.cost(), now, state, admitted };
        let answer = asked.answer(&last, false);
        kept.debits.insert(debit.id.stream, (last, found.clone(), now + debit.remembered()));
        if admitted && debit.charge.cost > 0 {
            self.charge(kept, found, &form, debit.charge.cost, now);
        }
        answer
    }

    fn lend(&self, ask: &LeaseRequest<'_>) -> Result<Leased, StoreError> {
        ask.authority()?;
        let (mut all, now) = (self.lock(), self.clock.now());
        let (kept, form, found) = self.visit(&mut all, ask.key, ask.form, For::Loan);
        let ask = LeaseRequest { form: &form, ..*ask };
        let granted = ask.authority()?.look(&found.state(&form, now), ask.want, now).granted;
        let numbers = found.numbers(&form, now);
        if granted > 0 {
            self.charge(kept, found, &form, granted, now);
        } else {
            self.deny(kept, &form, now);
        }
        Leased::of(&ask, &numbers, now, granted)
    }

    fn settle_one(&self, s: &Settlement<'_>) {
        let (mut all, now) = (self.lock(), self.clock.now());
        let known = all.contains_key(s.key);
        let (kept, form, found) = self.visit(&mut all, s.key, s.form, For::Charge);
        if (self.has(ReloadBug::KeepsRefunds) && kept.changed) || !(known || s.actual > s.charged) {
            return;
        }
        kept.stored = match found {
            Stored::Bucket(bucket) if self.has(ReloadBug::RefundsTwice) && bucket.pace != form.pace() => {
                let at = now.as_micros().max(bucket.since);
                let full = at + time_at(&bucket, at, &form);
                Stored::Bucket(Bucket { full, rest: 0, since: at, pace: form.pace() })
            }
            found => found,
        };
        kept.stored.settle(&form, s.mark, s.charged, s.actual, now);
    }
}

impl Kept {
    fn new(form: ScriptEncoding) -> Self {
        let (stored, debits, returns) = Default::default();
        Self { stored, first: form, last: form, largest: form, changed: false, debits, returns }
    }
}

fn debt(bucket: &Bucket, at: u64) -> u128 {
    u128::from(bucket.full.saturating_sub(at)) * u128::from(bucket.pace.base) + u128::from(bucket.rest)
}

/// Returns the use of a bucket at `at`, in microseconds of another limit.
fn time_at(bucket: &Bucket, at: u64, form: &ScriptEncoding) -> u64 {
    let ticks = (debt(bucket, at).saturating_mul(form.pace().unit.into())).div_ceil(bucket.pace.unit.into());
    u64::try_from(ticks.div_ceil(form.pace().base.into())).unwrap_or(u64::MAX).min(1 << 50)
}

fn is_slower(form: &ScriptEncoding, bucket: &Bucket) -> bool {
    let (own, other) = (form.pace(), bucket.pace);
    u128::from(own.unit) * u128::from(other.base) > u128::from(other.unit) * u128::from(own.base)
}

impl Store for Seeded {
    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        asks.iter().map(|ask| self.answer(ask)).collect()
    }

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        debits.iter().map(|debit| self.debit_once(debit)).collect()
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Snapshot, StoreError> {
        let (mut all, now) = (self.lock(), self.clock.now());
        let state = |charge: &Charge<'_>| {
            let (_, form, found) = self.visit(&mut all, charge.key, charge.form, For::Look);
            found.state(&form, now).into_owned()
        };
        Ok(Snapshot { now, states: charges.iter().map(state).collect() })
    }

    async fn settle(&self, settlements: &[Settlement<'_>]) -> Result<(), StoreError> {
        settlements.iter().for_each(|settlement| self.settle_one(settlement));
        Ok(())
    }

    async fn lease(&self, asks: &[LeaseRequest<'_>]) -> Vec<Result<Leased, StoreError>> {
        asks.iter().map(|ask| self.lend(ask)).collect()
    }

    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        for given in backs {
            given.authority()?;
            let mut all = self.lock();
            let (kept, form, found) = self.visit(&mut all, given.key, given.form, For::Charge);
            if kept.returns.insert(given.id.0) {
                kept.stored = found;
                kept.stored.take_back(&form, Mark(given.back.epoch.0), given.back.units);
            }
        }
        Ok(())
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        keys.iter().for_each(|key| drop(self.lock().remove(*key)));
        Ok(())
    }
}

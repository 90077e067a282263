//! Stores with a seeded bug, which show that the check can fail.

use std::time::Duration;

use throttlekit::clock::{Clock, ManualClock};
use throttlekit::internals::{Mutex, MutexGuard};
use throttlekit::rate::{Cadence, Timestamp};
use throttlekit::store::{Charge, Charges, Debit, Debited, LeaseRequest, LeaseReturn, Leased, Outcome};
use throttlekit::store::{Settlement, Snapshot, Store, StoreError};
use throttlekit::{Limit, Retry};
use throttlekit_core::rate::shared::{ScriptEncoding, ScriptRule};
use throttlekit_core::rate::{Need, Rule, Settle, State};

use super::reference::CoreStates;
use super::scenario::MICRO;
use super::seeded_debits::{debit, form, stop_at_the_edge};
use super::seeded_lending::{lend, take_back};

crate::bugs! {
    /// The bug of a [`SeededStore`].
    pub enum StoreBug {
        DenialChargesSome: "A denial charges the limits that would have allowed the request.",
        FlightReadsStale: "Every request of a batch is decided on the states before the batch.",
        ZeroCostWrites: "A request of cost zero writes a state.",
        WindowMovesBack: "A clock that steps back starts an earlier window.",
        RestDropped: "Instants are stored in whole microseconds, the rest is dropped.",
        DoubleInstants: "Instants are stored as doubles.",
        RefundWhateverAge: "A refund counts whatever has passed since its charge.",
        RefundOfAShaper: "A shaper refunds turns that have passed.",
        AnyChargesDeniers: "Where any limit may admit, those that denied are charged too.",
        MicroEarly: "Requests are admitted a microsecond early.",
        MicroLate: "Requests are admitted a microsecond late.",
        EqualityDenies: "A request that exactly fits is denied.",
        CostWraps: "A cost beyond 63 bits is read as zero.",
        PeekWrites: "A peek writes the state that it reads.",
        SettleTwice: "A settlement counts twice.",
        SettleFirstOnly: "Of several settlements only the first is made.",
        SettleForgotten: "A settlement is acknowledged and not made.",
        DebtStopsAtLimit: "What was used beyond the limit is not owed.",
        DebtWithoutEnd: "What is owed may last longer than the longest debt.",
        ForgetsEarly: "A state is forgotten a microsecond before it is idle.",
        ResetKeeps: "A reset keeps every key.",
        ResetFirstOnly: "A reset of several keys forgets only the first.",
        MonthOfThirtyDays: "Every month has thirty days.",
        LocalDaysOfOneLength: "Every local day has 24 hours.",
        MarkByClock: "The position of a charge follows the clock and not the state.",
        NamesTheFirst: "The first limit is reported as the binding one.",
        RetryEarly: "Waits are a nanosecond too short.",
        LendsMoreThanIsLeft: "A lease is never cut to what is left.",
        LendsAllOrNothing: "A lease is granted in full or not at all.",
        LendsForFree: "A lease is not charged.",
        ShareIgnored: "A lease may take more than its share of what is left.",
        ShareRoundedDown: "The share of a lease is rounded down.",
        LeastIgnored: "A lease may be smaller than the least that was requested.",
        EpochByClock: "The epoch of a lease follows the clock and not the state.",
        ReturnCountsTwice: "A return that arrives twice counts twice.",
        ReturnIntoAnyWindow: "A return counts in whichever window it arrives.",
        ReturnLost: "A return is acknowledged and not made.",
        ReturnsForgottenByReset: "A reset forgets which returns have arrived.",
        ReturnsSeenOnlyIfTaken: "A return that changes nothing is not remembered.",
        CrossingRefused: "A debit that crosses the edge of its budget is denied.",
        CrossingStopsAtTheEdge: "A debit that crosses the edge counts only up to it.",
        LendsNothingAcrossTheEdge: "A lease that would cross the edge of a budget is denied.",
        LendsAllAcrossTheEdge: "A lease that crosses the edge of a budget is granted in full.",
        NamesIgnored: "A debit that is sent again is charged again.",
        NamesEndWithTheWindow: "Debit IDs are forgotten with their window.",
        NamesOfAllKeys: "Debit IDs of all keys are one set.",
        NamesTooShort: "Debit IDs are remembered a microsecond too short.",
        NamesTooLong: "Debit IDs are remembered a microsecond too long.",
        NamesForgottenByReset: "A reset forgets the debit IDs of its keys.",
        RepeatCharged: "A repeated debit returns the first response and is charged again.",
        StragglerCharged: "A debit that arrives after a later one is rejected and charged.",
        DenialUnnamed: "The ID of a denied debit is not remembered.",
    }
}

/// The rules over a plain map, with one bug.
#[derive(Debug)]
pub struct SeededStore {
    clock: ManualClock,
    bug: StoreBug,
    known: Mutex<CoreStates>,
}

impl SeededStore {
    /// Creates an empty store with this bug.
    pub fn new(clock: ManualClock, bug: StoreBug) -> Self {
        Self { clock, bug, known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, CoreStates> {
        self.known.lock()
    }

    fn is(&self, bug: StoreBug) -> bool {
        self.bug == bug
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn answer(&self, known: &mut CoreStates, ask: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.spoil_before(known, ask);
        let forms: Vec<ScriptEncoding> = ask.charges.iter().map(|charge| self.form(charge.form)).collect();
        let charges: Vec<_> = ask.charges.iter().zip(&forms).map(|(c, form)| Charge { form, ..*c }).collect();
        let asked = Charges { charges: &charges, ..*ask };
        if let Some(admitted) = self.misjudge(known, &asked) {
            Outcome::of(&asked, &known.peek(&charges, self.now()).states, self.now(), admitted)?;
        }
        let mut outcome = known.admit(&asked, self.now());
        self.spoil_states(known, &asked, &outcome);
        self.spoil_outcome(&mut outcome, ask);
        Ok(outcome)
    }

    /// Returns the result of a script with a wrong comparison.
    fn misjudge(&self, known: &CoreStates, ask: &Charges<'_>) -> Option<bool> {
        let now = self.now();
        let before = Timestamp::from_nanos(now.as_nanos() - MICRO);
        let charges: Vec<_> = ask.charges.iter().map(|c| Charge { cost: self.cost(c), ..*c }).collect();
        let at = match self.bug {
            StoreBug::MicroEarly => now + Duration::from_micros(1),
            StoreBug::MicroLate => before,
            StoreBug::EqualityDenies | StoreBug::CostWraps => now,
            _ => return None,
        };
        let found = known.clone().admit(&Charges { charges: &charges, ..*ask }, at);
        Some(found.verdict.decision.allowed)
    }

    fn cost(&self, charge: &Charge<'_>) -> u64 {
        let limit = charge.form.limit().cost_max();
        match self.bug {
            StoreBug::CostWraps => charge.cost.cast_signed().max(0).cast_unsigned(),
            StoreBug::EqualityDenies if (1..limit).contains(&charge.cost) => charge.cost + 1,
            _ => charge.cost,
        }
    }

    fn form(&self, known: &ScriptEncoding) -> ScriptEncoding {
        if let Some(wrong) = form(self.bug, known) {
            return wrong;
        }
        let length = match (self.bug, known.kind()) {
            (StoreBug::MonthOfThirtyDays, ScriptRule::Month) => Duration::from_secs(30 * 86_400),
            (StoreBug::LocalDaysOfOneLength, ScriptRule::Local) => known.limit().period(),
            _ => return *known,
        };
        let cadence = Cadence::Every { length, anchor: Timestamp::EPOCH };
        let limit = Limit::quota(known.limit().units(), cadence).expect("days are a window");
        ScriptEncoding::of(&limit).expect("days are whole microseconds")
    }

    /// Applies the bug to states before the decision.
    fn spoil_before(&self, known: &mut CoreStates, ask: &Charges<'_>) {
        let now = self.now();
        for charge in ask.charges {
            let (limit, state) = (charge.form.limit(), known.state(charge.key));
            let behind = limit.mark(&state, now) != limit.mark(&State::Fresh, now);
            let soon = limit.idle_at(&state) <= now + Duration::from_micros(1);
            let counts = charge.form.kind().is_window();
            if (self.is(StoreBug::WindowMovesBack) && behind && counts)
                || (self.is(StoreBug::ForgetsEarly) && soon)
            {
                known.reset(charge.key);
            }
        }
    }

    /// Applies the bug to states after the decision.
    fn spoil_states(&self, known: &mut CoreStates, ask: &Charges<'_>, outcome: &Outcome) {
        let (now, admitted) = (self.now(), outcome.verdict.decision.allowed);
        for (charge, decision) in ask.charges.iter().zip(&outcome.decisions) {
            let possible = charge.cost <= charge.form.limit().cost_max();
            match self.bug {
                StoreBug::DenialChargesSome if !admitted && decision.allowed => known.charge(charge, now),
                StoreBug::AnyChargesDeniers
                    if ask.need == Need::Any && admitted && !decision.allowed && possible =>
                {
                    known.charge(charge, now);
                }
                StoreBug::ZeroCostWrites if admitted && charge.cost == 0 => touch(known, charge, now),
                StoreBug::CrossingStopsAtTheEdge if admitted => stop_at_the_edge(known, charge),
                StoreBug::RestDropped => drop_rest(known, charge),
                StoreBug::DoubleInstants => through_double(known, charge),
                _ => {}
            }
        }
    }

    fn spoil_outcome(&self, outcome: &mut Outcome, ask: &Charges<'_>) {
        let now = self.now();
        match self.bug {
            StoreBug::NamesTheFirst => outcome.verdict.binding = 0,
            StoreBug::MarkByClock => {
                let mark = |charge: &Charge<'_>| charge.form.limit().mark(&State::Fresh, now);
                outcome.marks = ask.charges.iter().map(mark).collect();
            }
            StoreBug::RetryEarly => {
                if let Retry::After(wait) = outcome.verdict.decision.retry_after {
                    let early = wait.saturating_sub(Duration::from_nanos(1));
                    outcome.verdict.decision.retry_after = Retry::after(early);
                }
            }
            _ => {}
        }
    }

    fn correct(&self, known: &mut CoreStates, s: &Settlement<'_>) {
        let now = self.now();
        let limit = s.form.limit();
        let state = known.state(s.key);
        let refunds = s.actual < s.charged;
        match self.bug {
            StoreBug::RefundWhateverAge => {
                known.settle(&Settlement { mark: limit.mark(&state, now), ..*s }, now);
            }
            StoreBug::SettleTwice => (0..2).for_each(|_| known.settle(s, now)),
            StoreBug::SettleForgotten => {}
            StoreBug::RefundOfAShaper if refunds => refund_shaper(known, s, now),
            StoreBug::DebtStopsAtLimit if !refunds => {
                let left = limit.decide(&state, 0, now).remaining;
                known.settle(&Settlement { charged: 0, actual: left.min(s.actual - s.charged), ..*s }, now);
            }
            StoreBug::DebtWithoutEnd if s.actual > s.charged && s.form.kind() == ScriptRule::Gcra => {
                let cost = (s.actual - s.charged).min(throttlekit::rate::UNITS_MAX);
                known.charge(&Charge { key: s.key, form: s.form, cost }, now);
            }
            _ => known.settle(s, now),
        }
    }
}

impl Store for SeededStore {
    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        let mut known = self.lock();
        let stale = known.clone();
        let answer = |ask: &Charges<'_>| {
            if self.is(StoreBug::FlightReadsStale) {
                ask.charges.iter().for_each(|charge| known.restore(&stale, charge.key));
            }
            self.answer(&mut known, ask)
        };
        asks.iter().map(answer).collect()
    }

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        let mut known = self.lock();
        debits.iter().map(|asked| debit(&mut known, self.bug, asked, self.now())).collect()
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Snapshot, StoreError> {
        let mut known = self.lock();
        let sight = known.peek(charges, self.now());
        if self.is(StoreBug::PeekWrites) {
            charges.iter().for_each(|charge| touch(&mut known, charge, self.now()));
        }
        Ok(sight)
    }

    async fn settle(&self, settlements: &[Settlement<'_>]) -> Result<(), StoreError> {
        let mut known = self.lock();
        let count = if self.is(StoreBug::SettleFirstOnly) { 1 } else { settlements.len() };
        settlements.iter().take(count).for_each(|settlement| self.correct(&mut known, settlement));
        Ok(())
    }

    async fn lease(&self, asks: &[LeaseRequest<'_>]) -> Vec<Result<Leased, StoreError>> {
        let mut known = self.lock();
        asks.iter().map(|ask| lend(&mut known, self.bug, ask, self.now())).collect()
    }

    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        let mut known = self.lock();
        backs.iter().try_for_each(|given| take_back(&mut known, self.bug, given, self.now()))
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        let count = match self.bug {
            StoreBug::ResetKeeps => 0,
            StoreBug::ResetFirstOnly => 1,
            _ => keys.len(),
        };
        let mut known = self.lock();
        keys.iter().take(count).for_each(|key| known.reset(key));
        if self.is(StoreBug::ReturnsForgottenByReset) {
            known.returned.clear();
        }
        if self.is(StoreBug::NamesForgottenByReset) {
            known.debits.retain(|(key, _), _| !keys.contains(&key.as_str()));
        }
        Ok(())
    }
}

/// Writes a state without effect: a charge of one, refunded.
fn touch(known: &mut CoreStates, charge: &Charge<'_>, now: Timestamp) {
    let limit = charge.form.limit();
    let state = known.entry(charge.key, limit);
    let mark = limit.mark(state, now);
    limit.charge(state, 1, now);
    limit.refund(state, mark, 1, now);
}

/// Keeps whole microseconds only.
fn drop_rest(known: &mut CoreStates, charge: &Charge<'_>) {
    if let State::Tat(tat) = known.entry(charge.key, charge.form.limit()) {
        tat.0 -= tat.0 % ticks_per_micro(charge.form);
    }
}

/// Keeps instants as doubles of milliseconds.
fn through_double(known: &mut CoreStates, charge: &Charge<'_>) {
    if let State::Tat(tat) = known.entry(charge.key, charge.form.limit()) {
        let per_milli = 1_000.0 * ticks_per_micro(charge.form) as f64;
        tat.0 = (tat.0 as f64 / per_milli * per_milli) as u128;
    }
}

fn ticks_per_micro(form: &ScriptEncoding) -> u128 {
    if let Some(State::Tat(tat)) = form.state(&[1, 0]) { tat.0 } else { 1 }
}

fn refund_shaper(known: &mut CoreStates, s: &Settlement<'_>, now: Timestamp) {
    known.settle(s, now);
    let numbers = s.form.charge(s.charged - s.actual, now);
    if let (ScriptRule::Gcra, State::Tat(tat)) = (s.form.kind(), known.entry(s.key, s.form.limit())) {
        let shapes = s.form.correction(throttlekit_core::rate::Mark(0), 1, 0, now)
            == throttlekit_core::rate::shared::Correction::Nothing;
        let ticks = u128::from(numbers[0].unsigned_abs()) * ticks_per_micro(s.form);
        tat.0 = tat.0.saturating_sub(if shapes { ticks } else { 0 });
    }
}

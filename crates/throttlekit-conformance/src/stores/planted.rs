//! Stores with a deliberate bug, to show that the examination can fail.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throttlekit::store::{Charge, Charges, Debit, Debited, GiveBack, LeaseAsk, Lent, Outcome};
use throttlekit::store::{Settlement, Sight, Store, StoreError};
use throttlekit::{Cadence, Clock, Cost, Limit, ManualClock, Retry, Timestamp};
use throttlekit_core::rate::shared::{Kind, SharedForm};
use throttlekit_core::rate::{Need, Rule, Settle, State};

use super::planted_debits::{debit, form, stop_at_the_edge};
use super::planted_lending::{lend, take_back};
use super::reference::CoreStates;
use super::world::MICRO;

/// What is wrong with a [`PlantedStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum StoreBug {
    DenialChargesSome,
    FlightReadsStale,
    ZeroCostWrites,
    WindowMovesBack,
    RestDropped,
    DoubleInstants,
    RefundWhateverAge,
    RefundOfAShaper,
    AnyChargesDeniers,
    MicroEarly,
    MicroLate,
    EqualityDenies,
    CostWraps,
    PeekWrites,
    SettleTwice,
    SettleFirstOnly,
    SettleForgotten,
    DebtStopsAtLimit,
    DebtWithoutEnd,
    ForgetsEarly,
    ResetKeeps,
    ResetFirstOnly,
    MonthOfThirtyDays,
    MarkByClock,
    NamesTheFirst,
    RetryEarly,
    LendsMoreThanIsLeft,
    LendsAllOrNothing,
    LendsForFree,
    ShareIgnored,
    ShareRoundedDown,
    LeastIgnored,
    EpochByClock,
    ReturnCountsTwice,
    ReturnIntoAnyWindow,
    ReturnLost,
    ReturnsForgottenByReset,
    ReturnsSeenOnlyIfTaken,
    CrossingRefused,
    CrossingStopsAtTheEdge,
    LendsNothingAcrossTheEdge,
    LendsAllAcrossTheEdge,
    NamesIgnored,
    NamesEndWithTheWindow,
    NamesOfAllKeys,
    NamesTooShort,
    NamesTooLong,
    NamesForgottenByReset,
    RepeatCharged,
    StragglerCharged,
    DenialUnnamed,
}

/// Every bug with its name.
pub const STORE_BUGS: [(&str, StoreBug); 51] = {
    use StoreBug::*;
    [
        ("denial_charges_some", DenialChargesSome),
        ("flight_reads_stale", FlightReadsStale),
        ("zero_cost_writes", ZeroCostWrites),
        ("window_moves_back", WindowMovesBack),
        ("rest_dropped", RestDropped),
        ("double_instants", DoubleInstants),
        ("refund_whatever_age", RefundWhateverAge),
        ("refund_of_a_shaper", RefundOfAShaper),
        ("any_charges_deniers", AnyChargesDeniers),
        ("micro_early", MicroEarly),
        ("micro_late", MicroLate),
        ("equality_denies", EqualityDenies),
        ("cost_wraps", CostWraps),
        ("peek_writes", PeekWrites),
        ("settle_twice", SettleTwice),
        ("settle_first_only", SettleFirstOnly),
        ("settle_forgotten", SettleForgotten),
        ("debt_stops_at_limit", DebtStopsAtLimit),
        ("debt_without_end", DebtWithoutEnd),
        ("forgets_early", ForgetsEarly),
        ("reset_keeps", ResetKeeps),
        ("reset_first_only", ResetFirstOnly),
        ("month_of_thirty_days", MonthOfThirtyDays),
        ("mark_by_clock", MarkByClock),
        ("names_the_first", NamesTheFirst),
        ("retry_early", RetryEarly),
        ("lends_more_than_is_left", LendsMoreThanIsLeft),
        ("lends_all_or_nothing", LendsAllOrNothing),
        ("lends_for_free", LendsForFree),
        ("share_ignored", ShareIgnored),
        ("share_rounded_down", ShareRoundedDown),
        ("least_ignored", LeastIgnored),
        ("epoch_by_clock", EpochByClock),
        ("return_counts_twice", ReturnCountsTwice),
        ("return_into_any_window", ReturnIntoAnyWindow),
        ("return_lost", ReturnLost),
        ("returns_forgotten_by_reset", ReturnsForgottenByReset),
        ("returns_seen_only_if_taken", ReturnsSeenOnlyIfTaken),
        ("crossing_refused", CrossingRefused),
        ("crossing_stops_at_the_edge", CrossingStopsAtTheEdge),
        ("lends_nothing_across_the_edge", LendsNothingAcrossTheEdge),
        ("lends_all_across_the_edge", LendsAllAcrossTheEdge),
        ("names_ignored", NamesIgnored),
        ("names_end_with_the_window", NamesEndWithTheWindow),
        ("names_of_all_keys", NamesOfAllKeys),
        ("names_too_short", NamesTooShort),
        ("names_too_long", NamesTooLong),
        ("names_forgotten_by_reset", NamesForgottenByReset),
        ("repeat_charged", RepeatCharged),
        ("straggler_charged", StragglerCharged),
        ("denial_unnamed", DenialUnnamed),
    ]
};

/// The rules over a plain map, with one bug.
#[derive(Debug)]
pub struct PlantedStore {
    clock: ManualClock,
    bug: StoreBug,
    known: Mutex<CoreStates>,
}

impl PlantedStore {
    /// An empty store with this bug.
    pub fn new(clock: ManualClock, bug: StoreBug) -> Self {
        Self { clock, bug, known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, CoreStates> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is(&self, bug: StoreBug) -> bool {
        self.bug == bug
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn answer(&self, known: &mut CoreStates, ask: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.spoil_before(known, ask);
        let forms: Vec<SharedForm> = ask.charges.iter().map(|charge| self.form(charge.form)).collect();
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

    /// What a script that compares wrongly finds.
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

    fn cost(&self, charge: &Charge<'_>) -> Cost {
        let limit = charge.form.limit().cost_max();
        match self.bug {
            StoreBug::CostWraps => charge.cost.cast_signed().max(0).cast_unsigned(),
            StoreBug::EqualityDenies if (1..limit).contains(&charge.cost) => charge.cost + 1,
            _ => charge.cost,
        }
    }

    fn form(&self, known: &SharedForm) -> SharedForm {
        if let Some(wrong) = form(self.bug, known) {
            return wrong;
        }
        if !self.is(StoreBug::MonthOfThirtyDays) || known.kind() != Kind::Month {
            return *known;
        }
        let length = Duration::from_secs(30 * 86_400);
        let cadence = Cadence::Every { length, anchor: Timestamp::EPOCH };
        let limit = Limit::quota(known.limit().units(), cadence).expect("thirty days are a window");
        SharedForm::of(&limit).expect("thirty days are whole microseconds")
    }

    /// What the store does to states before it decides.
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

    /// What the store does to states once it has decided.
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
            StoreBug::DebtWithoutEnd if s.actual > s.charged && s.form.kind() == Kind::Gcra => {
                let cost = (s.actual - s.charged).min(throttlekit::rate::UNITS_MAX);
                known.charge(&Charge { key: s.key, form: s.form, cost }, now);
            }
            _ => known.settle(s, now),
        }
    }
}

impl Store for PlantedStore {
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

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Sight, StoreError> {
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

    async fn lease(&self, asks: &[LeaseAsk<'_>]) -> Vec<Result<Lent, StoreError>> {
        let mut known = self.lock();
        asks.iter().map(|ask| lend(&mut known, self.bug, ask, self.now())).collect()
    }

    async fn give_back(&self, backs: &[GiveBack<'_>]) -> Result<(), StoreError> {
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

/// Writes a state that says nothing: a charge of one, handed back.
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

fn ticks_per_micro(form: &SharedForm) -> u128 {
    if let Some(State::Tat(tat)) = form.state(&[1, 0]) { tat.0 } else { 1 }
}

fn refund_shaper(known: &mut CoreStates, s: &Settlement<'_>, now: Timestamp) {
    known.settle(s, now);
    let numbers = s.form.charge(s.charged - s.actual);
    if let (Kind::Gcra, State::Tat(tat)) = (s.form.kind(), known.entry(s.key, s.form.limit())) {
        let shapes = s.form.correction(throttlekit_core::rate::Mark(0), 1, 0)
            == throttlekit_core::rate::shared::Correction::Nothing;
        let ticks = u128::from(numbers[0].unsigned_abs()) * ticks_per_micro(s.form);
        tat.0 = tat.0.saturating_sub(if shapes { ticks } else { 0 });
    }
}

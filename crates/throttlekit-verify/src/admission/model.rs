//! A reference model of all axes as plain numbers, and the same with a seeded bug.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use throttlekit::clock::{Clock, ManualClock};
use throttlekit::internals::{Mutex, MutexGuard};
use throttlekit::observe::{Event, Observer};
use throttlekit::price::{Bid, Prices};
use throttlekit::rate::{ALLOW_FULL, Timestamp, combine};
use throttlekit::store::StoreError;
use throttlekit::{Axis, Budget, Call, Decision, FairLimiter, Guarantee, Limit, Retry};
use throttlekit_core::rate::{Mark, Rule, Settle, State};

use super::subject::{Asked, End, Heard, Subject, Watch};

throttlekit_conformance::bugs! {
    /// A bug of a [`Model`].
    pub enum AdmissionBug {
        RateKept: "The rate stays charged after a later denial.",
        CostTaken: "The cost is debited though the rate denied.",
        ShareTaken: "The share is taken though an axis before denied.",
        SlotKept: "The slot is kept after a denial.",
        StaleAxis: "The axis of the call before is named.",
        LastDenier: "The last of several deniers is named.",
        AsksOn: "Axes after the denier are checked.",
        PriceLate: "The price is checked after charging.",
        PriceBeforeSlots: "The price is checked before the slots.",
        ValueBuysIn: "A high value passes the limits.",
        DecisionOfAll: "The answer is folded though one denied.",
        ToldTwice: "An event is reported twice.",
        Untold: "A denial is not reported.",
        SettledTwice: "A settlement counts twice.",
        RefundForgotten: "What was not used stays charged.",
    }
}

/// The axes of a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// The maximum number of concurrent calls.
    pub slots: Option<u32>,
    /// The prices of units.
    pub prices: Option<Prices>,
    /// The rate limit.
    pub rate: Option<Limit>,
    /// The cost limit.
    pub cost: Option<Limit>,
    /// The units shared by tenants of equal weight.
    pub fair: Option<u64>,
}

/// The model of one request over all axes.
pub struct Model {
    setup: Setup,
    clock: ManualClock,
    fair: Option<FairLimiter<ManualClock>>,
    watch: Arc<Watch>,
    books: Mutex<Books>,
    bug: Option<AdmissionBug>,
}

#[derive(Debug, Default)]
struct Books {
    in_flight: u32,
    states: HashMap<(Axis, String), State>,
    last_binding: Option<Axis>,
}

/// The charges of an admitted call.
#[derive(Clone, Debug)]
pub struct Ticket {
    tokens: String,
    cost: u64,
    mark: Mark,
}

/// Returns the budget that tenants share.
pub(super) fn shared(units: u64) -> Budget {
    Budget::per(units, Duration::from_secs(86_400))
}

impl Model {
    /// Creates a model without history.
    pub fn new(setup: Setup, clock: ManualClock, bug: Option<AdmissionBug>) -> Self {
        let limiter =
            |units| FairLimiter::builder(shared(units)).clock(clock.clone()).build().expect("a sound budget");
        let fair = setup.fair.map(limiter);
        Self { setup, fair, clock, watch: Arc::default(), books: Mutex::default(), bug }
    }

    /// Sets the observer.
    pub fn watched(self, watch: Arc<Watch>) -> Self {
        Self { watch, ..self }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock()
    }

    fn has(&self, bug: AdmissionBug) -> bool {
        self.bug == Some(bug)
    }

    /// Returns the number of calls in flight.
    pub fn in_flight(&self) -> u32 {
        self.books().in_flight
    }

    /// Returns the state of a key on an axis.
    pub fn state(&self, axis: Axis, key: &str) -> State {
        self.books().state(axis, key)
    }

    /// Forgets the state of a key on an axis.
    pub fn forget(&self, axis: Axis, key: &str) {
        self.books().states.remove(&(axis, key.into()));
    }

    /// Returns the limits with their axes and keys, in order.
    fn limits<'a>(&self, ask: &Asked<'a>) -> impl Iterator<Item = (Axis, Limit, &'a str, u64)> {
        let rate = self.setup.rate.map(|limit| (Axis::Rate, limit.uncrossed(), ask.rate, 1));
        let cost = self.setup.cost.map(|limit| (Axis::Cost, limit.uncrossed(), ask.tokens, ask.cost));
        rate.into_iter().chain(cost)
    }

    /// Decides a call, and charges it if all axes allow.
    pub fn ask(&self, ask: &Asked<'_>) -> Heard<Ticket> {
        let mut books = self.books();
        let mut said = [None; 5];
        let price_first = self.has(AdmissionBug::PriceBeforeSlots) && self.priced_out(ask);
        let heard = if price_first || !self.enter(&mut books, &mut said) {
            self.answer(&mut books, said, price_first, None)
        } else if !self.has(AdmissionBug::PriceLate) && self.priced_out(ask) {
            self.answer(&mut books, said, true, None)
        } else {
            let ticket = self.charge(&mut books, ask, &mut said);
            let late = self.has(AdmissionBug::PriceLate) && ticket.is_some() && self.priced_out(ask);
            self.answer(&mut books, said, late, ticket.filter(|_| !late))
        };
        if heard.held.is_none() && said_allowed(&heard.said, Axis::Concurrency) {
            books.in_flight -= u32::from(!self.has(AdmissionBug::SlotKept));
        }
        drop(books);
        self.tell(ask, &heard);
        heard
    }

    /// Returns `true` if there is a free slot or no slot limit.
    pub fn has_slot(&self) -> bool {
        self.setup.slots.is_none_or(|most| self.in_flight() < most)
    }

    /// Returns `true` if slots and limits would admit a call now. Charges nothing.
    pub fn would_admit(&self, ask: &Asked<'_>) -> bool {
        let (books, now) = (self.books(), self.clock.now());
        let allows = |(axis, limit, key, cost): (Axis, Limit, &str, u64)| {
            limit.decide(&books.state(axis, key), cost, now).allowed
        };
        self.setup.slots.is_none_or(|most| books.in_flight < most) && self.limits(ask).all(allows)
    }

    /// Takes a slot if there is a free one or no slot limit.
    fn enter(&self, books: &mut Books, said: &mut [Option<Decision>; 5]) -> bool {
        let Some(most) = self.setup.slots else { return true };
        let allowed = books.in_flight < most;
        books.in_flight += u32::from(allowed);
        said[Axis::Concurrency.index()] = Some(Decision {
            allowed,
            limit: most.into(),
            remaining: most.saturating_sub(books.in_flight).into(),
            reset_at: Timestamp::EPOCH,
            retry_after: if allowed { Retry::Now } else { Retry::OnRelease },
        });
        allowed
    }

    fn priced_out(&self, ask: &Asked<'_>) -> bool {
        let bid = Bid { value: ask.value, cost: ask.cost, hold: ask.hold };
        self.setup.prices.is_some_and(|prices| !prices.admits(&bid))
    }

    /// Decides on all limits and the share, in order, and charges all or none.
    fn charge(&self, books: &mut Books, ask: &Asked<'_>, said: &mut [Option<Decision>; 5]) -> Option<Ticket> {
        let now = self.clock.now();
        let mut denied = None;
        for (axis, limit, key, cost) in self.limits(ask) {
            let decision = limit.decide(&books.state(axis, key), cost, now);
            said[axis.index()] = Some(decision);
            if !decision.allowed {
                denied = denied.or(Some(axis));
                if !self.has(AdmissionBug::AsksOn) && !self.has(AdmissionBug::LastDenier) {
                    break;
                }
            }
        }
        if self.has(AdmissionBug::ValueBuysIn) && ask.value > 50.0 {
            denied = None;
            said.iter_mut().flatten().for_each(|decision| decision.allowed = true);
        }
        if denied.is_none()
            && let Some(fair) = &self.fair
        {
            let decision = fair.check(Call::by(ask.who).cost(ask.cost));
            said[Axis::Fairness.index()] = Some(decision);
            denied = (!decision.allowed).then_some(Axis::Fairness);
        }
        if let Some(denier) = denied {
            self.misbehave(books, ask, denier, now);
            return None;
        }
        let mut ticket = Ticket { tokens: ask.tokens.into(), cost: ask.cost, mark: Mark(0) };
        for (axis, limit, key, cost) in self.limits(ask) {
            let state = books.states.entry((axis, key.into())).or_default();
            if axis == Axis::Cost {
                ticket.mark = limit.mark(state, now);
            }
            limit.charge(state, cost, now);
        }
        Some(ticket)
    }

    /// Charges a denied call as the bug does.
    fn misbehave(&self, books: &mut Books, ask: &Asked<'_>, denier: Axis, now: Timestamp) {
        let kept = match self.bug {
            Some(AdmissionBug::RateKept) if denier > Axis::Rate => Axis::Rate,
            Some(AdmissionBug::CostTaken) if denier == Axis::Rate => Axis::Cost,
            Some(AdmissionBug::ShareTaken) if denier < Axis::Fairness => Axis::Fairness,
            _ => return,
        };
        if let (Axis::Fairness, Some(fair)) = (kept, &self.fair) {
            fair.check(Call::by(ask.who).cost(ask.cost));
        }
        for (axis, limit, key, cost) in self.limits(ask).filter(|(axis, ..)| *axis == kept) {
            limit.check(books.states.entry((axis, key.into())).or_default(), cost, now);
        }
    }

    fn answer(
        &self,
        books: &mut Books,
        said: [Option<Decision>; 5],
        policy_denied: bool,
        held: Option<Ticket>,
    ) -> Heard<Ticket> {
        let deniers = || Axis::ALL.into_iter().filter(|axis| !allows(&said, *axis));
        let first = if self.has(AdmissionBug::LastDenier) { deniers().next_back() } else { deniers().next() };
        let folds = self.has(AdmissionBug::DecisionOfAll);
        let decision = match first.and_then(|axis| said[axis.index()]) {
            Some(denied) if !folds => denied,
            _ => said.iter().flatten().copied().fold(ALLOW_FULL, combine),
        };
        let decision = Decision { allowed: decision.allowed && !policy_denied, ..decision };
        let before = std::mem::replace(&mut books.last_binding, first);
        let binding = if self.has(AdmissionBug::StaleAxis) { before } else { first };
        Heard { decision, said, binding, policy_denied, held }
    }

    fn tell(&self, ask: &Asked<'_>, heard: &Heard<Ticket>) {
        let event = Event {
            policy: "model",
            key: ask.who.as_bytes(),
            cost: ask.cost,
            decision: heard.decision,
            denied_by: if heard.policy_denied { Some(Axis::Price) } else { heard.binding },
            limit_name: None,
            guarantee: Guarantee::Exact,
        };
        let times = match self.bug {
            Some(AdmissionBug::ToldTwice) => 2,
            Some(AdmissionBug::Untold) if !heard.decision.allowed => 0,
            _ => 1,
        };
        (0..times).for_each(|_| self.watch.observe(&event));
    }

    /// Ends an admitted call: releases its slot and settles its cost.
    pub fn leave(&self, ticket: &Ticket, end: End) {
        let mut books = self.books();
        books.in_flight = books.in_flight.saturating_sub(u32::from(self.setup.slots.is_some()));
        let Some(limit) = self.setup.cost.map(|limit| limit.uncrossed()) else { return };
        let actual = end.of(ticket.cost);
        if actual < ticket.cost && self.has(AdmissionBug::RefundForgotten) {
            return;
        }
        let now = self.clock.now();
        let state = books.states.entry((Axis::Cost, ticket.tokens.clone())).or_default();
        for _ in 0..=u8::from(self.has(AdmissionBug::SettledTwice)) {
            limit.settle(state, ticket.mark, ticket.cost, actual, now);
        }
    }
}

impl Books {
    fn state(&self, axis: Axis, key: &str) -> State {
        self.states.get(&(axis, key.to_owned())).cloned().unwrap_or_default()
    }
}

fn allows(said: &[Option<Decision>; 5], axis: Axis) -> bool {
    said[axis.index()].is_none_or(|decision| decision.allowed)
}

fn said_allowed(said: &[Option<Decision>; 5], axis: Axis) -> bool {
    said[axis.index()].is_some_and(|decision| decision.allowed)
}

impl Subject for Model {
    type Held = Ticket;

    async fn admit(&self, ask: &Asked<'_>) -> Result<Heard<Ticket>, StoreError> {
        Ok(self.ask(ask))
    }

    async fn end(&self, held: Ticket, end: End) -> Result<(), StoreError> {
        self.leave(&held, end);
        Ok(())
    }
}

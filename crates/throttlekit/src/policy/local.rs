//! Limits in this process that decide one call atomically.

use throttlekit_core::rate::{Limit, Mark};
use throttlekit_core::{ALLOW_FULL, Decision, Timestamp};

use super::names::names;
use super::{Axes, Call, Dimension};
use crate::allowed::Allowed;
use crate::clock::Clock;
use crate::hash::{KeyHash, SecretHash};
use crate::memory::{AtHome, Capacity, HeldKey, HeldWord, Keys};
use crate::{Axis, Guarantee, LimitName};

/// Maximum number of limits of a policy in process.
pub(super) const LIMITS_MAX: usize = 6;

/// Limits over keys, in the order of their axes.
pub(super) struct Local<C> {
    limits: Box<[LocalLimit]>,
    clock: C,
    hash: SecretHash,
}

struct LocalLimit {
    on: Dimension,
    name: Option<LimitName>,
    keys: Keys,
}

/// The fingerprint of a key, and the position of a charge to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    name: u64,
    mark: Mark,
}

/// Charge positions of one call, by limit index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks([Position; LIMITS_MAX]);

/// A call to at most one limit of each axis, which holds its keys.
pub(super) struct Few<'a> {
    pub(super) rate: Option<Held<'a>>,
    pub(super) cost: Option<Held<'a>>,
    pub(super) now: Timestamp,
}

/// The key of a call that one limit holds, and the word after the call if it is allowed.
pub(super) struct Held<'a> {
    word: HeldWord<'a>,
    name: u64,
    cost: u64,
    floor: u64,
    next: Option<u64>,
}

/// A limit, and the part of a call that it counts.
#[derive(Clone, Copy)]
struct Counted<'a> {
    limit: &'a LocalLimit,
    name: u64,
    cost: u64,
}

/// The decision of a debit, its guarantee and its charge positions.
pub(super) struct LocalDebit {
    pub(super) decision: Decision,
    pub(super) limit_name: Option<LimitName>,
    #[cfg_attr(not(feature = "store"), expect(dead_code, reason = "read for debits beside a store"))]
    pub(super) guarantee: Guarantee,
    #[cfg_attr(not(feature = "store"), expect(dead_code, reason = "read for debits beside a store"))]
    pub(super) went: Marks,
}

impl Marks {
    pub(super) const NONE: Self = Self([Position::NONE; LIMITS_MAX]);
}

impl Position {
    pub(super) const NONE: Self = Self { name: 0, mark: Mark(0) };
}

impl<'a> Counted<'a> {
    /// Finds the likely cell, if there is a limit. `None` if it has none.
    #[inline(always)]
    fn at_home(counted: Option<Self>) -> Option<Option<(Self, AtHome<'a>)>> {
        let Some(counted) = counted else { return Some(None) };
        Some(Some((counted, counted.limit.keys.at_home(counted.name)?)))
    }

    /// Holds the key, if there is a limit. `None` if it cannot.
    #[inline(always)]
    fn hold(counted: Option<(Self, AtHome<'a>)>, now: Timestamp) -> Option<Option<Held<'a>>> {
        let Some((Self { name, cost, .. }, at_home)) = counted else { return Some(None) };
        let word = at_home.hold()?;
        let floor = word.floor(now);
        let next = word.next(floor, cost);
        Some(Some(Held { word, name, cost, floor, next }))
    }
}

impl Few<'_> {
    /// Returns the decisions of a denied call on the rate and the cost axis, up to the one that denied.
    #[cold]
    pub(super) fn denied(&self) -> [Option<Decision>; 2] {
        let decision = |held: &Held<'_>| held.decision(self.now);
        let rate = self.rate.as_ref().map(decision);
        let cost = self.cost.as_ref().filter(|_| rate.is_none_or(|rate| rate.allowed)).map(decision);
        [rate, cost]
    }

    /// Charges an allowed call. Returns the decisions on the rate and the cost axis, and the position on the latter.
    #[inline(always)]
    pub(super) fn charge(self) -> ([Option<Allowed>; 2], Position) {
        let Self { rate, cost, now } = self;
        let rate = rate.map(|held| held.charge(now).0);
        let cost = cost.map(|held| held.charge(now));
        let position = cost.map_or(Position::NONE, |(_, position)| position);
        ([rate, cost.map(|(allowed, _)| allowed)], position)
    }
}

impl Held<'_> {
    /// Returns whether the limit denies the call.
    #[inline(always)]
    pub(super) fn is_denied(&self) -> bool {
        self.next.is_none()
    }

    #[inline(always)]
    fn charge(self, now: Timestamp) -> (Allowed, Position) {
        let Self { word, name, cost, floor, next } = self;
        let next = next.unwrap_or_default();
        let allowed = word.allowed(next, floor);
        (allowed, Position { name, mark: word.charge(next, cost, now) })
    }

    fn decision(&self, now: Timestamp) -> Decision {
        match self.next {
            Some(next) => self.word.allowed(next, self.floor).decision(),
            None => self.word.denied(self.cost, now),
        }
    }
}

impl<C: Clock> Local<C> {
    /// Creates at most [`LIMITS_MAX`] limits, each with this capacity, named by their dimensions.
    pub(super) fn new(limits: Vec<(Dimension, Limit)>, capacity: Capacity, clock: C) -> Self {
        let on: Vec<Dimension> = limits.iter().map(|(on, _)| *on).collect();
        Self::named(limits, &names(&on), capacity, clock)
    }

    /// The same, with these names.
    pub(super) fn named(
        limits: Vec<(Dimension, Limit)>,
        names: &[String],
        capacity: Capacity,
        clock: C,
    ) -> Self {
        assert!(limits.len() <= LIMITS_MAX, "the builder looks first");
        let now = clock.now();
        let limit = |((on, limit), name): ((Dimension, Limit), &String)| LocalLimit {
            on,
            name: LimitName::new(name),
            keys: Keys::new(limit, capacity, now),
        };
        let mut limits: Box<[LocalLimit]> = limits.into_iter().zip(names).map(limit).collect();
        limits.sort_by_key(|limit| limit.on.axis);
        Self { limits, clock, hash: SecretHash::random() }
    }

    /// Decides a call where no axis has several limits, and every key is known and in its likely cell: without a loop,
    /// and in registers. Otherwise returns `None` and changes nothing; then [`charge`](Self::charge) decides.
    #[inline(always)]
    pub(super) fn hold_few(&self, call: &Call<'_>) -> Option<Few<'_>> {
        let (rate, cost) = match &*self.limits {
            [] => (None, None),
            [rate] if rate.on.axis == Axis::Rate => (Some(rate), None),
            [cost] => (None, Some(cost)),
            [rate, cost] if rate.on.axis != cost.on.axis => (Some(rate), Some(cost)),
            _ => return None,
        };
        let rate = rate.map(|limit| self.counted(limit, call, None));
        let cost = cost.map(|limit| self.counted(limit, call, rate));
        // Both cells are fetched while the clock is read.
        let (rate, cost) = (Counted::at_home(rate)?, Counted::at_home(cost)?);
        let now = self.clock.now();
        Some(Few { rate: Counted::hold(rate, now)?, cost: Counted::hold(cost, now)?, now })
    }

    /// Returns the part of a call that a limit counts. A key that it has in common with another limit is hashed once.
    #[inline(always)]
    fn counted<'a>(
        &self,
        limit: &'a LocalLimit,
        call: &Call<'_>,
        before: Option<Counted<'_>>,
    ) -> Counted<'a> {
        let name = match before {
            Some(before) if before.limit.on.key == limit.on.key => before.name,
            _ => self.hash.fingerprint(call.key_at(limit.on.key)),
        };
        Counted { limit, name, cost: limit.on.cost(call.units()) }
    }

    /// Charges a call to all limits if all of them and then `last` allow it; otherwise to none. Records the decisions
    /// up to the axis that denied, their guarantee, and the charge positions, if there are any.
    ///
    /// The keys are locked for the whole call, `last` included; other calls that need one of them wait.
    #[inline]
    pub(super) fn charge(
        &self,
        call: &Call<'_>,
        said: (&mut Axes, &mut Guarantee),
        marks: &mut Marks,
        last: impl FnOnce(&mut Axes) -> bool,
    ) -> bool {
        match self.limits.len() {
            0 => last(said.0),
            1 => self.charge_each::<1>(call, said, marks, last),
            2 => self.charge_each::<2>(call, said, marks, last),
            3 => self.charge_each::<3>(call, said, marks, last),
            4 => self.charge_each::<4>(call, said, marks, last),
            5 => self.charge_each::<5>(call, said, marks, last),
            _ => self.charge_each::<LIMITS_MAX>(call, said, marks, last),
        }
    }

    /// Charges a call to `N` limits: a constant number keeps the held locks off the heap. Not inlined, so that each `N`
    /// has a stack frame of its own size.
    #[inline(never)]
    fn charge_each<const N: usize>(
        &self,
        call: &Call<'_>,
        said: (&mut Axes, &mut Guarantee),
        marks: &mut Marks,
        last: impl FnOnce(&mut Axes) -> bool,
    ) -> bool {
        let Some(limits) = self.limits.first_chunk::<N>() else { return false };
        let (axes, guarantee) = said;
        let names = self.names(limits, call);
        let now = self.clock.now();
        let cost = |i: usize| limits[i].on.cost(call.units());
        let mut held: [Option<HeldKey<'_>>; N] = [const { None }; N];
        held.iter_mut().enumerate().for_each(|(i, held)| *held = Some(limits[i].keys.hold(names[i], now)));
        let mut denied = None;
        for (i, held) in held.iter().flatten().enumerate() {
            let axis = limits[i].on.axis;
            if denied.is_some_and(|denied| denied != axis) {
                break;
            }
            let decision = held.decide_whole(cost(i), now);
            if !decision.allowed {
                denied = Some(axis);
            }
            axes.record_named(axis, decision, limits[i].name);
            if held.is_estimated(now) {
                *guarantee = guarantee.weaker(held.guarantee(now));
            }
        }
        if denied.is_some() || !last(axes) {
            return false;
        }
        for (i, held) in held.iter_mut().flatten().enumerate() {
            marks.0[i] = Position { name: names[i], mark: held.mark(now) };
            held.charge(cost(i), now);
        }
        true
    }

    /// Returns the fingerprint of each limit's key; a key that several limits share is hashed once.
    #[inline]
    fn names<const N: usize>(&self, limits: &[LocalLimit; N], call: &Call<'_>) -> [u64; N] {
        let mut names = [0; N];
        for i in 0..N {
            let place = limits[i].on.key;
            let before = limits[..i].iter().position(|limit| limit.on.key == place);
            names[i] =
                before.map_or_else(|| self.hash.fingerprint(call.key_at(place)), |before| names[before]);
        }
        names
    }

    /// Charges units that were not reserved to the only limit of the cost axis. Returns its decision, and its name if it
    /// denied.
    pub(super) fn debit_one(&self, position: Position, tokens: u64) -> (Decision, Option<LimitName>) {
        let Some(cost) = self.cost() else { return (ALLOW_FULL, None) };
        let decision = cost.keys.check(position.name, tokens, &self.clock);
        (decision, cost.name.filter(|_| !decision.allowed))
    }

    /// Charges units that were not reserved to every limit of the cost axis, and to `last`, if there is one: to all or
    /// to none. A token budget allows the last debit to exceed it. Returns the denial, or all decisions combined, and
    /// the name of the limit that denied.
    pub(super) fn debit(
        &self,
        marks: &Marks,
        tokens: u64,
        last: Option<impl FnOnce() -> Decision>,
    ) -> (Decision, Option<LimitName>) {
        let LocalDebit { decision, limit_name, .. } = self.debit_held(marks, tokens, last);
        (decision, limit_name)
    }

    /// Like `debit`, and returns the charge positions.
    pub(super) fn debit_held(
        &self,
        marks: &Marks,
        tokens: u64,
        last: Option<impl FnOnce() -> Decision>,
    ) -> LocalDebit {
        let now = self.clock.now();
        let hold = |place: usize| (place, self.limits[place].keys.hold(marks.0[place].name, now));
        let mut held: Vec<(usize, HeldKey<'_>)> = self.costs().map(hold).collect();
        let (mut axes, mut went) = (Axes::default(), *marks);
        let mut guarantee = Guarantee::Exact;
        for (place, held) in &held {
            axes.record_named(Axis::Cost, held.decide(tokens, now), self.limits[*place].name);
            guarantee = guarantee.weaker(held.guarantee(now));
        }
        if let (None, Some(last)) = (axes.denied_by(), last) {
            axes.record(Axis::Fairness, last());
        }
        if axes.denied_by().is_none() {
            for (place, held) in &mut held {
                went.0[*place].mark = held.mark(now);
                held.charge(tokens, now);
            }
        }
        LocalDebit { decision: axes.decision(), limit_name: axes.limit_name(), guarantee, went }
    }

    /// Replaces the charge of a call to the only limit of the cost axis.
    #[inline(always)]
    pub(super) fn settle_one(&self, position: Position, charged: u64, actual: u64) {
        if let Some(cost) = self.cost() {
            cost.keys.settle(position.name, position.mark, charged, actual, self.clock.now());
        }
    }

    /// Replaces the charge of a call on the cost axis.
    pub(super) fn settle(&self, marks: &Marks, charged: u64, actual: u64) {
        if charged == actual {
            return;
        }
        let now = self.clock.now();
        for place in self.costs() {
            let Position { name, mark } = marks.0[place];
            self.limits[place].keys.settle(name, mark, charged, actual, now);
        }
    }

    /// Reverts the whole charge of a call.
    #[cfg(feature = "store")]
    pub(super) fn cancel(&self, marks: &Marks, estimate: u64) {
        let now = self.clock.now();
        for (limit, Position { name, mark }) in self.limits.iter().zip(marks.0) {
            limit.keys.settle(name, mark, limit.on.cost(estimate), 0, now);
        }
    }

    /// Returns the position on the last limit of the cost axis.
    pub(super) fn position(&self, marks: &Marks) -> Position {
        self.costs().last().map_or(Position::NONE, |place| marks.0[place])
    }

    /// Returns whether the cost axis has several limits.
    pub(super) fn has_several_costs(&self) -> bool {
        self.costs().nth(1).is_some()
    }

    /// Returns the name of the first limit of this axis.
    pub(super) fn name_on(&self, axis: Axis) -> Option<LimitName> {
        self.limits.iter().find(|limit| limit.on.axis == axis)?.name
    }

    /// Returns the last limit of the cost axis, which is the last of all.
    #[inline(always)]
    fn cost(&self) -> Option<&LocalLimit> {
        self.limits.last().filter(|limit| limit.on.axis == Axis::Cost)
    }

    /// Returns the indexes of the limits of the cost axis.
    fn costs(&self) -> impl Iterator<Item = usize> {
        let costs = self.limits.iter().enumerate().filter(|(_, limit)| limit.on.axis == Axis::Cost);
        costs.map(|(place, _)| place)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Iterates over the limits, for reporting.
    pub(super) fn limits(&self) -> impl Iterator<Item = (Axis, &Limit)> {
        self.limits.iter().map(|limit| (limit.on.axis, limit.keys.limit()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Rate;
    use crate::clock::ManualClock;

    const MINUTE: Duration = Duration::from_secs(60);

    fn local(limits: &[(Axis, Limit)]) -> Local<ManualClock> {
        let limits = limits.iter().map(|(axis, limit)| ((*axis).into(), *limit)).collect();
        let local = Local::new(limits, Capacity::default(), ManualClock::at(Timestamp::from_millis(1 << 40)));
        let said = (&mut Axes::default(), &mut Guarantee::Exact.clone());
        assert!(local.charge(&"alice".into(), said, &mut Marks::NONE.clone(), |_| true));
        local
    }

    #[test]
    fn known_keys_of_at_most_one_limit_on_each_axis_are_decided_in_registers() {
        let rates = [30, 9].map(|rate| Limit::gcra(Rate::per_minute(rate).burst(2)).unwrap());
        let budget = Limit::token_budget(100, MINUTE).unwrap();
        let window = Limit::fixed_window(100, MINUTE).unwrap();
        for rate in rates {
            for cost in [budget, window] {
                let local = local(&[(Axis::Rate, rate), (Axis::Cost, cost)]);
                assert!(local.hold_few(&"alice".into()).is_some(), "{rate:?} {cost:?}");
                assert!(local.hold_few(&"bob".into()).is_none(), "a new key");
            }
            assert!(local(&[(Axis::Rate, rate)]).hold_few(&"alice".into()).is_some());
        }
        assert!(local(&[(Axis::Cost, budget)]).hold_few(&"alice".into()).is_some());
    }

    #[test]
    fn several_limits_on_an_axis_and_rules_without_words_are_decided_in_a_loop() {
        let rate = Limit::gcra(Rate::per_minute(30)).unwrap();
        // Seven a minute has more parts of a nanosecond than a word holds.
        let wide = Limit::gcra(Rate::per_minute(7)).unwrap();
        for limits in [&[(Axis::Rate, rate), (Axis::Rate, rate)][..], &[(Axis::Rate, wide)]] {
            assert!(local(limits).hold_few(&"alice".into()).is_none(), "{limits:?}");
        }
    }
}

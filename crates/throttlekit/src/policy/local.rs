//! Limits in this process that decide one call atomically.

use throttlekit_core::rate::{Limit, Mark};
use throttlekit_core::{Decision, Timestamp};

use super::{Axes, Call, Dimension};
use crate::clock::Clock;
use crate::hash::{KeyHash, SecretHash};
use crate::memory::{Capacity, HeldKey, Keys};
use crate::{Axis, Guarantee};

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
    keys: Keys,
}

/// Charge positions of one call, by limit index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks([(u64, Mark); LIMITS_MAX]);

/// The decision of a debit, its guarantee and its charge positions.
pub(super) struct LocalDebit {
    pub(super) decision: Decision,
    #[cfg_attr(not(feature = "store"), expect(dead_code, reason = "read for debits beside a store"))]
    pub(super) guarantee: Guarantee,
    #[cfg_attr(not(feature = "store"), expect(dead_code, reason = "read for debits beside a store"))]
    pub(super) went: Marks,
}

impl Marks {
    pub(super) const NONE: Self = Self([(0, Mark(0)); LIMITS_MAX]);
}

impl<C: Clock> Local<C> {
    /// Creates at most [`LIMITS_MAX`] limits, each with this capacity.
    pub(super) fn new(mut limits: Vec<(Dimension, Limit)>, capacity: Capacity, clock: C) -> Self {
        assert!(limits.len() <= LIMITS_MAX, "the builder looks first");
        limits.sort_by_key(|(on, _)| on.axis);
        let now = clock.now();
        let limits =
            limits.into_iter().map(|(on, limit)| LocalLimit { on, keys: Keys::new(limit, capacity, now) });
        Self { limits: limits.collect(), clock, hash: SecretHash::random() }
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
            axes.record(axis, decision);
            if held.is_estimated(now) {
                *guarantee = guarantee.weaker(held.guarantee(now));
            }
        }
        if denied.is_some() || !last(axes) {
            return false;
        }
        for (i, held) in held.iter_mut().flatten().enumerate() {
            marks.0[i] = (names[i], held.mark(now));
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

    /// Charges units that were not reserved to every limit of the cost axis, and to `last`, if there is one: to all or
    /// to none. A token budget allows the last debit to exceed it. Returns the denial, or all decisions combined.
    pub(super) fn debit(
        &self,
        marks: &Marks,
        tokens: u64,
        last: Option<impl FnOnce() -> Decision>,
    ) -> Decision {
        let mut costs = self.costs();
        if let (Some(place), None, None) = (costs.next(), costs.next(), &last) {
            return self.limits[place].keys.check(marks.0[place].0, tokens, &self.clock);
        }
        self.debit_held(marks, tokens, last).decision
    }

    /// Like `debit`, and returns the charge positions.
    pub(super) fn debit_held(
        &self,
        marks: &Marks,
        tokens: u64,
        last: Option<impl FnOnce() -> Decision>,
    ) -> LocalDebit {
        let now = self.clock.now();
        let hold = |place: usize| (place, self.limits[place].keys.hold(marks.0[place].0, now));
        let mut held: Vec<(usize, HeldKey<'_>)> = self.costs().map(hold).collect();
        let (mut axes, mut went) = (Axes::default(), *marks);
        let mut guarantee = Guarantee::Exact;
        for (_, held) in &held {
            axes.record(Axis::Cost, held.decide(tokens, now));
            guarantee = guarantee.weaker(held.guarantee(now));
        }
        if let (None, Some(last)) = (axes.denied_by(), last) {
            axes.record(Axis::Fairness, last());
        }
        if axes.denied_by().is_none() {
            for (place, held) in &mut held {
                went.0[*place].1 = held.mark(now);
                held.charge(tokens, now);
            }
        }
        LocalDebit { decision: axes.decision(), guarantee, went }
    }

    /// Replaces the charge of a call on the cost axis.
    #[inline]
    pub(super) fn settle(&self, marks: &Marks, charged: u64, actual: u64) {
        if charged == actual {
            return;
        }
        let now = self.clock.now();
        for place in self.costs() {
            let (name, mark) = marks.0[place];
            self.limits[place].keys.settle(name, mark, charged, actual, now);
        }
    }

    /// Reverts the whole charge of a call.
    #[cfg(feature = "store")]
    pub(super) fn cancel(&self, marks: &Marks, estimate: u64) {
        let now = self.clock.now();
        for (limit, (name, mark)) in self.limits.iter().zip(marks.0) {
            limit.keys.settle(name, mark, limit.on.cost(estimate), 0, now);
        }
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

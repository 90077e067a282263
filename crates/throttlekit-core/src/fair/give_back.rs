//! Reserves that quiet tenants give back to the others.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use super::weight::ROSTER_WEIGHT_MAX;
use super::{Member, Roster, WEIGHT_MAX, Weight};
use crate::Timestamp;
use crate::time::nanos;

/// Number of parts in which a quiet tenant gives its weight back.
const PARTS: u32 = 8;
/// Number of tenants one check examines. Later ones are examined by the next checks.
const LOOKS_MAX: usize = 16;
/// Factor by which weights are multiplied, so that a weight of one can shrink. A common factor changes no guarantee.
const SCALE: u64 = 64;
const _: () =
    assert!(SCALE.is_multiple_of(PARTS as u64) && WEIGHT_MAX.saturating_mul(SCALE) <= ROSTER_WEIGHT_MAX);

/// Time after which a tenant counts as quiet, and how fast it gives back what is reserved for it.
///
/// From its last request on: until `quiet_after` nothing happens; then with each eighth of `over` its weight shrinks by
/// an eighth, down to a sixty-fourth, but never below what covers its use beside the weights that the others have at
/// that moment. So what it has not used goes to the others, to each by its weight. On its next request it has its
/// weight back at once; from then on the use of others may no longer be covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveBack {
    /// Time for which a tenant may be silent and keep its whole reserve.
    pub quiet_after: Duration,
    /// Time from then on until next to nothing is reserved for it.
    pub over: Duration,
}

impl GiveBack {
    /// Returns when a tenant with its last request at `asked_at` gives its part number `part` back.
    fn due(&self, asked_at: Timestamp, part: u32) -> Timestamp {
        let over = u128::from(nanos(self.over)) * u128::from(part);
        let wait = over.div_ceil(u128::from(PARTS)) as u64;
        asked_at + self.quiet_after + Duration::from_nanos(wait)
    }

    /// Returns how many parts a tenant with its last request at `asked_at` has given back by `now`.
    fn parts(&self, asked_at: Timestamp, now: Timestamp) -> u32 {
        (1..=PARTS).take_while(|&part| self.due(asked_at, part) <= now).count() as u32
    }
}

/// Quiet tenants and the duration of their silence.
///
/// There is one queue with one entry per member. Its instant may lie before the one at which the member is due, as a
/// request does not search for it, and never after it.
#[derive(Clone, Debug)]
pub(super) struct Quiet {
    by: GiveBack,
    pulses: Vec<Pulse>,
    queue: BinaryHeap<Reverse<(Timestamp, u32)>>,
    latest: Timestamp,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pulse {
    asked_at: Timestamp,
    weight: Weight,
    /// Number of parts it has given back since.
    given: u32,
    queued: bool,
}

impl Quiet {
    pub(super) fn new(by: GiveBack) -> Self {
        Self { by, pulses: Vec::new(), queue: BinaryHeap::new(), latest: Timestamp::EPOCH }
    }

    pub(super) fn clear(&mut self) {
        self.pulses.clear();
        self.queue.clear();
        // It may have been read ahead by mistake.
        self.latest = Timestamp::EPOCH;
    }

    /// The weight in the roster of one that keeps all of its weight.
    pub(super) fn whole(weight: Weight) -> Weight {
        weight.times(SCALE)
    }

    /// Records a member's request: it has its weight.
    pub(super) fn asks(&mut self, roster: &mut Roster, member: Member, weight: Weight, now: Timestamp) {
        self.latest = self.latest.max(now);
        roster.set_weight(member, Self::whole(weight));
        let (by, now) = (self.by, self.latest);
        let pulse = self.pulse(member);
        let queued = pulse.queued;
        *pulse = Pulse { asked_at: now, weight, given: 0, queued: true };
        if !queued {
            self.queue.push(Reverse((by.due(now, 1), member.0)));
        }
    }

    /// Records a refund to a member: the weight that covered it is no longer needed.
    pub(super) fn refunded(&mut self, roster: &mut Roster, member: Member) {
        let Pulse { weight, given, .. } = *self.pulse(member);
        if given > 0 {
            shrink(roster, member, weight, given);
        }
    }

    /// Takes back the parts that are due by `now`, in the order in which they became due.
    pub(super) fn collect(&mut self, roster: &mut Roster, now: Timestamp) {
        self.latest = self.latest.max(now);
        for _ in 0..LOOKS_MAX {
            if self.queue.peek().is_none_or(|Reverse((at, _))| *at > self.latest) {
                return;
            }
            if let Some(Reverse((at, member))) = self.queue.pop() {
                self.look_at(roster, Member(member), at);
            }
        }
    }

    /// Examines a member that was queued at `at`.
    fn look_at(&mut self, roster: &mut Roster, member: Member, at: Timestamp) {
        let (by, now) = (self.by, self.latest);
        let pulse = self.pulse(member);
        pulse.queued = roster.weight(member).is_some();
        if pulse.queued && by.due(pulse.asked_at, pulse.given + 1) <= at {
            pulse.given = by.parts(pulse.asked_at, now);
            pulse.queued = pulse.given < PARTS;
            shrink(roster, member, pulse.weight, pulse.given);
        }
        let Pulse { asked_at, given, queued, .. } = *self.pulse(member);
        if queued {
            self.queue.push(Reverse((by.due(asked_at, given + 1), member.0)));
        }
    }

    fn pulse(&mut self, member: Member) -> &mut Pulse {
        if member.index() >= self.pulses.len() {
            self.pulses.resize(member.index() + 1, Pulse::default());
        }
        &mut self.pulses[member.index()]
    }
}

/// Leaves a member its weight after `given` parts: no more than it has, and enough to cover what it has used.
fn shrink(roster: &mut Roster, member: Member, weight: Weight, given: u32) {
    let keeps = (SCALE / u64::from(PARTS) * u64::from(PARTS - given)).max(1);
    let has = roster.weight(member).map_or(0, Weight::get) / weight.get();
    let covers = cover(roster, member, weight, has);
    roster.set_weight(member, weight.times(keeps.max(covers).min(has).max(1)));
}

/// Returns how many times `weight` guarantees a member what it has used: the least `p` with `⌊p·w·L/(W′ + p·w)⌋ ≥
/// used`, `W′` the weights of the others. Unbounded if it has used more than could be guaranteed.
fn cover(roster: &Roster, member: Member, weight: Weight, has: u64) -> u64 {
    let used = u128::from(roster.used_by(member));
    let others = u128::from(roster.weights() - weight.get() * has);
    match u128::from(roster.shared()).checked_sub(used) {
        Some(unused) if used * others == 0 || unused > 0 => {
            let times = (used * others).div_ceil((u128::from(weight.get()) * unused).max(1));
            u64::try_from(times).unwrap_or(u64::MAX)
        }
        _ => u64::MAX,
    }
}

//! One call over three axes, and the same axes called one after the other without a policy.
//!
//! Every call takes a slot, spends one unit of a rate and reserves 100 tokens, of which it uses 40: the
//! unused ones are returned, and the slot is released.

use std::hint::black_box;
use std::time::Duration;

use throttlekit::observe::{Event, Observer};
use throttlekit::{Axis, Call, Guard, Limit, Limiter, Policy, Rate};

use super::{BURST, Check, UNIT_EVERY, consumed};
use crate::workloads::Stream;

/// The concurrency limit: never reached, so that every call is allowed.
const SLOTS: u32 = 200;
/// More than any run uses of one key in a window.
const BUDGET: u64 = 1 << 36;
const WINDOW: Duration = Duration::from_secs(86_400);
const ESTIMATE: u64 = 100;
const USED: u64 = 40;

fn rate() -> Limit {
    Limit::gcra(Rate::every(UNIT_EVERY).burst(u64::from(BURST))).expect("a limit")
}

/// One unit a day, which the seed spends.
fn spent() -> Limit {
    Limit::gcra(Rate::every(WINDOW).burst(1)).expect("a limit")
}

fn budget() -> Limit {
    Limit::token_budget(BUDGET, WINDOW).expect("a limit")
}

fn limiter(limit: Limit) -> Limiter {
    Limiter::new(limit).expect("a limiter")
}

fn guard(slots: u32) -> Guard {
    Guard::new(slots).expect("a guard")
}

fn three(slots: Guard, rate: Limit) -> throttlekit::policy::PolicyBuilder {
    Policy::builder("bench").guard(slots).rate(rate).tokens(budget())
}

/// The three axes as one policy.
pub fn policy() -> impl Check + 'static {
    Whole(three(guard(SLOTS), rate()).build().expect("a policy"))
}

/// The same with an observer that does nothing.
pub fn observed() -> impl Check + 'static {
    let watched = three(guard(SLOTS), rate()).observer(Idle);
    Whole(watched.build().expect("a policy"))
}

/// The axes as separate types without a policy.
pub fn plain() -> impl Check + 'static {
    Plain { slots: guard(SLOTS), rate: limiter(rate()), budget: limiter(budget()) }
}

/// The axes as a policy each.
pub fn policies() -> impl Check + 'static {
    let policy = || Policy::builder("bench");
    Each {
        slots: policy().guard(guard(SLOTS)).build().expect("a policy"),
        rate: policy().rate(rate()).build().expect("a policy"),
        cost: policy().tokens(budget()).build().expect("a policy"),
    }
}

/// One axis alone.
pub fn slot_alone() -> impl Check + 'static {
    Slot(guard(SLOTS))
}

/// One axis alone.
pub fn rate_alone() -> impl Check + 'static {
    RateOnly(limiter(rate()))
}

/// One axis alone, and its settlement.
pub fn cost_alone() -> impl Check + 'static {
    CostOnly(limiter(budget()))
}

/// A policy whose rate is exhausted.
pub fn denied_by_rate() -> impl Check + 'static {
    Denied(three(guard(SLOTS), spent()).build().expect("a policy"), Axis::Rate)
}

/// The same without a policy: the slot is taken, and released.
pub fn plain_denied_by_rate() -> impl Check + 'static {
    PlainDenied { slots: guard(SLOTS), rate: limiter(spent()) }
}

/// A policy whose slots are exhausted.
pub fn denied_by_slots() -> impl Check + 'static {
    Denied(three(guard(0), rate()).build().expect("a policy"), Axis::Concurrency)
}

/// The same without a policy.
pub fn plain_denied_by_slots() -> impl Check + 'static {
    PlainFull(guard(0))
}

struct Whole(Policy);

struct Plain {
    slots: Guard,
    rate: Limiter,
    budget: Limiter,
}

struct Each {
    slots: Policy,
    rate: Policy,
    cost: Policy,
}

struct Slot(Guard);
struct RateOnly(Limiter);
struct CostOnly(Limiter);
struct Denied(Policy, Axis);
struct PlainFull(Guard);

struct PlainDenied {
    slots: Guard,
    rate: Limiter,
}

struct Idle;

impl Observer for Idle {
    fn observe(&self, event: &Event<'_>) {
        consumed(event);
    }
}

impl Check for Whole {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        let admission = self.0.admit(Call::by(stream.string(at).as_str()).cost(ESTIMATE));
        black_box(&admission);
        let Some(mut permit) = admission.permit else { return 0 };
        let debit = consumed(permit.debit(USED));
        permit.success();
        debit.allowed.into()
    }

    fn seed(&self, key: &str) {
        self.0.admit(Call::by(key)).permit.expect("a permit").success();
    }
}

impl Check for Plain {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        let key = stream.string(at).as_str();
        let Ok(permit) = consumed(self.slots.try_acquire(())) else { return 0 };
        let rate = consumed(self.rate.check(key));
        let (cost, charged) = consumed(self.budget.charge(Call::by(key).cost(ESTIMATE)));
        let Some(charged) = charged.filter(|_| rate.allowed && cost.allowed) else { return 0 };
        self.budget.settle(charged, USED);
        permit.success();
        1
    }

    fn seed(&self, key: &str) {
        self.rate.check(key);
        self.budget.check(key);
    }
}

impl Check for Each {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        let key = stream.string(at).as_str();
        let slot = self.slots.admit(Call::by(key).cost(ESTIMATE));
        black_box(&slot);
        let rate = self.rate.admit(Call::by(key).cost(ESTIMATE));
        black_box(&rate);
        let cost = self.cost.admit(Call::by(key).cost(ESTIMATE));
        black_box(&cost);
        let (Some(slot), Some(rate), Some(mut cost)) = (slot.permit, rate.permit, cost.permit) else {
            return 0;
        };
        let debit = consumed(cost.debit(USED));
        cost.success();
        rate.success();
        slot.success();
        debit.allowed.into()
    }

    fn seed(&self, key: &str) {
        self.rate.admit(Call::by(key)).permit.expect("a permit").success();
        self.cost.admit(Call::by(key)).permit.expect("a permit").success();
    }
}

impl Check for Slot {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        consumed(self.0.try_acquire(())).map(|permit| permit.success()).is_ok().into()
    }
}

impl Check for RateOnly {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        consumed(self.0.check(stream.string(at).as_str())).allowed.into()
    }

    fn seed(&self, key: &str) {
        self.0.check(key);
    }
}

impl Check for CostOnly {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        let (_, charged) = consumed(self.0.charge(Call::by(stream.string(at).as_str()).cost(ESTIMATE)));
        charged.map(|charged| self.0.settle(charged, USED)).is_some().into()
    }

    fn seed(&self, key: &str) {
        self.0.check(key);
    }
}

impl Check for Denied {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        let admission = self.0.admit(Call::by(stream.string(at).as_str()).cost(ESTIMATE));
        black_box(&admission);
        (admission.permit.is_none() && admission.denied_by() == Some(self.1)).into()
    }

    fn seed(&self, key: &str) {
        drop(self.0.admit(Call::by(key)));
    }
}

impl Check for PlainDenied {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        let Ok(permit) = consumed(self.slots.try_acquire(())) else { return 0 };
        let rate = consumed(self.rate.check(stream.string(at).as_str()));
        permit.ignored();
        (!rate.allowed).into()
    }

    fn seed(&self, key: &str) {
        self.rate.check(key);
    }
}

impl Check for PlainFull {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, _stream: &Stream, _at: usize, (): &mut ()) -> usize {
        consumed(self.0.try_acquire(())).is_err().into()
    }
}

//! Every shared type over any store, each wait with its documented deadline.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::budget::{Reserve, TokenBudget};
use throttlekit::guard::Ending;
use throttlekit::leasing::{Batch, Leasing};
use throttlekit::store::{MembershipStore, RegionStore, SlotStore, Store, StoreError};
use throttlekit::{
    Answer, Axis, Budget, Call, Concurrency, Limit, SharedFairLimiter, SharedGuard, SharedLimiter,
    SharedPolicy,
};
use tokio::time::sleep;

use super::schedule::{Kind, Schedule, Timing};
use super::shared::{Boxed, Seen, Shared, Step};
use throttlekit_conformance::Dice;

/// The number of polls, and their interval, until a node that has just joined has a share.
const JOIN_LOOKS: u32 = 400;
const JOIN_PAUSE: Duration = Duration::from_millis(5);

/// A store that supports every type.
pub trait AnyStore: Store + SlotStore + MembershipStore + RegionStore {}
impl<S: Store + SlotStore + MembershipStore + RegionStore> AnyStore for S {}

const HOUR: Duration = Duration::from_secs(3_600);
/// No request is denied for lack of units: the tests check that responses arrive.
const UNITS: u64 = 1 << 40;
/// Small, so that units are leased again and again.
const BATCH: u64 = 3;
const KEYS: [&str; 2] = ["a", "b"];
/// More than are ever held at a time.
const SLOTS: u32 = 64;
const CEILING: u32 = 64;
/// A release is sent three times, 100 ms apart.
const RELEASE_PAUSES: Duration = Duration::from_millis(200);
/// A return is sent four times, 100 ms apart.
const RETURN_PAUSES: Duration = Duration::from_millis(300);

/// Builds the value that a schedule's callers share, over this store.
pub async fn over<S: AnyStore>(store: Arc<S>, schedule: &Schedule) -> Result<Arc<dyn Shared>, String> {
    let (name, timing) = (format!("isolation-{}", schedule.seed), schedule.timing);
    if schedule.kind == Kind::Ceiling {
        return Ok(ceiling(store, &name, timing).await);
    }
    build(store, schedule.kind, &name, timing).map_err(|error| error.to_string())
}

/// Builds a node that has joined its division, if it gets that far.
async fn ceiling<S: AnyStore>(store: Arc<S>, name: &str, timing: Timing) -> Arc<dyn Shared> {
    let guard = SharedGuard::builder(store, name, CEILING).divided().lease(timing.lives);
    let guard = guard.heartbeat_every(timing.lives / 6).heartbeat_timeout(timing.deadline);
    let guard = guard.build().expect("a limit in total");
    for _ in 0..JOIN_LOOKS {
        if guard.try_acquire(()).is_some_and(|permit| permit.is_ok()) {
            break;
        }
        sleep(JOIN_PAUSE).await;
    }
    Arc::new(Ceiling { guard })
}

fn build<S: AnyStore>(
    store: Arc<S>,
    kind: Kind,
    name: &str,
    timing: Timing,
) -> Result<Arc<dyn Shared>, Box<dyn std::error::Error>> {
    let window = Limit::fixed_window(UNITS, HOUR)?;
    Ok(match kind {
        Kind::Strict => Arc::new(Strict { limiter: SharedLimiter::new(store, name, window)?, timing }),
        Kind::Leased => {
            let leasing = Leasing::new().batch(Batch::Fixed(BATCH));
            let leasing = leasing.return_after(Some(Duration::from_millis(50)));
            let leased = SharedLimiter::builder(store, name, window).leased_with(leasing).build()?;
            Arc::new(Leased { leased, timing })
        }
        Kind::Fair => {
            let fair = SharedFairLimiter::builder(store, name, Budget::per(UNITS, HOUR));
            Arc::new(Fair { fair: fair.quantum(BATCH).build()?, timing })
        }
        Kind::FairRegion => {
            let fair = SharedFairLimiter::builder(store, name, Budget::per(UNITS, HOUR)).region("here");
            Arc::new(Fair { fair: fair.quantum(BATCH).build()?, timing })
        }
        Kind::Slots => {
            let slots =
                SharedGuard::builder(store, name, Concurrency::per_key(SLOTS)).lease(timing.lives).build()?;
            Arc::new(Slots { slots, timing })
        }
        Kind::Budget => {
            let budget = TokenBudget::builder(store, name, Limit::token_budget(UNITS, HOUR)?);
            Arc::new(Tokens { budget: budget.reserve(Reserve::Fixed(BATCH)).build()?, timing })
        }
        Kind::Policy => Arc::new(Policy { policy: policy(store, name, timing)?, timing }),
        Kind::Ceiling | Kind::Remote | Kind::RemoteLeased => {
            return Err(format!("{kind:?} is not built over a store here").into());
        }
    })
}

fn policy<S: AnyStore>(
    store: Arc<S>,
    name: &str,
    timing: Timing,
) -> Result<SharedPolicy, Box<dyn std::error::Error>> {
    let slots =
        SharedGuard::builder(store.clone(), name, Concurrency::per_key(SLOTS)).lease(timing.lives).build()?;
    let (calls, tokens) = (Limit::fixed_window(UNITS, HOUR)?, Limit::token_budget(UNITS, HOUR)?);
    let builder = SharedPolicy::builder(store, name).with(Axis::Concurrency, slots);
    Ok(builder.rate(calls).tokens(tokens).build()?)
}

/// Returns the store state that a response of any limiter reports.
fn seen(answer: Option<Result<Answer, StoreError>>) -> Seen {
    match answer {
        None => Seen::GaveUp,
        Some(Ok(Answer { outage: Some(outage), .. })) => Seen::Outage(outage.to_string()),
        Some(Ok(_)) => Seen::Answer,
        Some(Err(error)) => Seen::Error(error.to_string()),
    }
}

fn key_of(dice: &mut Dice) -> &'static str {
    dice.pick(&KEYS)
}

struct Strict<S> {
    limiter: SharedLimiter<S>,
    timing: Timing,
}

/// `SharedLimiter::check` is one call to the store.
impl<S: Store> Shared for Strict<S> {
    fn call(self: Arc<Self>, step: Step) -> Boxed<Seen> {
        Box::pin(async move {
            let ask = Call::by(key_of(&mut Dice::new(step.dice)));
            seen(step.watch.within("a check", self.timing.deadline, self.limiter.check(ask)).await)
        })
    }
}

struct Leased<S> {
    leased: SharedLimiter<S>,
    timing: Timing,
}

/// `check` of a leased `SharedLimiter` waits for up to nine deadlines of the store.
impl<S: Store> Shared for Leased<S> {
    fn call(self: Arc<Self>, step: Step) -> Boxed<Seen> {
        Box::pin(async move {
            let ask = Call::by(key_of(&mut Dice::new(step.dice)));
            let bound = self.timing.deadline * 9;
            seen(step.watch.within("a leased check", bound, self.leased.check(ask)).await)
        })
    }
}

struct Fair {
    fair: SharedFairLimiter,
    timing: Timing,
}

/// `SharedFairLimiter::check` waits for requests of its own and of others: with so few callers, for at most
/// nine.
impl Shared for Fair {
    fn call(self: Arc<Self>, step: Step) -> Boxed<Seen> {
        Box::pin(async move {
            let ask = Call::by(key_of(&mut Dice::new(step.dice)));
            let bound = self.timing.deadline * 9;
            seen(step.watch.within("a fair check", bound, self.fair.check(ask)).await)
        })
    }
}

struct Slots {
    slots: SharedGuard,
    timing: Timing,
}

/// `SharedGuard::acquire` is one call; a release up to three; work is not fenced while the store answers.
impl Shared for Slots {
    fn call(self: Arc<Self>, step: Step) -> Boxed<Seen> {
        Box::pin(async move {
            let mut dice = Dice::new(step.dice);
            let deadline = self.timing.deadline;
            let admitted = step.watch.within("an admission", deadline, self.slots.acquire(key_of(&mut dice)));
            let admission = match admitted.await {
                None => return Seen::GaveUp,
                Some(Err(error)) => return Seen::Error(error.to_string()),
                Some(Ok(admission)) => admission,
            };
            if let Some(outage) = admission.outage {
                return Seen::Outage(outage.to_string());
            }
            let Some(slot) = admission.permit else { return Seen::Answer };
            step.watch.leased("in a slot", slot.run(sleep(step.work))).await;
            if dice.once_in(2) {
                let bound = deadline * 3 + RELEASE_PAUSES;
                step.watch.patiently("a release", bound, slot.close(Ending::Success)).await;
            }
            Seen::Answer
        })
    }

    fn left_behind(&self) -> Option<String> {
        let held = self.slots.stats().in_flight;
        (held > 0).then(|| format!("{held} slots are held by nobody"))
    }
}

struct Ceiling {
    guard: SharedGuard,
}

/// A divided `SharedGuard::try_acquire` makes no call; a node with recent heartbeats has a share.
impl Shared for Ceiling {
    fn call(self: Arc<Self>, step: Step) -> Boxed<Seen> {
        Box::pin(async move {
            let permit = match self.guard.try_acquire(()).expect("a divided guard") {
                Ok(permit) => permit,
                Err(denied) if denied.decision.limit > 0 => return Seen::Answer,
                Err(denied) => return Seen::Outage(denied.to_string()),
            };
            step.watch.leased("under the ceiling", permit.run(sleep(step.work))).await;
            permit.success();
            Seen::Answer
        })
    }

    fn left_behind(&self) -> Option<String> {
        let in_flight = self.guard.stats().in_flight;
        (in_flight > 0).then(|| format!("{in_flight} are in flight of which nobody knows"))
    }
}

struct Tokens<S> {
    budget: TokenBudget<S>,
    timing: Timing,
}

/// `TokenBudget::open` is one call, a debit up to three, settling up to four.
impl<S: Store> Shared for Tokens<S> {
    fn call(self: Arc<Self>, step: Step) -> Boxed<Seen> {
        Box::pin(async move {
            let mut dice = Dice::new(step.dice);
            let deadline = self.timing.deadline;
            let opening = self.budget.open(key_of(&mut dice), None);
            let opened = match step.watch.within("opening a stream", deadline, opening).await {
                None => return Seen::GaveUp,
                Some(Err(error)) => return Seen::Error(error.to_string()),
                Some(Ok(opened)) => opened,
            };
            if let Some(outage) = opened.answer.outage {
                return Seen::Outage(outage.to_string());
            }
            let Some(mut stream) = opened.stream else { return Seen::Answer };
            for _ in 0..dice.below(3) {
                let debit = stream.debit(2);
                let debited = seen(step.watch.patiently("a debit", deadline * 3, debit).await);
                if debited != Seen::Answer {
                    return debited;
                }
            }
            if dice.once_in(2) {
                let bound = deadline * 4 + RETURN_PAUSES;
                step.watch.patiently("settling a stream", bound, stream.settle()).await;
            }
            Seen::Answer
        })
    }

    fn left_behind(&self) -> Option<String> {
        let open = self.budget.stats().open;
        (open > 0).then(|| format!("{open} streams are open of which nobody knows"))
    }
}

struct Policy {
    policy: SharedPolicy,
    timing: Timing,
}

/// `SharedPolicy::admit` is a call for the slot and one for the limits; after a denial, one more attempt and
/// a release.
impl Shared for Policy {
    fn call(self: Arc<Self>, step: Step) -> Boxed<Seen> {
        Box::pin(async move {
            let mut dice = Dice::new(step.dice);
            let bound = self.timing.deadline * 6 + RELEASE_PAUSES;
            let call = Call::by(key_of(&mut dice)).cost(dice.between(1, 20));
            let admission = match step.watch.within("an admission", bound, self.policy.admit(call)).await {
                None => return Seen::GaveUp,
                Some(Err(error)) => return Seen::Error(error.to_string()),
                Some(Ok(admission)) => admission,
            };
            if let Some(outage) = admission.outage {
                return Seen::Outage(outage.to_string());
            }
            let Some(permit) = admission.permit else { return Seen::Answer };
            step.watch.leased("under a policy", permit.run(sleep(step.work))).await;
            match dice.pick(&[Ending::Success, Ending::Dropped, Ending::Ignored]) {
                Ending::Success => permit.success(),
                Ending::Dropped => permit.dropped(),
                Ending::Ignored => permit.ignored(),
            }
            Seen::Answer
        })
    }

    fn left_behind(&self) -> Option<String> {
        let settled = self.policy.stats();
        let wrong = settled.settlements_lost > 0 || settled.settlements_waiting > 0;
        wrong.then(|| format!("settlements were left behind: {settled:?}"))
    }
}

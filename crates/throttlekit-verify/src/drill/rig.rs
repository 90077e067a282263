//! The parts of one run: stores with fault injection, a policy over them, and the expected ledgers.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit::store::{Charge, KeySpace, MemoryStore, Store};
use throttlekit::{
    Axis, Budget, Concurrency, FairLimiter, Guard, Limit, SharedGuard, SharedLimiter, SharedPolicy,
};
use throttlekit_core::rate::State;
use throttlekit_core::rate::shared::ScriptEncoding;

use super::bugs::DrillBug;
use super::flaky::Flaky;
use throttlekit_conformance::Dice;

pub(super) type Memory = Arc<MemoryStore<ManualClock>>;
type Broken = Arc<Flaky<MemoryStore<ManualClock>>>;

const HOUR: Duration = Duration::from_secs(3_600);
const START: Timestamp = Timestamp::from_millis(1_700_000_010_000);
/// Small enough that every axis denies now and then.
const CALLS: u64 = 14;
const TOKENS: u64 = 240;
const TOKENS_OF_ALL: u64 = 400;
const SLOTS: u32 = 3;
pub(super) const TENANTS: [&str; 2] = ["ann", "bob"];
/// The key of the limit that all tenants share.
pub(super) const ALL: &str = "all";

/// The placement of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Calls and tokens in one call to one store.
    Fused,
    /// Calls on one store, tokens on another.
    Split,
    /// Calls, tokens of the tenant and tokens of all in one call: debits of two limits have no identifier.
    TwoBudgets,
}

/// The kind of slots.
enum Slots {
    Guard(Guard),
    Shared(SharedGuard),
}

pub(super) struct Rig {
    pub(super) layout: Layout,
    pub(super) policy: SharedPolicy,
    slots: Slots,
    shares: Option<Arc<FairLimiter<ManualClock>>>,
    clock: ManualClock,
    stores: [(Memory, Broken); 2],
}

impl Rig {
    pub(super) fn of(dice: &mut Dice, bug: Option<DrillBug>) -> Self {
        let clock = ManualClock::at(START);
        let layout = dice.pick(&[Layout::Fused, Layout::Split, Layout::TwoBudgets]);
        let one_in = dice.pick(&[0, 10, 10, 30]);
        let stores = [(); 2].map(|()| {
            let memory = Arc::new(MemoryStore::with_clock(clock.clone()));
            let broken = Arc::new(Flaky::new(memory.clone(), one_in, dice.roll(), bug));
            (memory, broken)
        });
        let slots = if dice.once_in(2) {
            Slots::Guard(Guard::new(SLOTS).expect("a good limit"))
        } else {
            let slots = SharedGuard::new(stores[1].1.clone(), "slots", Concurrency::per_key(SLOTS));
            Slots::Shared(slots.expect("a good lease"))
        };
        let shares = dice.once_in(2).then(|| {
            let shares = FairLimiter::builder(Budget::per(TOKENS_OF_ALL, HOUR)).clock(clock.clone());
            Arc::new(shares.build().expect("a good budget"))
        });
        let policy = policy(layout, &stores, &slots, shares.as_ref());
        Self { layout, policy, slots, shares, clock, stores }
    }

    /// Returns the number of calls to the stores, and of failures.
    pub(super) fn calls(&self) -> (u64, u64) {
        let calls = self.stores.each_ref().map(|(_, broken)| broken.calls());
        (calls[0].0 + calls[1].0, calls[0].1 + calls[1].1)
    }

    /// Returns the number of leaked slots, once all releases are done or their leases over.
    pub(super) async fn slots_leaked(&self) -> u64 {
        match &self.slots {
            Slots::Guard(guard) => guard.stats().in_flight.into(),
            Slots::Shared(slots) => {
                // Past every lease without heartbeats. Not before all is settled: identifiers expire by this
                // clock.
                self.clock.advance(Duration::from_secs(60));
                let mut held = slots.stats().in_flight.into();
                for tenant in TENANTS {
                    held += slots.peek(tenant).await.map_or(u64::MAX, |seen| seen.limit - seen.remaining);
                }
                held
            }
        }
    }

    /// Returns a description if the charge differs from the expected one: calls of a tenant, its tokens, or
    /// those of all.
    pub(super) async fn beside(&self, limit: &'static str, key: &str, expected: u64) -> Option<String> {
        let (form, place) = (form(limit), usize::from(self.layout == Layout::Split && limit == "tokens"));
        let (memory, broken) = &self.stores[place];
        let home: &[u8] = if self.layout == Layout::TwoBudgets { b"" } else { key.as_bytes() };
        let name = KeySpace::new("tk", "drill", limit, &form).key(home, key.as_bytes());
        let charge = Charge { key: &name, form: &form, cost: 0 };
        let sight = memory.peek(&[charge]).await.expect("memory answers");
        let used = match &sight.states[0] {
            State::Count(count) => count.used,
            _ => 0,
        };
        let (lost, told) = (broken.lost(&name), expected);
        (used != told + lost)
            .then(|| format!("{limit} of {key}: {used} charged, {told} used, {lost} by lost answers"))
    }

    /// Does the same for the shares of tenants in process.
    pub(super) fn shares_beside(&self, expected: u64) -> Option<String> {
        let used = self.shares.as_ref()?.stats().used;
        (used != expected).then(|| format!("shares: {used} charged, {expected} used"))
    }
}

fn limit(name: &str) -> Limit {
    let limit = match name {
        "calls" => Limit::fixed_window(CALLS, HOUR),
        "tokens" => Limit::token_budget(TOKENS, HOUR),
        _ => Limit::token_budget(TOKENS_OF_ALL, HOUR),
    };
    limit.expect("a good limit")
}

fn form(name: &str) -> ScriptEncoding {
    ScriptEncoding::of(&limit(name)).expect("a limit that can be shared")
}

fn policy(
    layout: Layout,
    stores: &[(Memory, Broken); 2],
    slots: &Slots,
    shares: Option<&Arc<FairLimiter<ManualClock>>>,
) -> SharedPolicy {
    let [first, second] = stores.each_ref().map(|(_, broken)| broken.clone());
    let good = "a good policy";
    let one = |store, name| SharedLimiter::builder(store, "drill", limit(name)).first_limit(0, name);
    let builder = SharedPolicy::builder(first.clone(), "drill");
    let builder = match slots {
        Slots::Guard(guard) => builder.with(Axis::Concurrency, guard.clone()),
        Slots::Shared(slots) => builder.with(Axis::Concurrency, slots.clone()),
    };
    let builder = match layout {
        Layout::Fused => {
            let limits = one(first, "calls").limit("tokens", limit("tokens")).build().expect(good);
            builder.with([Axis::Rate, Axis::Cost], limits)
        }
        Layout::Split => {
            let calls = one(first, "calls").build().expect(good);
            let tokens = one(second, "tokens").build().expect(good);
            builder.with(Axis::Cost, tokens).with(Axis::Rate, calls)
        }
        Layout::TwoBudgets => {
            let limits = one(first, "calls").limit("tokens", limit("tokens")).limit_by(1, ALL, limit(ALL));
            let limits = limits.build().expect(good);
            builder.with([Axis::Rate.by(0), Axis::Cost.by(0), Axis::Cost.by(1)], limits)
        }
    };
    let builder = match shares {
        Some(shares) => builder.with(Axis::Fairness, shares.clone()),
        None => builder,
    };
    builder.build().expect(good)
}

//! One call over axes that are shared, on a store in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::admit::LimitName;
use throttlekit::clock::ManualClock;
use throttlekit::guard::Ending;
use throttlekit::policy::Dimension;
use throttlekit::rate::Timestamp;
use throttlekit::store::{Background, Charges, LeaseReturn, MemoryStore, Outcome, Store, StoreError};
use throttlekit::{
    Axis, Budget, BuildError, Call, Concurrency, Guard, Limit, Rate, SharedGuard, SharedLimiter,
    SharedPolicy, forward_store,
};

const MINUTE: Duration = Duration::from_secs(60);
const START: Timestamp = Timestamp::from_millis(1_700_000_010_000);

type Memory = Arc<MemoryStore<ManualClock>>;

fn store() -> Memory {
    Arc::new(MemoryStore::with_clock(ManualClock::at(START)))
}

fn limits(store: &Memory) -> SharedLimiter<Memory> {
    SharedLimiter::builder(store.clone(), "chat", Limit::fixed_window(3, MINUTE).unwrap())
        .limit("tokens", Limit::token_budget(100, MINUTE).unwrap())
        .build()
        .unwrap()
}

fn policy(store: &Memory) -> SharedPolicy {
    let guard = Guard::new(2).unwrap();
    let builder = SharedPolicy::builder(store.clone(), "chat").with(Axis::Concurrency, guard);
    builder.with([Axis::Rate, Axis::Cost], limits(store)).build().unwrap()
}

async fn left(store: &Memory) -> [u64; 2] {
    let each = limits(store).peek_each("a").await.unwrap();
    [each[0].remaining, each[1].remaining]
}

#[tokio::test]
async fn a_denial_is_free_on_every_axis() {
    let store = store();
    let policy = policy(&store);
    let costly = policy.admit(Call::by("a").cost(101)).await.unwrap();
    assert_eq!(costly.denied_by(), Some(Axis::Cost));
    assert!(costly.axes().get(Axis::Rate).unwrap().allowed);
    assert_eq!(left(&store).await, [3, 100]);
    let held = [policy.admit("a").await.unwrap(), policy.admit("a").await.unwrap()];
    assert_eq!(policy.admit("a").await.unwrap().denied_by(), Some(Axis::Concurrency), "both slots came back");
    assert_eq!(left(&store).await, [1, 98]);
    drop(held);
}

#[tokio::test]
async fn unused_tokens_are_returned_and_excess_is_charged_up_to_the_limit() {
    let store = store();
    let policy = policy(&store);
    let mut permit = policy.admit(Call::by("a").cost(60)).await.unwrap().permit.unwrap();
    assert!(permit.debit(25).await.unwrap().allowed);
    permit.close(Ending::Success).await.unwrap();
    assert_eq!(left(&store).await, [2, 75]);

    let mut permit = policy.admit(Call::by("a").cost(70)).await.unwrap().permit.unwrap();
    for chunk in [70, 4, 9] {
        assert!(permit.debit(chunk).await.unwrap().allowed);
    }
    assert!(!permit.debit(1).await.unwrap().allowed);
    assert_eq!(permit.used(), 83);
    permit.close(Ending::Ignored).await.unwrap();
    assert_eq!(left(&store).await, [1, 0]);
    assert_eq!(policy.admit("a").await.unwrap().denied_by(), Some(Axis::Cost));
}

#[tokio::test]
async fn a_permit_that_is_dropped_settles_in_the_background() {
    let store = store();
    let policy = policy(&store);
    let mut permit = policy.admit(Call::by("a").cost(60)).await.unwrap().permit.unwrap();
    assert!(permit.debit(25).await.unwrap().allowed);
    drop(permit);
    for _ in 0..10_000 {
        if left(&store).await == [2, 75] {
            assert_eq!(policy.stats().settlements, 1);
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{:?}", policy.stats());
}

#[tokio::test]
async fn slots_on_a_store_go_back_when_a_later_axis_denies() {
    let store = store();
    let slots = SharedGuard::new(store.clone(), "slots", Concurrency::per_key(1)).unwrap();
    let builder = SharedPolicy::builder(store.clone(), "chat").with(Axis::Concurrency, slots.clone());
    let policy = builder.with([Axis::Rate, Axis::Cost], limits(&store)).build().unwrap();
    assert_eq!(policy.admit(Call::by("a").cost(101)).await.unwrap().denied_by(), Some(Axis::Cost));
    assert_eq!(slots.peek("a").await.unwrap().remaining, 1, "before the answer");
    let permit = policy.admit("a").await.unwrap().permit.unwrap();
    assert_eq!(permit.run(async { 7 }).await, Ok(7));
    assert_eq!(policy.admit("a").await.unwrap().denied_by(), Some(Axis::Concurrency));
}

#[tokio::test]
async fn a_shaper_must_be_last_or_in_a_group_since_it_cannot_be_refunded() {
    let store = store();
    let shaper = Limit::leaky_bucket(Rate::per_second(3), Duration::from_secs(1)).unwrap();
    let tokens = Limit::token_budget(100, MINUTE).unwrap();
    let one = |name, limit| SharedLimiter::new(store.clone(), name, limit).unwrap();
    let policy = |name: &str| SharedPolicy::builder(store.clone(), name);
    let first =
        policy("first").with(Axis::Rate, one("calls", shaper)).with(Axis::Cost, one("tokens", tokens));
    assert_eq!(first.build().unwrap_err(), BuildError::OrderOfLimits);
    let local = policy("local").local(Axis::Rate, shaper);
    assert!(local.with(Axis::Cost, one("tokens", tokens)).build().is_err());
    let leased = SharedLimiter::builder(store.clone(), "leased", Rate::per_second(3)).auto().build().unwrap();
    let leased = policy("leased").with(Axis::Rate, leased);
    assert!(leased.tokens(tokens).build().is_err(), "of a smooth rate units lapse");
    let last = policy("last").with(Axis::Cost, one("calls", shaper));
    assert!(last.local(Axis::Rate, tokens).build().is_ok());
    let leased = SharedLimiter::builder(store.clone(), "leased", Rate::per_second(3)).auto().build().unwrap();
    let leased = policy("last-of-axis").with(Axis::Rate, leased).rate(tokens);
    assert!(leased.build().is_ok(), "of one axis, what hands nothing back is asked last");

    let policy = policy("both").rate(shaper).tokens(tokens).build().unwrap();
    let left = policy.admit("a").await.unwrap().axes().get(Axis::Rate).unwrap().remaining;
    assert_eq!(policy.admit(Call::by("a").cost(101)).await.unwrap().denied_by(), Some(Axis::Cost));
    assert_eq!(policy.admit("a").await.unwrap().axes().get(Axis::Rate).unwrap().remaining, left - 1);
}

/// The second store denies while the first is unavailable: the denial does not wait until the first can be
/// refunded.
#[tokio::test(start_paused = true)]
async fn a_denial_does_not_wait_for_an_unavailable_store() {
    let (first, second) = (Arc::new(Deaf::new(store())), store());
    let calls = SharedLimiter::new(first.clone(), "calls", Limit::fixed_window(3, MINUTE).unwrap()).unwrap();
    let tokens = SharedLimiter::new(second, "tokens", Limit::token_budget(10, MINUTE).unwrap()).unwrap();
    let guard = Guard::new(1).unwrap();
    let builder = SharedPolicy::builder(first.clone(), "two").with(Axis::Concurrency, guard.clone());
    let policy = builder.with(Axis::Rate, calls).with(Axis::Cost, tokens).build().unwrap();
    let begun = tokio::time::Instant::now();
    let denied = policy.admit(Call::by("a").cost(11)).await.unwrap();
    assert_eq!((denied.denied_by(), guard.stats().in_flight), (Some(Axis::Cost), 0));
    assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
    assert_eq!(policy.stats().settlements_waiting, 1, "it is told as soon as it hears");
    first.hears.store(true, Relaxed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((policy.stats().settlements_waiting, policy.stats().settlements_unknown), (0, 0));
    let again = policy.admit("a").await.unwrap();
    assert_eq!(again.axes().get(Axis::Rate).unwrap().remaining, 2, "the denial took no call");
}

/// No task is left to settle the charges of a dropped permit: they are counted as lost, and no caller waits
/// for them.
#[test]
fn charges_without_a_task_to_settle_them_are_counted_as_lost() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let store = MemoryStore::with_clock(ManualClock::at(START)).runtime(runtime.handle().clone());
    let policy = policy(&Arc::new(store));
    let permit = runtime.block_on(policy.admit(Call::by("a").cost(60))).unwrap().permit.unwrap();
    drop(runtime);
    drop(permit);
    let stats = policy.stats();
    assert_eq!((stats.settlements, stats.settlements_waiting, stats.settlements_lost), (1, 0, 1));
}

#[test]
fn a_permit_dropped_on_no_runtime_is_settled_in_the_background() {
    let store = store();
    let policy = policy(&store);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let permit = runtime.block_on(policy.admit(Call::by("a").cost(60))).unwrap().permit.unwrap();
    drop(runtime);
    drop(permit);
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    while policy.stats().settlements_waiting > 0 {
        assert!(tokio::time::Instant::now() < until, "{:?}", policy.stats());
        std::thread::sleep(Duration::from_millis(5));
    }
    let stats = policy.stats();
    assert_eq!((stats.settlements, stats.settlements_lost, stats.settlements_unknown), (1, 0, 0));
}

#[tokio::test]
async fn a_budget_that_is_leased_makes_no_policy() {
    let budget = Limit::token_budget(100, MINUTE).unwrap();
    let leased = SharedLimiter::builder(store(), "leased", budget).auto().build().unwrap();
    assert!(SharedPolicy::builder(store(), "leased").with(Axis::Cost, leased).build().is_err());
}

/// A name, the index of a key, an axis of it, and a limit.
type Named = (&'static str, usize, Dimension, Limit);

/// Limits given as values decide like an atomic group that is built by hand, and take one round trip.
#[tokio::test]
async fn values_of_every_subset_of_axes_are_one_atomic_group() {
    let window = |units| Limit::fixed_window(units, MINUTE).unwrap();
    let each: [Named; 5] = [
        ("calls", 0, Axis::Rate.by(0), window(4)),
        ("calls-of-org", 1, Axis::Rate.by(1), window(6)),
        ("units-of-org", 1, Axis::Rate.by(1).weighted(), window(90)),
        ("tokens", 0, Axis::Cost.by(0), Limit::token_budget(30, MINUTE).unwrap()),
        ("tokens-of-org", 1, Axis::Cost.by(1), window(40)),
    ];
    for subset in 1..32_u32 {
        let chosen = each.iter().enumerate().filter(|(i, _)| subset >> i & 1 == 1);
        let chosen: Vec<Named> = chosen.map(|(_, named)| *named).collect();
        let counting = Arc::new(Counting { store: store(), charges: AtomicU64::new(0) });
        let values = SharedPolicy::builder(counting.clone(), "chat");
        let values = chosen.iter().fold(values, |builder, (_, _, on, limit)| builder.limit(*on, *limit));
        same_decisions(&values.build().unwrap(), &by_hand(&chosen), &counting).await;
    }
}

fn by_hand(chosen: &[Named]) -> SharedPolicy {
    let (name, by, _, limit) = chosen[0];
    let limiter = SharedLimiter::builder(store(), "chat", limit).first_limit(by, name);
    let others = chosen[1..].iter();
    let limiter = others.fold(limiter, |builder, (name, by, _, limit)| builder.limit_by(*by, name, *limit));
    let on: Vec<Dimension> = chosen.iter().map(|(_, _, on, _)| *on).collect();
    SharedPolicy::builder(store(), "chat").with(on, limiter.one_slot().build().unwrap()).build().unwrap()
}

async fn same_decisions(values: &SharedPolicy, by_hand: &SharedPolicy, counting: &Counting) {
    for (user, cost) in [("a", 10), ("a", 31), ("b", 10), ("a", 91), ("a", 10), ("b", 15), ("c", 1), ("c", 9)]
    {
        let call = Call::by(user).and(&["acme"]).cost(cost);
        let charges = counting.charges.load(Relaxed);
        let (ours, theirs) = (values.admit(call).await.unwrap(), by_hand.admit(call).await.unwrap());
        assert_eq!(counting.charges.load(Relaxed), charges + 1, "one round trip");
        // Limits are named by their dimensions here, and by hand there.
        let [our_axes, their_axes] = [ours.axes(), theirs.axes()].map(|axes| axes.iter().collect::<Vec<_>>());
        assert_eq!((ours.denied_by(), our_axes), (theirs.denied_by(), their_axes), "{user} {cost}");
        assert_eq!(ours.decision(), theirs.decision(), "{user} {cost}");
        for named in [ours.limit_name(), theirs.limit_name()] {
            assert_eq!(named.is_some(), !ours.allowed, "{user} {cost}");
        }
        if let (Some(mut ours), Some(mut theirs)) = (ours.permit, theirs.permit) {
            let chunk = cost + 2;
            assert_eq!(ours.debit(chunk).await.unwrap(), theirs.debit(chunk).await.unwrap());
            assert_eq!(ours.limit_name(), theirs.limit_name(), "{user} {cost}");
            ours.close(Ending::Success).await.unwrap();
            theirs.close(Ending::Success).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_denial_names_the_budget_that_denied_also_of_a_chunk() {
    let policy = SharedPolicy::builder(store(), "chat")
        .limit(Axis::Cost, Limit::token_budget(100, MINUTE).unwrap())
        .limit(Axis::Cost.by(1), Limit::token_budget(150, MINUTE).unwrap())
        .build()
        .unwrap();
    let call = |user: &'static str, cost| Call::by(user).and(&["acme"]).cost(cost);
    let name = |name: Option<LimitName>| name.map(LimitName::as_str);
    let mut ann = policy.admit(call("ann", 90)).await.unwrap().into_permit().unwrap();
    let denied = policy.admit(call("ann", 20)).await.unwrap();
    assert_eq!(name(denied.limit_name()), Some("cost"));
    assert_eq!(name(denied.into_permit().unwrap_err().limit_name), Some("cost"));
    let ben = policy.admit(call("ben", 60)).await.unwrap().into_permit().unwrap();
    assert_eq!(name(policy.admit(call("cem", 1)).await.unwrap().limit_name()), Some("cost1"));
    assert!(ann.debit(90).await.unwrap().allowed && name(ann.limit_name()).is_none());
    assert!(!ann.debit(1).await.unwrap().allowed);
    assert_eq!(name(ann.limit_name()), Some("cost1"));
    assert!(ann.debit(0).await.unwrap().allowed && name(ann.limit_name()).is_none());
    drop(ben);
    ann.success();
}

#[tokio::test]
async fn limits_of_this_process_have_names_of_their_own() {
    let policy = SharedPolicy::builder(store(), "chat").rate(Rate::per_minute(2).burst(2));
    let policy = policy.local(Axis::Rate.by(1), Rate::per_minute(1).burst(1));
    let policy = policy.local(Axis::Rate.by(1), Rate::per_hour(9).burst(9)).build().unwrap();
    let name = async |user| {
        let denied = policy.admit(Call::by("acme").and(&[user])).await.unwrap();
        denied.limit_name().map(LimitName::as_str)
    };
    assert_eq!(name("ann").await, None);
    assert_eq!(name("ann").await, Some("local.rate1"));
    assert_eq!(name("ben").await, None);
    assert_eq!(name("cem").await, Some("rate"));
}

#[tokio::test]
async fn concurrency_on_the_store_is_counted_per_key_or_in_total() {
    let store = store();
    let policy = |name: &str, limit: Concurrency| {
        SharedPolicy::builder(store.clone(), name).concurrency(limit).build()
    };
    let per_key = policy("per-key", Concurrency::per_key(1)).unwrap();
    let held = per_key.admit("a").await.unwrap().into_permit().unwrap();
    assert_eq!(per_key.admit("a").await.unwrap().into_permit().unwrap_err().axis, Some(Axis::Concurrency));
    assert!(per_key.admit("b").await.unwrap().allowed);
    drop(held);
    let total = policy("total", 1.into()).unwrap();
    let held = total.admit("a").await.unwrap().into_permit().unwrap();
    assert_eq!(total.admit("b").await.unwrap().denied_by(), Some(Axis::Concurrency));
    drop(held);
    assert_eq!(policy("none", Concurrency::adaptive(0..=4)).unwrap_err(), BuildError::InvalidConcurrency);
    let adaptive = policy("adaptive", Concurrency::adaptive(1..=4));
    assert!(matches!(adaptive, Err(BuildError::NotShareable(_))));
}

#[tokio::test]
async fn a_fair_budget_on_the_store_denies_by_fairness() {
    let policy = SharedPolicy::builder(store(), "fair").rate(Rate::per_minute(9)).fair(Budget::per_hour(10));
    let policy = policy.build().unwrap();
    policy.admit(Call::by("a").cost(10)).await.unwrap().into_permit().unwrap().success();
    let denied = policy.admit(Call::by("a").cost(1)).await.unwrap();
    assert_eq!(denied.denied_by(), Some(Axis::Fairness));
    assert_eq!(denied.axes().get(Axis::Rate).unwrap().remaining, 7);
}

#[test]
fn parts_on_the_wrong_axis_are_refused() {
    let limiter = || SharedLimiter::new(store(), "calls", Rate::per_minute(1)).unwrap();
    let policy = || SharedPolicy::builder(store(), "wrong");
    for wrong in [
        policy().with(Axis::Rate, Guard::new(1).unwrap()),
        policy().with(Axis::Fairness, limiter()),
        policy().with([Axis::Rate, Axis::Cost], limiter()),
        policy().limit(Axis::Price, Rate::per_minute(1)),
        policy().local(Axis::Concurrency, Rate::per_minute(1)),
    ] {
        assert!(matches!(wrong.build(), Err(BuildError::WrongAxis(_))));
    }
    let many = (0..17).fold(policy(), |builder, _| builder.rate(Rate::per_minute(1)));
    assert_eq!(many.build().unwrap_err(), BuildError::TooManyLimits { max: 16 });
    assert!(policy().rate(Rate::per_minute(1)).route_by(1).build().is_err());
}

/// A store that counts calls that charge.
struct Counting {
    store: Memory,
    charges: AtomicU64,
}

impl Store for Counting {
    forward_store!(Store for self => self.store; debit, peek, settle, lease, give_back, reset, background);

    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        self.charges.fetch_add(1, Relaxed);
        self.store.admit(asks).await
    }
}

/// A store that charges and accepts no returns until it is switched on.
struct Deaf {
    store: Memory,
    hears: AtomicBool,
}

impl Deaf {
    fn new(store: Memory) -> Self {
        Self { store, hears: AtomicBool::new(false) }
    }
}

impl Store for Deaf {
    forward_store!(Store for self => self.store; admit, debit, peek, settle, lease, reset);

    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        if self.hears.load(Relaxed) {
            return self.store.give_back(backs).await;
        }
        Err(StoreError::unavailable("gone"))
    }

    fn background(&self) -> Background {
        Background::default().on(tokio::runtime::Handle::current())
    }
}

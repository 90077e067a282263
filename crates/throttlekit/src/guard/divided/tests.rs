//! The guard over a store in process, with tokio's paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::lease::Margin;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::clock::{Clock, LeaseClock};
use crate::fence::Fenced;
use crate::guard::{Denied, DividedGuardBuilder, SharePermit, Split};
use crate::store::{Background, MembershipRecord, MembershipStore, MemoryStore, StoreError, Swapped};
use crate::{Guarantee, SharedGuard};

const MS: Duration = Duration::from_millis(1);
const LIVES: Duration = Duration::from_millis(1_200);
const RAMPS: u32 = 24;

/// Tokio's time, which stops while a task runs and jumps when all are idle.
#[derive(Clone, Copy)]
struct Paused(Instant);

impl Clock for Paused {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_000_000) + self.0.elapsed()
    }
}

impl LeaseClock for Paused {}

/// A store that can be disconnected, counts its calls, and takes a millisecond for each.
struct Wire {
    store: MemoryStore<Paused>,
    calls: AtomicU64,
}

struct End(Arc<Wire>, Arc<AtomicBool>);

impl End {
    async fn pass(&self) -> Result<(), StoreError> {
        self.0.calls.fetch_add(1, SeqCst);
        sleep(MS / 2).await;
        if self.1.load(SeqCst) { std::future::pending().await } else { Ok(()) }
    }
}

impl MembershipStore for End {
    async fn load(&self, key: &str) -> Result<MembershipRecord, StoreError> {
        self.pass().await?;
        self.0.store.load(key).await
    }

    async fn swap(
        &self,
        key: &str,
        version: u64,
        bytes: &[u8],
        keeps: Duration,
    ) -> Result<Swapped, StoreError> {
        self.pass().await?;
        self.0.store.swap(key, version, bytes, keeps).await
    }

    fn background(&self) -> Background {
        Background::default().on(Handle::current())
    }
}

struct Fleet {
    wire: Arc<Wire>,
    clock: Paused,
}

impl Fleet {
    /// Creates nodes whose membership record has been quiet for long enough.
    async fn ready() -> Self {
        let clock = Paused(Instant::now());
        let fleet = Self {
            wire: Arc::new(Wire { store: MemoryStore::with_clock(clock), calls: AtomicU64::new(0) }),
            clock,
        };
        let first = fleet.node(6);
        sleep(LIVES + 100 * MS).await;
        first.close().await;
        fleet
    }

    fn node(&self, ceiling: u32) -> SharedGuard<Paused> {
        self.choosing(ceiling, Arc::default(), |builder| builder)
    }

    fn choosing(
        &self,
        ceiling: u32,
        cut: Arc<AtomicBool>,
        choose: impl FnOnce(DividedGuardBuilder<End, Paused>) -> DividedGuardBuilder<End, Paused>,
    ) -> SharedGuard<Paused> {
        let builder =
            SharedGuard::builder(End(self.wire.clone(), cut), "api", ceiling).divided().clock(self.clock);
        let builder = builder
            .lease(LIVES)
            .heartbeat_every(400 * MS)
            .heartbeat_spacing(20 * MS)
            .clock_error(Margin::NONE);
        choose(builder).build().unwrap()
    }
}

fn try_acquire(guard: &SharedGuard<Paused>) -> Result<SharePermit<'_, Paused>, Denied> {
    guard.try_acquire(()).expect("a divided guard")
}

/// Acquires all available slots.
fn fill<'a>(guard: &'a SharedGuard<Paused>) -> Vec<SharePermit<'a, Paused>> {
    std::iter::from_fn(|| try_acquire(guard).ok()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_share_is_handed_over_when_the_work_that_has_it_ends_and_not_before() {
    let fleet = Fleet::ready().await;
    let equal = |builder: DividedGuardBuilder<End, Paused>| builder.split(Split::Equal);
    let one = fleet.choosing(6, Arc::default(), equal);
    sleep(50 * MS).await;
    let held = fill(&one);
    assert_eq!(held.len(), 6);
    let two = fleet.choosing(6, Arc::default(), equal);
    for _ in 0..100 {
        sleep(10 * MS).await;
        assert_eq!(fill(&two).len(), 0, "all six are in flight elsewhere");
    }
    let mut held = held.into_iter();
    for given_back in 1..=3_usize {
        held.next().unwrap().success();
        sleep(450 * MS).await;
        let more = fill(&two);
        assert!(more.len() + 6 - given_back <= 6, "{} and {}", more.len(), 6 - given_back);
        assert_eq!(one.stats().in_flight as usize, 6 - given_back);
    }
    assert_eq!(fill(&two).len(), 3);
    assert!(try_acquire(&one).is_err());
}

/// From the first heartbeat of the new node until it has its share: with eager heartbeats a few round trips, with
/// regular ones a few periods.
#[tokio::test(start_paused = true)]
async fn eager_heartbeats_collapse_the_ramp() {
    async fn ramp(spacing: Duration) -> Duration {
        let fleet = Fleet::ready().await;
        let choose = |builder: DividedGuardBuilder<End, Paused>| {
            builder.split(Split::Equal).heartbeat_spacing(spacing)
        };
        let one = fleet.choosing(100, Arc::default(), choose);
        sleep(500 * MS).await;
        assert_eq!(one.stats().limit, 100);
        let (two, begun) = (fleet.choosing(100, Arc::default(), choose), Instant::now());
        while two.stats().limit < 50 {
            let _ = try_acquire(&two).map(SharePermit::ignored);
            sleep(MS).await;
            assert!(begun.elapsed() < LIVES * 3, "it never comes: {:?} {:?}", one.stats(), two.stats());
        }
        begun.elapsed()
    }
    let [mut eager, mut regular] = [Duration::ZERO; 2];
    for _ in 0..RAMPS {
        eager += ramp(20 * MS).await / RAMPS;
        regular += ramp(400 * MS).await / RAMPS;
    }
    // Half a period until the first node sees it; then a heartbeat to acknowledge and one to take, 20 ms each or 400.
    assert!(eager < 450 * MS, "{eager:?}");
    assert!(regular * 2 > eager * 3, "{regular:?} beside {eager:?}");
}

#[tokio::test(start_paused = true)]
async fn a_partitioned_node_admits_nothing_before_others_have_its_share() {
    let fleet = Fleet::ready().await;
    let cut = Arc::new(AtomicBool::new(false));
    let one = fleet.choosing(6, cut.clone(), |builder| builder);
    sleep(50 * MS).await;
    let permit = try_acquire(&one).unwrap();
    assert_eq!(permit.guarantee(), Guarantee::Exact);
    cut.store(true, SeqCst);
    let two = fleet.node(6);
    let begun = Instant::now();
    let stopped = permit.run(sleep(LIVES * 10)).await;
    assert_eq!(stopped, Err(Fenced));
    assert!(begun.elapsed() <= LIVES, "{:?}", begun.elapsed());
    assert!(permit.is_fenced());
    assert_eq!(try_acquire(&one).unwrap_err().decision.limit, 0);
    assert!(two.stats().limit < 6, "the other has it later");
    while two.stats().limit < 6 {
        assert_eq!(try_acquire(&one).unwrap_err().decision.limit, 0);
        sleep(MS).await;
        assert!(begun.elapsed() < LIVES * 2, "{:?}", two.stats());
    }
    drop(permit);
    cut.store(false, SeqCst);
    sleep(900 * MS).await;
    let stats = one.stats().division.unwrap();
    assert!(!stats.fenced && stats.fences == 1 && stats.failed > 0, "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn permits_from_before_a_fence_stay_fenced() {
    let fleet = Fleet::ready().await;
    let cut = Arc::new(AtomicBool::new(false));
    let one = fleet.choosing(6, cut.clone(), |builder| builder);
    sleep(50 * MS).await;
    let before = one.try_acquire_owned(()).unwrap().unwrap();
    cut.store(true, SeqCst);
    sleep(LIVES * 2).await;
    cut.store(false, SeqCst);
    sleep(LIVES).await;
    let after = try_acquire(&one).unwrap();
    assert!(before.is_fenced() && !after.is_fenced());
    timeout(MS, before.fenced()).await.expect("at once");
    timeout(LIVES * 5, after.fenced()).await.expect_err("it hears of its fleet");
}

#[tokio::test(start_paused = true)]
async fn a_partitioned_node_may_continue_with_a_local_share() {
    let fleet = Fleet::ready().await;
    let cut = Arc::new(AtomicBool::new(false));
    let one = fleet.choosing(6, cut.clone(), |builder| builder.while_disconnected(2));
    sleep(50 * MS).await;
    cut.store(true, SeqCst);
    sleep(LIVES * 2).await;
    let local = fill(&one);
    assert_eq!(local.len(), 2);
    assert!(local.iter().all(|permit| permit.guarantee() == Guarantee::Local && !permit.is_fenced()));
    assert_eq!(try_acquire(&one).unwrap_err().decision.limit, 0);
    cut.store(false, SeqCst);
    sleep(900 * MS).await;
    assert_eq!(fill(&one).len(), 4, "those two count among the six");
}

#[tokio::test(start_paused = true)]
async fn a_leaving_node_releases_its_share_at_once_and_ends_with_its_work() {
    let fleet = Fleet::ready().await;
    let (one, two) = (fleet.node(6), fleet.node(6));
    sleep(1_000 * MS).await;
    let held = one.try_acquire_owned(()).unwrap().unwrap();
    let mut leaving = Box::pin(one.close());
    timeout(200 * MS, &mut leaving).await.expect_err("one is in flight");
    sleep(450 * MS).await;
    let _ = timeout(MS, &mut leaving).await;
    let _busy: Vec<_> = fill(&two);
    sleep(450 * MS).await;
    assert_eq!(two.stats().limit, 5, "{:?}", two.stats());
    held.success();
    timeout(200 * MS, leaving).await.expect("nothing is in flight");
    sleep(450 * MS).await;
    assert_eq!(two.stats().limit, 6, "{:?}", two.stats());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_dropped_is_missed_when_its_grant_has_died_and_comes_again_as_another() {
    let fleet = Fleet::ready().await;
    let one = fleet.node(6);
    sleep(50 * MS).await;
    assert_eq!(one.stats().limit, 6);
    drop(one);
    let (again, begun) = (fleet.node(6), Instant::now());
    while again.stats().limit < 6 {
        sleep(MS).await;
    }
    let waited = begun.elapsed();
    assert!((LIVES - 100 * MS..LIVES + 450 * MS).contains(&waited), "{waited:?}");
    let calls = fleet.wire.calls.load(SeqCst);
    drop(again);
    sleep(LIVES * 4).await;
    assert!(fleet.wire.calls.load(SeqCst) <= calls + 2, "a node that left sends no heartbeats");
}

/// Futures of permits, waits and leaves, dropped after any number of polls: nothing leaks.
#[tokio::test(start_paused = true)]
async fn whatever_is_dropped_at_any_await_gives_its_slot_back() {
    let fleet = Fleet::ready().await;
    let one = fleet.choosing(2, Arc::default(), |builder| builder.queue_max(4));
    sleep(50 * MS).await;
    for polls in 0..40 {
        let (holder, other) = (try_acquire(&one).unwrap(), try_acquire(&one).unwrap());
        let mut waits = Box::pin(async {
            let permit = one.acquire(()).await.unwrap().permit.unwrap();
            permit.run(sleep(3 * MS)).await.unwrap();
            permit.success();
        });
        for poll in 0..polls {
            if poll == 10 {
                let _ = other.run(sleep(MS)).await;
            }
            if timeout(MS / 4, &mut waits).await.is_ok() {
                break;
            }
            if poll == 20 {
                break;
            }
        }
        holder.success();
        let _ = timeout(MS, &mut waits).await;
        drop((waits, other));
        assert_eq!(one.stats().in_flight, 0, "after {polls} polls");
    }
    drop(Box::pin(one.close()));
    drop(one);
    let two = fleet.node(2);
    sleep(LIVES + 500 * MS).await;
    let mut leaving = Box::pin(two.close());
    let _ = timeout(MS / 4, &mut leaving).await;
    drop(leaving);
    drop(two);
    let three = fleet.node(2);
    sleep(LIVES + 500 * MS).await;
    assert_eq!(three.stats().limit, 2);
}

/// Nodes with very different demand: each gets what it wants.
#[tokio::test(start_paused = true)]
async fn shares_follow_demand() {
    let fleet = Fleet::ready().await;
    let nodes = [fleet.node(100), fleet.node(100)];
    let asks = [90, 10];
    for _ in 0..400 {
        for (node, asks) in nodes.iter().zip(asks) {
            let held: Vec<_> = (0..asks).filter_map(|_| try_acquire(node).ok()).collect();
            sleep(5 * MS).await;
            held.into_iter().for_each(SharePermit::success);
        }
    }
    let shares = nodes.each_ref().map(|node| node.stats().limit);
    assert!(shares[0] >= 85 && shares[1] >= 5 && shares.iter().sum::<u32>() <= 100, "{shares:?}");
    let heartbeats: u64 = nodes.iter().map(|node| node.stats().division.unwrap().heartbeats).sum();
    assert!(
        heartbeats < 120,
        "{heartbeats} heartbeats in four seconds: two a second and node, and some while shares move"
    );
}

/// The store's clock has no effect here: a node reports its inferred limit once it has enough samples.
#[tokio::test(start_paused = true)]
async fn a_new_node_without_samples_does_not_affect_the_inferred_ceiling() {
    let fleet = Fleet::ready().await;
    let ceiling = crate::guard::Ceiling::between(4, 64).starting_at(16);
    let builder = SharedGuard::builder(End(fleet.wire.clone(), Arc::default()), "api", ceiling)
        .divided()
        .clock(fleet.clock);
    let one = builder
        .lease(LIVES)
        .heartbeat_every(400 * MS)
        .heartbeat_spacing(20 * MS)
        .clock_error(Margin::NONE)
        .build()
        .unwrap();
    sleep(500 * MS).await;
    let stats = one.stats().division.unwrap();
    assert_eq!((stats.inferred, stats.limit), (0, 16), "{stats:?}");
    for _ in 0..200 {
        try_acquire(&one).unwrap().success_after(5 * MS);
    }
    sleep(500 * MS).await;
    let stats = one.stats().division.unwrap();
    assert!(
        stats.inferred >= 4 && stats.inferred <= 18,
        "a little above the ceiling of all at the most: {stats:?}"
    );
}

//! `failover`, fenced: ≤ L across failovers and restarts, at the cost of availability.

use std::time::Duration;

use crate::common::{env, policy};
use crate::rig::{Cluster, DAY, Limiter, Pair, Server, figure, until};
use throttlekit::clock::{Clock, ManualClock, WallClock};
use throttlekit::rate::{Cadence, Timestamp};
use throttlekit::store::StoreError;
use throttlekit::{Answer, Guarantee, Limit, Rate};
use throttlekit_conformance::stores::examine_store;
use throttlekit_redis::{Failover, RedisStore, RedisStoreBuilder};
use tokio::time::sleep;

const LIMIT: u64 = 100;
const ISOLATION: Duration = Duration::from_millis(100);
const TICK: Duration = Duration::from_micros(1);
const RECOVERY_MAX: Duration = Duration::from_secs(5);

fn fence(builder: RedisStoreBuilder) -> RedisStoreBuilder {
    builder.failover(Failover::Fence { isolation: ISOLATION }).deadline(Duration::from_secs(2))
}

async fn fenced(url: String, clock: &ManualClock, limit: Limit) -> Limiter {
    let store = fence(RedisStore::builder(url)).clock(clock.clone()).connect().await.unwrap();
    Limiter::new(store, &policy("fence"), limit).unwrap()
}

fn day() -> Limit {
    Limit::fixed_window(LIMIT, DAY).unwrap()
}

/// Returns noon of January 15, 2027.
fn noon() -> ManualClock {
    ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000 / DAY_MICROS * DAY_MICROS + DAY_MICROS / 2))
}
const DAY_MICROS: u64 = 86_400_000_000;

fn is_fenced(answer: &Answer) -> bool {
    matches!(&answer.outage, Some(StoreError::Unavailable(why)) if why.contains("fenced until"))
}

/// Returns `true` if a unit is admitted. Anything but a decision or the fence fails the test.
async fn passes(limiter: &Limiter, key: &str) -> bool {
    let answer = limiter.check(key).await.unwrap();
    assert_eq!(answer.outage.is_some(), is_fenced(&answer), "{answer:?}");
    assert!(answer.guarantee == if is_fenced(&answer) { Guarantee::Closed } else { Guarantee::Exact });
    answer.decision.allowed
}

async fn take(limiter: &Limiter, key: &str, asks: u64) -> u64 {
    let mut admitted = 0;
    for _ in 0..asks {
        admitted += u64::from(passes(limiter, key).await);
    }
    admitted
}

async fn answers_again(limiter: &Limiter) {
    until("good answers", RECOVERY_MAX, async || {
        let answer = limiter.check("observer").await.unwrap();
        answer.outage.is_none() || is_fenced(&answer)
    })
    .await;
}

/// A server without history charges once every possibly lost charge has expired, and not one microsecond
/// before; denied requests write nothing.
async fn each_rule_waits_until_what_may_be_lost_is_over(server: Server) {
    let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3_600));
    let rules = [
        ("gcra", Limit::gcra(Rate::per_second(1).burst(5)).unwrap(), ISOLATION + 5 * second + TICK),
        ("odd gcra", Limit::gcra(Rate::per_second(3).burst(6)).unwrap(), ISOLATION + 2 * second + TICK),
        ("window", day(), DAY / 2),
        ("month", Limit::quota(LIMIT, Cadence::Month { utc_offset_minutes: 0 }).unwrap(), 17 * DAY - DAY / 2),
        ("sliding", Limit::sliding_window(LIMIT, hour).unwrap(), ISOLATION + hour + hour / 10),
        ("log", Limit::sliding_log(LIMIT, hour).unwrap(), ISOLATION + hour),
    ];
    for (name, limit, after) in rules {
        server.ask::<()>("FLUSHALL").await;
        let clock = noon();
        let limiter = fenced(server.url(), &clock, limit).await;
        assert!(!passes(&limiter, "alice").await, "{name}");
        assert_eq!(server.ask::<u64>("DBSIZE").await, 1, "{name}: only the record is written");
        clock.advance(after - TICK);
        assert!(!passes(&limiter, "alice").await, "{name}: one microsecond before");
        clock.advance(TICK);
        assert!(passes(&limiter, "alice").await, "{name}");
        assert!(passes(&limiter, "alice").await, "{name}: and from then on");
    }
}

#[tokio::test]
async fn each_rule_is_fenced_until_lost_charges_have_expired() {
    each_rule_waits_until_what_may_be_lost_is_over(Server::start(&[]).await).await;
}

#[tokio::test]
async fn each_rule_is_fenced_on_valkey_too() {
    let valkey = Server::start_program(&env("THROTTLEKIT_VALKEY_SERVER"), &[], vec![]).await;
    each_rule_waits_until_what_may_be_lost_is_over(valkey).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_charges_are_lost_their_window_is_closed_and_the_next_is_whole() {
    let mut pair = Pair::start().await;
    let clock = noon();
    let limiter = fenced(pair.way.url(), &clock, day()).await;
    passes(&limiter, "alice").await;
    clock.advance(DAY);
    assert_eq!(take(&limiter, "alice", 30).await, 30);
    pair.be_in_step().await;
    assert_eq!(pair.lose(take(&limiter, "alice", 20)).await, 20);
    answers_again(&limiter).await;
    assert_eq!(take(&limiter, "alice", LIMIT).await + take(&limiter, "new", LIMIT).await, 0);
    clock.advance(DAY);
    assert_eq!(take(&limiter, "alice", 2 * LIMIT).await, LIMIT, "neither more nor less");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_two_primaries_only_the_old_one_charges() {
    let pair = Pair::start().await;
    let clock = noon();
    let policy = policy("split");
    let store = |url: String| fence(RedisStore::builder(url)).clock(clock.clone()).connect();
    let stays = Limiter::new(store(pair.primary.url()).await.unwrap(), &policy, day()).unwrap();
    let moves = Limiter::new(store(pair.way.url()).await.unwrap(), &policy, day()).unwrap();
    passes(&stays, "alice").await;
    clock.advance(DAY);
    let before = take(&stays, "alice", 20).await + take(&moves, "alice", 20).await;
    pair.promote().await;
    answers_again(&moves).await;
    let (old, new) = (take(&stays, "alice", LIMIT).await, take(&moves, "alice", LIMIT).await);
    assert_eq!((before, old, new), (40, 60, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_without_persistence_closes_the_window_also_for_a_new_process() {
    let mut server = Server::start(&[]).await;
    let clock = noon();
    let limiter = fenced(server.url(), &clock, day()).await;
    passes(&limiter, "alice").await;
    clock.advance(DAY);
    assert_eq!(take(&limiter, "alice", 30).await, 30);
    let newcomer = fenced(server.url(), &clock, day()).await;
    assert!(passes(&newcomer, "bob").await, "the record vouches to whoever comes");
    server.kill();
    server.up().await;
    answers_again(&limiter).await;
    assert_eq!(take(&limiter, "alice", LIMIT).await, 0);
    assert!(!passes(&fenced(server.url(), &clock, day()).await, "carol").await);
}

/// By the server's own clock: a server that was never promoted vouches for the time since its start, a
/// promoted one does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_server_is_trusted_by_a_new_process_and_a_promoted_one_is_not() {
    let pair = Pair::start().await;
    sleep(Duration::from_millis(3_200)).await;
    let limit = || Limit::fixed_window(LIMIT, Duration::from_secs(1)).unwrap();
    let first = async |url: String| {
        let store = fence(RedisStore::builder(url)).connect().await.unwrap();
        let limiter = Limiter::new(store, &policy("healthy"), limit()).unwrap();
        let passed = passes(&limiter, "alice").await;
        (limiter, passed)
    };
    assert!(first(pair.primary.url()).await.1);
    pair.promote().await;
    let (limiter, passed) = first(pair.replica.url()).await;
    assert!(!passed);
    let begun = WallClock.now();
    until("the next window", Duration::from_secs(3), async || passes(&limiter, "alice").await).await;
    let took = WallClock.now().since(begun);
    figure("failover-fence", "refused_ms", took.as_millis());
    assert!(took <= Duration::from_millis(1_600), "two windows at the most: {took:?}");
}

/// If a server can vouch for all time, a fenced store behaves like any other.
#[tokio::test]
async fn a_vouched_server_behaves_as_without_a_fence() {
    let server = Server::start(&[]).await;
    let said: String = server.ask("INFO replication").await;
    let id = said.lines().find_map(|line| line.strip_prefix("master_replid:")).unwrap().trim().to_owned();
    let mut connection = server.connection().await.unwrap();
    let mut vouch = redis::cmd("SET");
    vouch.arg("tk:{%since}").arg(format!("{id} -9000000000000000 0 0"));
    vouch.query_async::<()>(&mut connection).await.unwrap();
    let store = RedisStore::builder(server.url())
        .failover(Failover::Fence { isolation: Duration::ZERO })
        .deadline(Duration::from_secs(30))
        .grace(Duration::from_secs(600))
        .connect()
        .await
        .unwrap();
    let make = move |clock| std::future::ready(Ok(store.at(clock)));
    let report = examine_store(make, 0..300).await.unwrap_or_else(|difference| panic!("{difference}"));
    assert_eq!(report.traces, 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_seals_and_records_are_per_slot_and_each_request_is_fenced_alone() {
    let cluster = Cluster::start(&[]).await;
    let clock = noon();
    let store = fence(RedisStore::cluster(cluster.urls())).clock(clock.clone()).connect().await.unwrap();
    let limiter = Limiter::new(store, &policy("cluster"), day()).unwrap();
    let keys: Vec<String> = (0..20).map(|n| format!("key{n}")).collect();
    let refused = limiter.check_many(&keys).await;
    assert!(refused.into_iter().all(|answer| is_fenced(&answer.unwrap())));
    clock.advance(DAY);
    let passed = limiter.check_many(&keys).await;
    assert!(passed.into_iter().all(|answer| answer.unwrap().decision.allowed));
}

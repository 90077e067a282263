//! Several charges of one request whose keys are being migrated to another node: retried once, a moment
//! later.

use std::time::Duration;

use crate::common::policy;
use crate::rig::{self, Cluster, DAY, Limiter, Server, is_own, until};
use throttlekit::{Call, Guarantee, Limit};
use throttlekit_redis::{RedisStore, slot_of};

const LIMIT: u64 = 1_000_000;
/// One attempt in this many must come at a moment at which the second key arrives within the pause.
const MOVES_MAX: usize = 200;

/// Two limits whose keys share a slot, and the migration of that slot from one node to another.
struct Moving {
    cluster: Cluster,
    limiter: Limiter,
    policy: String,
    slot: u16,
}

impl Moving {
    async fn start() -> Self {
        Self::start_with(DAY).await
    }

    /// Starts with limits of this window.
    async fn start_with(window: Duration) -> Self {
        let cluster = Cluster::start(&[]).await;
        let policy = policy("resharding");
        let builder = RedisStore::cluster(cluster.urls()).deadline(Duration::from_secs(5));
        let limit = Limit::fixed_window(LIMIT, window).unwrap();
        let limiter = Limiter::builder(builder.connect().await.unwrap(), &policy, limit)
            .first_limit(0, "a")
            .limit_by(1, "b", limit)
            .build()
            .unwrap();
        let slot = slot_of(&format!("tk:{{{policy}/}}"));
        Self { cluster, limiter, policy, slot }
    }

    async fn check(&self) -> throttlekit::Answer {
        self.limiter.check(Call::by("alice").and(&["bob"])).await.unwrap()
    }

    /// Returns the node that has the slot, and another.
    async fn ends(&self) -> (&Server, &Server) {
        let nodes = &self.cluster.nodes;
        let mine = |view: &str| {
            view.lines().find(|line| line.contains("myself")).is_some_and(|line| {
                line.split(' ').skip(8).any(|range| {
                    let (first, last) = range.split_once('-').unwrap_or((range, range));
                    let of = |text: &str| text.parse::<u16>().ok();
                    of(first).zip(of(last)).is_some_and(|(first, last)| (first..=last).contains(&self.slot))
                })
            })
        };
        for (n, node) in nodes[..3].iter().enumerate() {
            if mine(&node.ask::<String>("CLUSTER NODES").await) {
                return (node, &nodes[(n + 1) % 3]);
            }
        }
        panic!("nobody has slot {}", self.slot);
    }

    async fn begin(&self, from: &Server, to: &Server) {
        let (from_id, to_id): (String, String) =
            (from.ask("CLUSTER MYID").await, to.ask("CLUSTER MYID").await);
        to.ask::<()>(&format!("CLUSTER SETSLOT {} IMPORTING {from_id}", self.slot)).await;
        from.ask::<()>(&format!("CLUSTER SETSLOT {} MIGRATING {to_id}", self.slot)).await;
    }

    async fn migrate(&self, from: &Server, to: &Server, keys: &[String]) {
        if !keys.is_empty() {
            let keys = keys.join(" ");
            // Words are separated by spaces, and the single key of the older form is empty.
            from.ask::<String>(&format!("MIGRATE 127.0.0.1 {}  0 5000 KEYS {keys}", to.port)).await;
        }
    }

    async fn end(&self, to: &Server) {
        let id: String = to.ask("CLUSTER MYID").await;
        to.ask::<()>(&format!("CLUSTER SETSLOT {} NODE {id}", self.slot)).await;
        for node in &self.cluster.nodes[..3] {
            node.ask::<()>(&format!("CLUSTER SETSLOT {} NODE {id}", self.slot)).await;
        }
    }

    async fn keys(&self, at: &Server) -> Vec<String> {
        at.ask::<Vec<String>>(&format!("CLUSTER GETKEYSINSLOT {} 100", self.slot)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_keys_in_migration_is_retried_once() {
    let moving = Moving::start().await;
    assert!(is_own(moving.check().await.guarantee));
    let (from, to) = moving.ends().await;
    moving.begin(from, to).await;
    let keys = moving.keys(from).await;
    let state = |key: &&String| key.contains(&moving.policy);
    let (first, second) = (keys.iter().find(state).unwrap(), keys.iter().rfind(state).unwrap());
    assert_ne!(first, second, "{keys:?}");
    moving.migrate(from, to, std::slice::from_ref(first)).await;

    let apart = moving.check().await;
    assert_eq!(
        (apart.guarantee, moving.limiter.store().route_stats().tried_again),
        (Guarantee::Closed, 1),
        "{apart:?}"
    );

    moving.migrate(from, to, std::slice::from_ref(second)).await;
    assert!(is_own(moving.check().await.guarantee), "sent on");
    assert_eq!(moving.limiter.store().route_stats().tried_again, 1);
    // The lineage record of the slot migrates like any other key.
    moving.migrate(from, to, &moving.keys(from).await).await;
    moving.end(to).await;
    until("the slot is followed", DAY, async || is_own(moving.check().await.guarantee)).await;
}

/// By the servers' own clocks: each node has run for longer than the window.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_slot_moved_with_or_without_its_keys_decisions_are_bounded() {
    let moving = Moving::start_with(Duration::from_secs(1)).await;
    for with_keys in [true, false] {
        until("a window after the start", DAY, async || moving.check().await.guarantee == Guarantee::Exact)
            .await;
        let (from, to) = moving.ends().await;
        moving.begin(from, to).await;
        let keys = moving.keys(from).await;
        match with_keys {
            true => moving.migrate(from, to, &keys).await,
            false => from.ask(&format!("DEL {}", keys.join(" "))).await,
        }
        moving.end(to).await;
        let answer = moving.check().await;
        assert_eq!(answer.guarantee, Guarantee::Bounded(u64::MAX), "with keys: {with_keys}, {answer:?}");
    }
}

/// Keys in migration under load: requests that one attempt would leave without a response get one with two.
#[tokio::test(flavor = "multi_thread")]
async fn most_requests_during_a_migration_succeed() {
    let moving = std::sync::Arc::new(Moving::start().await);
    assert!(is_own(moving.check().await.guarantee));
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (moving, over) = (moving.clone(), over.clone());
            tokio::spawn(async move {
                let (mut closed, mut asked) = (0_u64, 0_u64);
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    asked += 1;
                    closed += u64::from(moving.check().await.guarantee == Guarantee::Closed);
                }
                (asked, closed)
            })
        })
        .collect();
    for _ in 0..MOVES_MAX {
        if moving.limiter.store().route_stats().tried_again >= 20 {
            break;
        }
        let (from, to) = moving.ends().await;
        moving.begin(from, to).await;
        for key in moving.keys(from).await {
            moving.migrate(from, to, &[key]).await;
        }
        moving.end(to).await;
    }
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    let (mut asked, mut closed) = (0, 0);
    for caller in callers {
        let (more, without) = caller.await.unwrap();
        (asked, closed) = (asked + more, closed + without);
    }
    let tried_again = moving.limiter.store().route_stats().tried_again;
    rig::figure(
        "resharding",
        "asks, tried again, without an answer",
        format_args!("{asked}, {tried_again}, {closed}"),
    );
    assert!(tried_again > 0, "no ask met a move");
    assert!(closed < tried_again, "of {tried_again} asks that met a move {closed} were not answered");
}

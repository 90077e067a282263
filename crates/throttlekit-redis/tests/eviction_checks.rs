//! `label-truth` where the check for evictions follows the decisions, one for many: `docs/contribute/decisions/0022-lineage.md`.

use std::time::Duration;

use crate::common::{env, policy};
use crate::label_truth::{
    FENCE, LIMIT, LOSSES, PLAIN, RECOVERY_MAX, UNKNOWN, limiter, lose, noon, take, vouched,
};
use crate::rig::{DAY, Limiter, Proxy, Server, until};
use futures_util::future::{join, join_all};
use throttlekit::clock::{Clock, ManualClock};
use throttlekit::{Answer, Guarantee, Limit};
use throttlekit_redis::{ADMIT_SCRIPT, RedisStore, slot_of};

/// New keys that are decided about at once.
const AT_ONCE: u64 = 64;
const RECORD: &str = "GET tk:{%since}";

/// Returns the number of `INFO` calls of the server.
async fn info_calls(server: &Server) -> u64 {
    let said: String = server.ask("INFO commandstats").await;
    let calls = said.lines().find_map(|line| line.strip_prefix("cmdstat_info:calls="));
    calls.and_then(|calls| calls.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
}

async fn decide_at_once(limiter: &Limiter, name: &str) -> Vec<Answer> {
    let keys: Vec<String> = (0..AT_ONCE).map(|n| format!("{name}-{n}")).collect();
    // Calls in flight, so that none of the decisions is one of few.
    let peeks = join_all(keys.iter().map(|key| limiter.peek(key.as_str())));
    let checks = join_all(keys.iter().map(|key| limiter.check(key.as_str())));
    join(peeks, checks).await.1.into_iter().map(Result::unwrap).collect()
}

/// Checks that all are admitted with this guarantee.
fn all_are(guarantee: Guarantee, answers: &[Answer]) {
    let is_it = |answer: &Answer| answer.decision.allowed && answer.guarantee == guarantee;
    assert!(answers.len() == AT_ONCE as usize && answers.iter().all(is_it), "{answers:?}");
}

/// Decides about new keys, with `between` after the decisions and before their checks.
async fn decide_across(
    limiter: &Limiter,
    (server, proxy): (&Server, &Proxy),
    between: impl Future<Output = ()>,
) -> Vec<Answer> {
    proxy.hold_replies();
    let meanwhile = async {
        until("all are charged", RECOVERY_MAX, async || {
            server.ask::<Vec<String>>("KEYS tk:*across-*w:*").await.len() as u64 == AT_ONCE
        })
        .await;
        between.await;
        proxy.forward();
    };
    join(decide_at_once(limiter, "across"), meanwhile).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_decisions_on_new_keys_share_a_check_and_are_bounded_after_an_eviction() {
    let (server, clock) = (Server::start(&[]).await, noon());
    let limiter = vouched(server.url(), &clock, PLAIN, &policy("many")).await;
    let before = info_calls(&server).await;
    all_are(Guarantee::Exact, &decide_at_once(&limiter, "healthy").await);
    let checks = info_calls(&server).await - before;
    assert!((1..AT_ONCE / 4).contains(&checks), "{checks} for {AT_ONCE} new keys");
    let record: String = server.ask(RECORD).await;
    assert!(!record.ends_with('?'), "it was checked: {record}");
    lose(&server, LOSSES[3].1).await;
    all_are(UNKNOWN, &decide_at_once(&limiter, "healthy").await);
    all_are(UNKNOWN, &decide_at_once(&limiter, "new").await);
}

/// Nothing was evicted before the decisions, which their callers cannot know.
#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_labeled_by_the_check_that_follows_it() {
    let (server, clock) = (Server::start(&[]).await, noon());
    let proxy = Proxy::before(server.port).await;
    let limiter = vouched(proxy.url(), &clock, PLAIN, &policy("labeled")).await;
    let answers = decide_across(&limiter, (&server, &proxy), lose(&server, LOSSES[3].1)).await;
    all_are(UNKNOWN, &answers);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_check_is_an_outage_of_its_decisions_and_no_loss() {
    let (server, clock) = (Server::start(&[]).await, noon());
    let proxy = Proxy::before(server.port).await;
    let limiter = vouched(proxy.url(), &clock, PLAIN, &policy("rejected")).await;
    let refuses = server.ask("CONFIG SET min-replicas-to-write 1");
    let answers = decide_across(&limiter, (&server, &proxy), refuses).await;
    let is_outage =
        |answer: &Answer| answer.outage.as_ref().is_some_and(|why| why.to_string().contains("NOREPLICAS"));
    assert!(answers.iter().all(is_outage), "{answers:?}");
    assert!(server.ask::<String>(RECORD).await.ends_with('?'), "nobody has checked");
    server.ask::<()>("CONFIG SET min-replicas-to-write 0").await;
    until("answers of the store", RECOVERY_MAX, async || {
        let answer = limiter.check("alice").await.unwrap();
        assert!(answer.outage.is_some() || answer.guarantee == Guarantee::Exact, "{answer:?}");
        answer.outage.is_none()
    })
    .await;
    assert!(!server.ask::<String>(RECORD).await.ends_with('?'), "the next call has checked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_runs_while_memory_is_short() {
    for program in ["redis-server", &env("THROTTLEKIT_VALKEY_SERVER")] {
        let (server, clock) = (Server::start_program(program, &[], vec![]).await, noon());
        let proxy = Proxy::before(server.port).await;
        let limiter = vouched(proxy.url(), &clock, PLAIN, &policy("short")).await;
        let fills = server.ask("CONFIG SET maxmemory 1");
        all_are(Guarantee::Exact, &decide_across(&limiter, (&server, &proxy), fills).await);
        assert!(!server.ask::<String>(RECORD).await.ends_with('?'), "{program}");
        let outage = limiter.check("late").await.unwrap().outage.map(|why| why.to_string());
        assert!(outage.as_ref().is_some_and(|why| why.contains("out of memory")), "{program}: {outage:?}");
    }
}

/// Charges a key as a process does that checks for evictions afterwards and dies before it does.
async fn charge_unchecked(server: &Server, clock: &ManualClock, key: &str) {
    let mut connection = server.connection().await.unwrap();
    let known: String = server.ask(RECORD).await;
    let mut charge = redis::cmd("EVAL");
    charge.arg(ADMIT_SCRIPT).arg(1).arg(key).arg(clock.now().as_micros()).arg(10_000);
    charge.arg(1).arg("w").arg(1).arg(LIMIT).arg(DAY.as_micros() as u64).arg(0).arg(format!("+{known}"));
    let answer: Vec<redis::Value> = charge.query_async(&mut connection).await.unwrap();
    assert!(
        matches!(&answer[..], [redis::Value::BulkString(mark), _] if mark == b"%unchecked"),
        "{answer:?}"
    );
    assert_eq!(server.ask::<String>(RECORD).await, format!("{known}?"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_was_written_before_a_check_for_evictions_is_checked_by_its_readers() {
    let (server, clock) = (Server::start(&[]).await, noon());
    for failover in [PLAIN, FENCE] {
        let policy = policy("unchecked");
        let limiter = vouched(server.url(), &clock, failover, &policy).await;
        let known: String = server.ask(RECORD).await;
        assert_eq!(take(&limiter, "alice").await, (LIMIT, LIMIT));
        let keys: Vec<String> = server.ask(&format!("KEYS tk:{{{policy}/alice}}*w:")).await;
        // Nothing is lost: the mark is removed, and a new process needs no window of its own.
        charge_unchecked(&server, &clock, &keys[0].replace("alice", "bob")).await;
        let newcomer = self::limiter(server.url(), &clock, failover, &policy).await;
        for limiter in [&newcomer, &limiter] {
            let answer = limiter.check("bob").await.unwrap();
            assert_eq!((answer.decision.allowed, answer.guarantee), (true, Guarantee::Exact), "{failover:?}");
        }
        assert_eq!(server.ask::<String>(RECORD).await, known);
        lose(&server, LOSSES[3].1).await;
        charge_unchecked(&server, &clock, &keys[0]).await;
        let answer = limiter.check("alice").await.unwrap();
        match failover {
            FENCE => assert!(!answer.decision.allowed, "{answer:?}"),
            _ => assert_eq!((answer.decision.allowed, answer.guarantee), (true, UNKNOWN), "{answer:?}"),
        }
        assert_ne!(server.ask::<String>(RECORD).await, known);
        clock.advance(2 * DAY);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_a_user_without_info_wrote_is_checked_by_its_readers() {
    let (server, clock) = (Server::start(&[]).await, noon());
    server.ask::<()>("ACL SETUSER tk on >pw ~* &* +@all -info").await;
    let policy = policy("no-info");
    let here = vouched(server.url(), &clock, PLAIN, &policy).await;
    let blind = limiter(format!("redis://tk:pw@127.0.0.1:{}", server.port), &clock, PLAIN, &policy).await;
    assert!(blind.check("bob").await.unwrap().decision.allowed);
    assert!(server.ask::<String>(RECORD).await.ends_with('?'));
    assert_eq!(here.check("bob").await.unwrap().guarantee, Guarantee::Exact, "nothing was evicted");
    assert_eq!(take(&here, "alice").await, (LIMIT, LIMIT));
    lose(&server, LOSSES[3].1).await;
    assert!(blind.check("alice").await.unwrap().decision.allowed);
    assert_eq!(take(&here, "alice").await, (LIMIT - 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_record_cannot_be_marked_the_script_checks() {
    let (server, clock) = (Server::start(&[]).await, noon());
    server.ask::<()>("ACL SETUSER tk on >pw ~tk:{%rights}* ~tk:{unmarked* %R~tk:{%since} &* +@all").await;
    vouched(server.url(), &clock, PLAIN, &policy("other")).await;
    let record: String = server.ask(RECORD).await;
    let url = format!("redis://tk:pw@127.0.0.1:{}", server.port);
    let limiter = limiter(url, &clock, PLAIN, &policy("unmarked")).await;
    limiter.check("first").await.unwrap();
    let before = info_calls(&server).await;
    all_are(Guarantee::Exact, &decide_at_once(&limiter, "new").await);
    assert!(info_calls(&server).await - before >= AT_ONCE);
    assert_eq!(server.ask::<String>(RECORD).await, record);
}

/// By the server's own clock. The record of a slot comes with its states: what its node lost is not known.
#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_a_record_of_another_node_vouches_for_nothing() {
    let server = Server::start(&["--cluster-enabled", "yes"]).await;
    server.ask::<()>("CLUSTER ADDSLOTSRANGE 0 16383").await;
    until("a node that vouches for a window", DAY, async || {
        let said: String = server.ask("INFO server").await;
        let up = said.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        up.is_some_and(|up| up.parse::<u64>().unwrap() >= 3)
            && server.ask::<String>("CLUSTER INFO").await.contains("cluster_state:ok")
    })
    .await;
    let policy = policy("foreign");
    for (key, record, guarantee) in [
        ("own", None, Guarantee::Exact),
        ("moved", Some("ab 5 0 0"), UNKNOWN),
        ("moved-unchecked", Some("ab 5 0 0?"), UNKNOWN),
    ] {
        let store = RedisStore::cluster([server.url()]).deadline(Duration::from_secs(5)).connect().await;
        let limit = Limit::fixed_window(LIMIT, Duration::from_secs(1)).unwrap();
        let limiter = Limiter::new(store.unwrap(), &policy, limit).unwrap();
        if let Some(record) = record {
            let slot = slot_of(&format!("tk:{{{policy}/{key}}}"));
            let names = (0..).map(|number| format!("tk:{{%since{number}}}"));
            let name = names.into_iter().find(|name| slot_of(name) == slot).unwrap();
            let mut connection = server.connection().await.unwrap();
            redis::cmd("SET").arg(name).arg(record).exec_async(&mut connection).await.unwrap();
        }
        let answer = limiter.check(key).await.unwrap();
        assert_eq!((answer.decision.allowed, answer.guarantee), (true, guarantee), "{key}");
    }
}

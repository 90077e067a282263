//! Servers that hold foreign values, are out of memory, start late, are misconfigured or have a wrong clock.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, policy};
use crate::rig::{
    Connection, DAY, Limiter, Load, RECOVERY_MAX, Server, ask, exact_after, figure, is_own, labelled, now,
    recovers, until,
};
use redis::Value;
use throttlekit::rate::Timestamp;
use throttlekit::store::StoreError;
use throttlekit::{Guarantee, Limit, OnOutage, Rate};
use throttlekit_redis::RedisStore;
use tokio::time::sleep;

const PATIENT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);

async fn patient(server: &Server) -> RedisStore {
    RedisStore::builder(server.url()).deadline(PATIENT).connect().await.unwrap()
}

/// A value that none of our scripts has written.
#[derive(Clone, Copy, Debug)]
enum Foreign {
    Text(&'static [u8]),
    List(&'static [&'static str]),
    Hash,
}

const TEXTS: [Foreign; 22] = [
    Foreign::Text(b"garbage"),
    Foreign::Text(b"nan"),
    Foreign::Text(b"inf"),
    Foreign::Text(b"-inf"),
    Foreign::Text(b"-1"),
    Foreign::Text(b"1e30"),
    Foreign::Text(b"1e3"),
    Foreign::Text(b"0x10"),
    Foreign::Text(b" 12"),
    Foreign::Text(b"1.5"),
    Foreign::Text(b""),
    Foreign::Text(b"\xff\x00\xfe"),
    Foreign::Text(b"99999999999999999999"),
    Foreign::Text(b"99999999999999999999:1"),
    Foreign::Text(b"1 2 3"),
    Foreign::Text(b"-1 5"),
    Foreign::Text(b"12 nan"),
    Foreign::Text(b"12 1e30"),
    // Packed arrays of the wrong length, and of words.
    Foreign::Text(b"\x93\x01\x02\x03"),
    Foreign::Text(b"\x92\xa1x\xa1y"),
    Foreign::List(&["1:1", "1"]),
    Foreign::Hash,
];

const LISTS: [Foreign; 7] = [
    Foreign::List(&["garbage"]),
    Foreign::List(&["1"]),
    Foreign::List(&["1:1", "nan"]),
    Foreign::List(&["1:1", "-1"]),
    Foreign::List(&["x:1", "1"]),
    Foreign::Text(b"1:1"),
    Foreign::Hash,
];

impl Foreign {
    async fn put(self, connection: &mut Connection, key: &str) {
        ask::<()>(connection, &format!("DEL {key}")).await.unwrap();
        let mut cmd = match self {
            Self::Text(_) => redis::cmd("SET"),
            Self::List(_) => redis::cmd("RPUSH"),
            Self::Hash => redis::cmd("HSET"),
        };
        cmd.arg(key);
        match self {
            Self::Text(text) => cmd.arg(text),
            Self::List(items) => cmd.arg(items),
            Self::Hash => cmd.arg(&["field", "1"]),
        };
        cmd.query_async::<()>(connection).await.unwrap();
    }
}

/// Returns value and expiry, byte by byte.
async fn dump(connection: &mut Connection, key: &str) -> (Value, i64) {
    let value = ask(connection, &format!("DUMP {key}")).await.unwrap();
    (value, ask(connection, &format!("PEXPIRETIME {key}")).await.unwrap())
}

async fn only_key(connection: &mut Connection) -> String {
    // The name of the lineage record ends with its tag; that of a state has the kind after it.
    let keys: Vec<String> = ask(connection, "KEYS *}?*").await.unwrap();
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys[0].clone()
}

fn names(error: &StoreError, key: &str) -> bool {
    matches!(error, StoreError::BadState(cause) if cause.contains(key)) && !error.is_outage()
}

#[tokio::test]
async fn a_foreign_value_is_reported_left_alone_and_never_a_fallback_case() {
    let server = Server::start(&[]).await;
    let mut connection = server.connection().await.unwrap();
    let limits = [
        (Limit::gcra(Rate::per_second(1).burst(5)).unwrap(), &TEXTS[..]),
        (Limit::gcra(Rate::per_minute(7).burst(5)).unwrap(), &TEXTS[..]),
        (Limit::fixed_window(5, DAY).unwrap(), &TEXTS[..]),
        (Limit::sliding_window(5, DAY).unwrap(), &TEXTS[..]),
        (Limit::sliding_log(5, DAY).unwrap(), &LISTS[..]),
    ];
    let mut tried = 0;
    for (limit, values) in limits {
        ask::<()>(&mut connection, "FLUSHALL").await.unwrap();
        let store = patient(&server).await;
        let limiter =
            Limiter::builder(store, &policy("state"), limit).on_outage(OnOutage::Open).build().unwrap();
        limiter.check("alice").await.unwrap();
        let key = only_key(&mut connection).await;
        for value in values {
            limiter.reset("alice").await.unwrap();
            let receipt = limiter.check("alice").await.unwrap().receipt.unwrap();
            value.put(&mut connection, &key).await;
            let before = dump(&mut connection, &key).await;
            let asked = limiter.check("alice").await.map(drop);
            let peeked = limiter.peek("alice").await.map(drop);
            let settled = limiter.settle(receipt, 0).await;
            for outcome in [asked, peeked, settled] {
                assert!(
                    outcome.as_ref().is_err_and(|error| names(error, &key)),
                    "{limit:?} {value:?}: {outcome:?}"
                );
            }
            assert_eq!(dump(&mut connection, &key).await, before, "{limit:?} {value:?}");
            tried += 1;
        }
        let line = limiter.store().line_stats();
        assert!(!line.open && line.opened == 0, "{line:?}");
        let errors = limiter.stats().answers.errors;
        assert_eq!(
            (errors, limiter.stats().answers.open),
            (values.len() as u64, 0),
            "the policy stays out of it"
        );
        assert!(is_own(limiter.check("bob").await.unwrap().guarantee), "other keys are not touched");
        limiter.reset("alice").await.unwrap();
        assert!(limiter.check("alice").await.unwrap().decision.allowed, "a reset heals it");
    }
    figure("foreign-state", "values_refused", tried);
}

#[tokio::test]
async fn a_foreign_value_prevents_the_other_charges_of_its_request() {
    let server = Server::start(&[]).await;
    let mut connection = server.connection().await.unwrap();
    let window = Limit::fixed_window(5, DAY).unwrap();
    let limiter = Limiter::builder(patient(&server).await, &policy("state"), window)
        .limit("log", Limit::sliding_log(5, DAY).unwrap())
        .limit("gcra", Rate::per_minute(7).burst(5))
        .on_outage(OnOutage::Open)
        .build()
        .unwrap();
    limiter.check("alice").await.unwrap();
    let keys: Vec<String> = ask(&mut connection, "KEYS *}?*").await.unwrap();
    assert_eq!(keys.len(), 3);
    for bad in &keys {
        let good: Vec<_> = keys.iter().filter(|key| *key != bad).collect();
        let saved: Vec<u8> = redis::cmd("DUMP").arg(bad).query_async(&mut connection).await.unwrap();
        Foreign::Hash.put(&mut connection, bad).await;
        let mut before = Vec::new();
        for key in &good {
            before.push(dump(&mut connection, key).await);
        }
        let error = limiter.check("alice").await.unwrap_err();
        assert!(names(&error, bad), "{error}");
        for (key, before) in good.iter().zip(before) {
            assert_eq!(dump(&mut connection, key).await, before, "{key}");
        }
        let mut restore = redis::cmd("RESTORE");
        restore.arg(bad).arg(0).arg(saved).arg("REPLACE");
        restore.query_async::<()>(&mut connection).await.unwrap();
    }
    let tally = limiter.stats().answers;
    assert_eq!((tally.exact + tally.bounded, tally.errors, tally.open), (1, 3, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_out_of_memory_charges_nothing_and_reports_it() {
    let server = Server::start(&["--maxmemory-policy", "noeviction"]).await;
    server.ask::<()>("DEBUG POPULATE 20000 filler 200").await;
    let window = Limit::fixed_window(1_000_000, DAY).unwrap();
    let mut connection = server.connection().await.unwrap();
    recovers("out-of-memory", async |_| {
        let store = RedisStore::builder(server.url()).connect().await.unwrap();
        let policy = policy("oom");
        let limiter = Limiter::builder(store, &policy, window)
            .limit("log", Limit::sliding_log(1_000, Duration::from_millis(1)).unwrap())
            .limit("gcra", Rate::per_minute(7).burst(1_000))
            .build()
            .unwrap();
        assert!(is_own(limiter.check("alice").await.unwrap().guarantee));
        let keys: Vec<String> = ask(&mut connection, &format!("KEYS tk:*{policy}*")).await.unwrap();
        let mut before = Vec::new();
        for key in &keys {
            before.push(dump(&mut connection, key).await);
        }
        ask::<()>(&mut connection, "CONFIG SET maxmemory 2mb").await.unwrap();
        for _ in 0..50 {
            let answer = limiter.check("alice").await.unwrap();
            let why = answer.outage.as_ref().map(ToString::to_string).unwrap_or_default();
            assert!(answer.guarantee == Guarantee::Closed && why.contains("memory"), "{answer:?}");
            sleep(Duration::from_millis(5)).await;
        }
        for (key, before) in keys.iter().zip(before) {
            assert_eq!(dump(&mut connection, key).await, before, "{key} is as it was");
        }
        assert!(limiter.store().line_stats().opened > 0);
        ask::<()>(&mut connection, "CONFIG SET maxmemory 0").await.unwrap();
        let relieved = now();
        until("good answers", PATIENT, async || is_own(limiter.check("alice").await.unwrap().guarantee))
            .await
            .since(relieved)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_absent_at_boot_is_found_when_it_comes() {
    recovers("absent-at-boot", async |_| {
        let mut server = Server::absent(&[]);
        let store = RedisStore::builder(server.url()).connect().await.expect("a store that waits");
        let limit = Limit::fixed_window(1_000_000, DAY).unwrap();
        let limiter = Arc::new(Limiter::new(store, &policy("boot"), limit).unwrap());
        let load = Load::start(&limiter, &["alice"], 2, PAUSE);
        sleep(Duration::from_millis(300)).await;
        let starts = now();
        server.spawn();
        let there = server.takes_writes("observer", PATIENT).await;
        sleep(RECOVERY_MAX * 2).await;
        let heard = load.finish().await;
        labelled(&heard);
        assert!(limiter.stats().answers.closed > 0 && limiter.store().line_stats().failed == 0);
        assert!(!limiter.store().warnings().is_empty(), "it is checked when it comes");
        exact_after(&heard, starts).expect("it is found").since(there)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misconfigured_engine_is_an_error_until_it_is_fixed() {
    recovers("misconfigured-at-boot", async |_| {
        let mut server = Server::absent(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
        let store = RedisStore::builder(server.url()).connect().await.unwrap();
        let limit = Limit::fixed_window(1_000_000, DAY).unwrap();
        let limiter = Limiter::builder(store, &policy("boot"), limit).on_outage(OnOutage::Open).build().unwrap();
        assert_eq!(limiter.check("alice").await.unwrap().guarantee, Guarantee::Open);
        server.spawn();
        let there = server.takes_writes("observer", PATIENT).await;
        let refused = until("an error", PATIENT, async || {
            matches!(limiter.check("alice").await, Err(StoreError::Misconfigured(why)) if why.contains("noeviction"))
        });
        let refused = refused.await;
        assert!(limiter.stats().answers.errors > 0 && !limiter.store().line_stats().open);
        let twice = RedisStore::builder(server.url()).connect().await;
        assert!(matches!(twice, Err(StoreError::Misconfigured(_))), "{twice:?}");
        server.ask::<()>("CONFIG SET maxmemory-policy noeviction").await;
        let mended = now();
        let good = until("good answers", PATIENT, async || limiter.check("alice").await.is_ok()).await;
        figure("misconfigured-at-boot", "good_after_mending_ms", good.since(mended).as_millis());
        assert!(good.since(mended) < Duration::from_millis(1_500), "checked anew every second");
        refused.since(there)
    })
    .await;
}

/// Starts a Valkey server whose clock is off by the number in a file. The Debian build of Redis does not
/// start this way.
async fn with_wrong_clock(file: &Path) -> Server {
    let env = vec![
        ("LD_PRELOAD", faketime().display().to_string()),
        ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ];
    Server::start_program(&common::env("THROTTLEKIT_VALKEY_SERVER"), &[], env).await
}

fn faketime() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").unwrap().flatten().map(|entry| entry.path());
    let found = folders.map(|folder| folder.join("faketime/libfaketime.so.1")).find(|path| path.is_file());
    found.expect("faketime is missing: `cargo xtask services up` installs it")
}

/// The readings of the clock in turn, in seconds from the true time.
const STEPS: [i64; 6] = [0, -30, 30, 0, -30, 0];

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_steps_forward_and_back_gives_no_fresh_budget() {
    const L: u64 = 50;
    const BURST: u64 = 20;
    let folder = std::env::temp_dir().join(format!("throttlekit-clock-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("offset");
    let set = |offset: i64| fs::write(&file, format!("{offset:+}")).unwrap();
    set(0);
    let server = with_wrong_clock(&file).await;
    let grace = Duration::from_secs(60);
    let store = RedisStore::builder(server.url()).deadline(PATIENT).grace(grace).connect().await.unwrap();
    let window = Limit::fixed_window(L, Duration::from_secs(20)).unwrap();
    let gcra = Limit::gcra(Rate::per_minute(60).burst(BURST)).unwrap();
    let window = Limiter::new(store.clone(), &policy("clock"), window).unwrap();
    let gcra = Limiter::new(store, &policy("clock"), gcra).unwrap();

    let mut windows: BTreeMap<Timestamp, u64> = BTreeMap::new();
    let (mut bucket, mut first, mut last) = (0, None, Timestamp::default());
    for (phase, offset) in STEPS.into_iter().enumerate() {
        set(offset);
        let goes_back = phase > 0 && offset < *STEPS[..phase].iter().max().unwrap();
        let (mut of_window, mut of_bucket) = (0, 0);
        for _ in 0..2 * L {
            let answer = window.check("alice").await.unwrap();
            assert!(is_own(answer.guarantee));
            if answer.decision.allowed {
                *windows.entry(answer.decision.reset_at).or_default() += 1;
                of_window += 1;
            }
            let answer = gcra.check("alice").await.unwrap();
            of_bucket += u64::from(answer.decision.allowed);
            (first, last) = (first.or(Some(answer.now)), last.max(answer.now));
        }
        bucket += of_bucket;
        figure(
            "clock-step",
            &format!("admitted_at_{offset:+}s"),
            format_args!("{of_window} window, {of_bucket} gcra"),
        );
        if goes_back {
            assert_eq!((of_window, of_bucket), (0, 0), "stepping back to {offset} admits nothing");
        }
    }
    assert!(windows.values().all(|&passed| passed <= L), "at most {L} in each window: {windows:?}");
    let span = last.since(first.unwrap());
    assert!(bucket <= BURST + span.as_secs() + 1, "{bucket} in {span:?}");
    assert!(span > Duration::from_secs(30), "the clock did step");
    fs::remove_dir_all(folder).unwrap();
}

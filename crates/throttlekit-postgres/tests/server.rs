//! The store and its server: round trips, poolers, deadlines, outages, migrations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::common::{address, ask, builder, clear, client, form, fresh, url};
use throttlekit::rate::Need;
use throttlekit::store::{
    Charge, Charges, LeaseRequest, LeaseReturn, Settlement, Store, StoreClientOptions, StoreError,
};
use throttlekit::store::{Return, ReturnId, Term, Want};
use throttlekit::{Guarantee, Limit, Rate, SharedLimiter};
use throttlekit_postgres::{Durability, PostgresStore, SchemaWarning};

fn per_hour(units: u64) -> throttlekit::rate::shared::ScriptEncoding {
    form(Limit::gcra(Rate::per_hour(units)).unwrap())
}

/// Leases twice in one call and returns twice in one.
async fn lend_and_take_back(store: &PostgresStore, key: &str) {
    let form = form(Limit::fixed_window(10, Duration::from_secs(36_000_000)).unwrap());
    let lease =
        LeaseRequest { key, form: &form, term: Term::Window, want: Want { wants: 3, least: 1, share: 1 } };
    let loan = store.lease(&[lease, lease]).await[1].as_ref().unwrap().loan;
    let back = Return { epoch: loan.epoch, units: loan.granted };
    let given = LeaseReturn { key, form: &form, id: ReturnId(1), back };
    store.give_back(&[given, LeaseReturn { id: ReturnId(2), ..given }]).await.unwrap();
}

/// Counted by the server: as many statements as decisions, whether of one charge or of many.
#[tokio::test]
async fn a_decision_is_one_statement() {
    let schema = "tk_test_trips";
    let store = fresh(schema).await;
    let beside = client().await;
    let form = per_hour(10);
    let charges = ["a", "b", "c"].map(|key| Charge { key, form: &form, cost: 1 });
    let all = Charges { need: Need::All, charges: &charges };
    beside.batch_execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await.unwrap();
    let calls = async || -> i64 {
        let text = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
                    WHERE toplevel AND query LIKE '%' || $1 || '%' AND query NOT LIKE '%pg_stat_statements%'";
        beside.query_one(text, &[&schema]).await.unwrap().get(0)
    };
    // A new connection reads the history of its server once.
    ask(&store, "warm", &form, 1).await.unwrap();
    let before = calls().await;
    for _ in 0..20 {
        ask(&store, "k", &form, 1).await.unwrap();
        store.admit(&[all, all]).await.unwrap();
        store.peek(&charges).await.unwrap();
    }
    assert_eq!(calls().await - before, 60);
    let mark = ask(&store, "s", &form, 2).await.unwrap().marks[0];
    store.settle(&[Settlement { key: "s", form: &form, mark, charged: 2, actual: 1 }]).await.unwrap();
    store.reset(&["s"]).await.unwrap();
    assert_eq!(calls().await - before, 63);
    lend_and_take_back(&store, "l").await;
    assert_eq!(calls().await - before, 65);
}

/// Requests that find all connections busy are batched: fewer statements than requests, each response as if
/// alone. One that meets a foreign row does not affect the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_requests_are_batched() {
    let schema = "tk_test_together";
    clear(schema).await;
    let store = Arc::new(builder(schema).connections(1).connect().await.unwrap());
    let beside = client().await;
    beside.batch_execute("INSERT INTO tk_test_together.state VALUES ('bad', -1, 0, NULL, 0)").await.unwrap();
    let mut holder = client().await;
    let held = holder.transaction().await.unwrap();
    held.batch_execute("LOCK TABLE tk_test_together.state IN EXCLUSIVE MODE").await.unwrap();
    let form = per_hour(30);
    let tasks: Vec<_> = (0..100)
        .map(|i| {
            let store = store.clone();
            let key = if i == 50 { "bad" } else { "k" };
            tokio::spawn(async move { (key, ask(&store, key, &form, 1).await) })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    held.rollback().await.unwrap();
    let mut admitted = 0;
    for task in tasks {
        match task.await.unwrap() {
            ("bad", answer) => assert!(matches!(answer, Err(StoreError::BadState(_)))),
            (_, answer) => admitted += u32::from(answer.unwrap().verdict.decision.allowed),
        }
    }
    assert_eq!(admitted, 30);
    let text = "SELECT sum(calls)::bigint FROM pg_stat_statements
                WHERE toplevel AND query LIKE '%tk_test_together%.admit(%'";
    let flights: Option<i64> = beside.query_one(text, &[]).await.unwrap().get(0);
    assert!((1..100).contains(&flights.unwrap_or(0)), "{flights:?}");
}

/// A dropped request frees its worker for the next ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_request_frees_its_connection() {
    let schema = "tk_test_given_up";
    clear(schema).await;
    // The server abandons the first request well before this.
    let deadline = Duration::from_secs(5);
    let store = Arc::new(builder(schema).connections(1).deadline(deadline).connect().await.unwrap());
    let form = per_hour(30);
    ask(&store, "held", &form, 1).await.unwrap();
    let mut holder = client().await;
    let held = holder.transaction().await.unwrap();
    held.query("SELECT * FROM tk_test_given_up.state FOR UPDATE", &[]).await.unwrap();
    let spawn = |key: &'static str| {
        let store = store.clone();
        tokio::spawn(async move { ask(&store, key, &form, 1).await })
    };
    let first = spawn("held");
    tokio::time::sleep(Duration::from_millis(100)).await;
    let second = spawn("free");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!second.is_finished(), "the only lane is taken");
    first.abort();
    assert!(second.await.unwrap().unwrap().verdict.decision.allowed);
    held.rollback().await.unwrap();
}

/// Behind a pooler in transaction mode, with more clients than it has sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_pooler_is_supported() {
    let schema = "tk_test_pooler";
    clear(schema).await;
    builder(schema).migrate().await.unwrap();
    let pooler = PostgresStore::builder(address("THROTTLEKIT_PGBOUNCER"));
    let pooler = pooler.schema(schema).deadline(Duration::from_secs(20)).connections(16).pooled(true);
    for durability in [Durability::Flushed, Durability::Deferred] {
        let store = Arc::new(pooler.clone().durability(durability).connect().await.unwrap());
        let form = per_hour(40);
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(
                    async move { ask(&store, "k", &form, 1).await.unwrap().verdict.decision.allowed },
                )
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += u32::from(task.await.unwrap());
        }
        assert_eq!(admitted, 40);
        store.sweep(10).await.unwrap();
        store.reset(&["k"]).await.unwrap();
    }
}

/// A pooler may switch to another server between two calls. Each response shows the history it was decided
/// in, and the first one that shows another is not labeled exact.
#[tokio::test]
async fn a_pooler_that_switches_history_bounds_the_first_response() {
    let schema = "tk_test_pooler_lineage";
    clear(schema).await;
    builder(schema).migrate().await.unwrap();
    let store = PostgresStore::builder(address("THROTTLEKIT_PGBOUNCER")).schema(schema).pooled(true);
    let store = store.deadline(Duration::from_secs(20)).connect().await.unwrap();
    let limiter = SharedLimiter::new(store, "api", Rate::per_hour(100)).unwrap();
    for _ in 0..10 {
        assert_eq!(limiter.check("k").await.unwrap().guarantee, Guarantee::Exact);
    }
    let lost = "UPDATE tk_test_pooler_lineage.lineage SET epoch = epoch + 1,
                since = (date_part('epoch', clock_timestamp()) * 1000000)::bigint";
    client().await.batch_execute(lost).await.unwrap();
    for _ in 0..10 {
        assert_eq!(limiter.check("k").await.unwrap().guarantee, Guarantee::Bounded(u64::MAX));
    }
}

/// Statements are planned when a session first runs them. On an empty table the plan must not be a sequential
/// scan, or every decision would be one as the table fills.
#[tokio::test]
async fn no_decision_reads_the_whole_table() {
    let schema = "tk_test_plans";
    clear(schema).await;
    builder(schema).migrate().await.unwrap();
    let beside = client().await;
    beside.batch_execute("VACUUM ANALYZE tk_test_plans.state, tk_test_plans.returned").await.unwrap();
    let text = "SELECT sum(seq_scan)::bigint FROM pg_stat_all_tables
                WHERE schemaname = $1 AND relname IN ('state', 'returned')";
    let scans = async || -> i64 { beside.query_one(text, &[&schema]).await.unwrap().get(0) };
    let before = scans().await;
    for way in [builder(schema), builder(schema).pooled(true)] {
        let store = way.connections(1).connect().await.unwrap();
        let form = per_hour(10);
        for i in 0..40 {
            let keys = [format!("a{i}"), format!("b{i}")];
            let charges = [&keys[0], &keys[1]].map(|key| Charge { key, form: &form, cost: 1 });
            let mark = ask(&store, &format!("c{i}"), &form, 1).await.unwrap().marks[0];
            store.admit(&[Charges { need: Need::All, charges: &charges }]).await.unwrap();
            store.peek(&charges).await.unwrap();
            let settlement = Settlement { key: &keys[0], form: &form, mark, charged: 0, actual: 1 };
            store.settle(&[settlement]).await.unwrap();
            store.reset(&[&keys[0]]).await.unwrap();
            lend_and_take_back(&store, &keys[1].replace('b', "w")).await;
        }
        drop(store);
        // The server updates its statistics when a session ends.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(scans().await, before);
}

/// Another session holds a row for longer than the deadline. The caller gets an error in time, and afterwards
/// neither the pool nor the server is full of abandoned calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_row_costs_callers_their_deadline_and_nothing_more() {
    let schema = "tk_test_deadline";
    clear(schema).await;
    builder(schema).migrate().await.unwrap();
    let line = StoreClientOptions {
        deadline: Duration::from_millis(300),
        opens_after: 1_000,
        ..StoreClientOptions::default()
    };
    let pooler = PostgresStore::builder(address("THROTTLEKIT_PGBOUNCER")).pooled(true);
    // Our sessions time out before the deadline. Behind a pooler only each wait for a lock is bounded, of
    // which a queue for one row has two.
    for (way, deadlines) in [(PostgresStore::builder(url()), 1), (pooler, 2)] {
        let store = Arc::new(way.schema(schema).line(line).connections(2).connect().await.unwrap());
        let form = per_hour(10);
        ask(&store, "held", &form, 1).await.unwrap();
        let mut holder = client().await;
        let held = holder.transaction().await.unwrap();
        held.query("SELECT * FROM tk_test_deadline.state WHERE key = 'held' FOR UPDATE", &[]).await.unwrap();
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { ask(&store, "held", &form, 1).await })
            })
            .collect();
        for task in waiting {
            let error = task.await.unwrap().unwrap_err();
            assert_eq!(error, StoreError::Deadline(line.deadline));
        }
        tokio::time::sleep(deadlines * line.deadline).await;
        assert!(ask(&store, "free", &form, 1).await.unwrap().verdict.decision.allowed, "others go on");
        let text = "SELECT count(*) FROM pg_stat_activity
                    WHERE query LIKE '%tk_test_deadline%' AND state = 'active' AND pid <> pg_backend_pid()";
        let busy: i64 = client().await.query_one(text, &[]).await.unwrap().get(0);
        assert_eq!(busy, 0, "the server has given up too");
        held.rollback().await.unwrap();
        let left = ask(&store, "held", &form, 1).await.unwrap().verdict.decision;
        assert_eq!(left.remaining, 8, "those who were told nothing were not charged");
        store.reset(&["held", "free"]).await.unwrap();
    }
}

/// Another session holds one row for long, under load, so that requests for it are batched with requests for
/// other keys. Only callers of that key are affected, and the server is not considered unavailable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_row_is_no_outage_for_callers_of_other_keys() {
    let schema = "tk_test_held";
    clear(schema).await;
    // Four times the usual deadline: the test is about waits for the row, not about a busy machine.
    let deadline = Duration::from_secs(1);
    let store = PostgresStore::builder(url()).schema(schema).migrate_on_connect(true).deadline(deadline);
    let store = Arc::new(store.connect().await.unwrap());
    let form = per_hour(1_000_000);
    ask(&store, "held", &form, 1).await.unwrap();
    let mut holder = client().await;
    let held = holder.transaction().await.unwrap();
    held.query("SELECT * FROM tk_test_held.state WHERE key = 'held' FOR UPDATE", &[]).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let spawn = |key: String| {
        let (store, stop) = (store.clone(), stop.clone());
        tokio::spawn(async move {
            let mut answers = Vec::new();
            while !stop.load(Relaxed) {
                answers.push(ask(&store, &key, &form, 1).await.map(drop));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answers
        })
    };
    let free: Vec<_> = (0..200).map(|i| spawn(format!("free{i}"))).collect();
    let stuck = spawn("held".into());
    tokio::time::sleep(deadline * 6).await;
    stop.store(true, Relaxed);
    let (mut good, mut bad) = (0, Vec::new());
    for task in free {
        for answer in task.await.unwrap() {
            match answer {
                Ok(()) => good += 1,
                Err(error) => bad.push(error),
            }
        }
    }
    let stuck = stuck.await.unwrap();
    println!(
        "held row: {good} good, {} bad, {} on the held key: {:?}",
        bad.len(),
        stuck.len(),
        store.line_stats()
    );
    // A machine that is busy elsewhere may cost one of hundreds its deadline; a held row must not.
    assert!(bad.len() * 100 <= good, "{bad:?}");
    assert_eq!(store.line_stats().opened, 0);
    assert!(stuck.iter().all(|answer| *answer == Err(StoreError::Deadline(deadline))), "{stuck:?}");
    assert!(stuck.len() > 2, "{stuck:?}");

    // Without other successful calls, they alone do not open the breaker either.
    let asks = (0..20).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { ask(&store, "held", &form, 1).await.map(drop) })
    });
    for task in asks.collect::<Vec<_>>() {
        assert_eq!(task.await.unwrap(), Err(StoreError::Deadline(deadline)));
    }
    println!("held row, callers of it alone: {:?}", store.line_stats());
    assert_eq!(store.line_stats().opened, 0);
    held.rollback().await.unwrap();
    let left = ask(&store, "held", &form, 1).await.unwrap().verdict.decision;
    assert!(left.allowed);
}

/// Sessions that the server terminates are an outage for the calls on them, and the store recovers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_sessions_are_replaced() {
    let schema = "tk_test_killed";
    let store = fresh(schema).await;
    let form = per_hour(1_000);
    ask(&store, "k", &form, 1).await.unwrap();
    let text = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE query LIKE '%tk_test_killed%' AND pid <> pg_backend_pid()";
    client().await.query_one(text, &[]).await.unwrap();
    for _ in 0..200 {
        match ask(&store, "k", &form, 1).await {
            Ok(_) => return,
            Err(error) => assert!(error.is_outage(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no way back");
}

/// An unavailable server does not keep a service from starting; a wrong address does.
#[tokio::test]
async fn a_server_may_be_unavailable_at_the_start() {
    let store = PostgresStore::builder("postgres://nobody@127.0.0.1:9/none").connect().await.unwrap();
    assert!(store.line_stats().open);
    let error = ask(&store, "k", &per_hour(1), 1).await.unwrap_err();
    assert!(error.is_outage(), "{error}");
    for wrong in ["postgres://[", "nonsense", "host=a port=x"] {
        let error = PostgresStore::builder(wrong).connect().await.unwrap_err();
        assert!(matches!(error, StoreError::Misconfigured(_)), "{wrong}: {error}");
    }
    for wrong in ["", "Has Space", "x\"; DROP", "9nine", "pg_mine", &"x".repeat(64)] {
        let error = PostgresStore::builder(url()).schema(wrong).connect().await.unwrap_err();
        assert!(matches!(error, StoreError::Misconfigured(_)), "{wrong}: {error}");
    }
}

/// A proxy simulates a server that is unavailable at the start and comes later: migration and check are then
/// done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_late_is_set_up_then() {
    let schema = "tk_test_comes_late";
    clear(schema).await;
    let server: tokio_postgres::Config = url().parse().unwrap();
    let (tokio_postgres::config::Host::Tcp(host), port) = (&server.get_hosts()[0], server.get_ports()[0])
    else {
        panic!("an address over TCP")
    };
    let target = format!("{host}:{port}");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let late = url().replace(&target, &address.to_string());
    let store = PostgresStore::builder(late).schema(schema).migrate_on_connect(true);
    let store = store.deadline(Duration::from_secs(5)).connect().await.unwrap();
    assert!(store.line_stats().open && store.report().is_none());

    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = tokio::net::TcpStream::connect(&target).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        }
    });
    for _ in 0..500 {
        if ask(&store, "k", &per_hour(5), 1).await.is_ok() {
            return assert!(store.report().is_some());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the store did not notice");
}

/// Eight processes start at once on an empty database; then again on a full one; then after a newer version
/// was there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_migrations_succeed() {
    let schema = "tk_test_migrate";
    clear(schema).await;
    for _ in 0..2 {
        let tasks: Vec<_> =
            (0..8).map(|_| tokio::spawn(async move { builder(schema).migrate().await })).collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
    }
    client().await.batch_execute("INSERT INTO tk_test_migrate.version VALUES (99)").await.unwrap();
    for error in [builder(schema).migrate().await, builder(schema).connect().await.map(drop)] {
        let error = error.unwrap_err();
        assert!(
            matches!(&error, StoreError::Misconfigured(why) if why.contains("upgrade the program")),
            "{error}"
        );
    }
    clear(schema).await;
    let error = builder(schema).migrate_on_connect(false).connect().await.unwrap_err();
    assert!(matches!(&error, StoreError::Misconfigured(why) if why.contains("migrate")), "{error}");
}

/// The minimal grants of docs/operate/postgres.md are enough, and without them the error states what to do.
#[tokio::test]
async fn a_role_with_the_documented_grants_can_decide() {
    let schema = "tk_test_grants";
    drop(fresh(schema).await);
    let owner = client().await;
    let make =
        "DO $$ BEGIN IF to_regrole('tk_test_app') IS NULL THEN CREATE ROLE tk_test_app LOGIN; END IF; END $$";
    owner.batch_execute(make).await.unwrap();
    let mut theirs: tokio_postgres::Config = url().parse().unwrap();
    theirs.user("tk_test_app");
    let host = match &theirs.get_hosts()[0] {
        tokio_postgres::config::Host::Tcp(host) => host.clone(),
        tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
    };
    let (port, name) = (theirs.get_ports()[0], theirs.get_dbname().unwrap_or("postgres"));
    let address = format!("host={host} port={port} user=tk_test_app dbname={name}");
    let store = PostgresStore::builder(address).schema(schema).deadline(Duration::from_secs(5));
    let error = store.clone().connect().await.unwrap_err();
    assert!(matches!(&error, StoreError::Misconfigured(why) if why.contains("grant")), "{error}");
    let grants = "GRANT USAGE ON SCHEMA tk_test_grants TO tk_test_app;
                  GRANT SELECT ON tk_test_grants.version TO tk_test_app;
                  GRANT SELECT, INSERT, UPDATE, DELETE
                      ON tk_test_grants.state, tk_test_grants.returned, tk_test_grants.debits, tk_test_grants.pool,
                         tk_test_grants.slot_keys, tk_test_grants.slots, tk_test_grants.roll, tk_test_grants.probe,
                         tk_test_grants.lineage
                      TO tk_test_app";
    owner.batch_execute(grants).await.unwrap();
    let store = store.connect().await.unwrap();
    assert!(ask(&store, "k", &per_hour(5), 1).await.unwrap().verdict.decision.allowed);
    lend_and_take_back(&store, "l").await;
    store.sweep(1).await.unwrap();
    store.reset(&["k"]).await.unwrap();
    clear(schema).await;
    owner.batch_execute("DROP ROLE tk_test_app").await.unwrap();
}

/// State that a crash may lose is reported, and its responses are not labeled exact.
#[tokio::test]
async fn durability_is_reported() {
    let schema = "tk_test_durability";
    let store = fresh(schema).await;
    let report = store.report().unwrap();
    assert!(report.server_version >= 130_000);
    assert!(report.warnings.iter().all(|warning| *warning == SchemaWarning::NoFsync), "{report:?}");
    let limiter = SharedLimiter::new(store, "api", Rate::per_minute(10)).unwrap();
    let answer = limiter.check("alice").await.unwrap();
    assert!(
        answer.decision.remaining == 9
            && (answer.guarantee == Guarantee::Exact) == report.warnings.is_empty()
    );

    let deferred = builder(schema).durability(Durability::Deferred).connect().await.unwrap();
    assert!(deferred.report().unwrap().warnings.contains(&SchemaWarning::CommitNotAwaited));
    assert_ne!(deferred.guarantee(), Guarantee::Exact);
    clear(schema).await;
    drop(builder(schema).durability(Durability::Unlogged).connect().await.unwrap());
    let unknowing = builder(schema).connect().await.unwrap();
    assert!(unknowing.check().await.unwrap().warnings.contains(&SchemaWarning::Unlogged));
    assert_ne!(unknowing.guarantee(), Guarantee::Exact);
}

//! A PostgreSQL server whose commits hang: the store takes at most its configured connections, other
//! applications go on, and decisions recover soon after commits do.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use throttlekit::{Limit, SharedLimiter};
use throttlekit_conformance::bugs;
use throttlekit_conformance::bugs::Found;
use throttlekit_postgres::{PostgresStore, SeededBug};

use crate::runner::{Options, Run};
use throttlekit_verify::postgres::{Exhaustion, Load, Second, Server, hang_commits};

const SECONDS: u64 = 60;
const SECONDS_SMALL: u64 = 5;
/// A seeded bug shows itself within this time.
const SECONDS_SEEDED: u64 = 5;
const RATE: u64 = 100;
const CONNECTIONS: u64 = 4;
/// One more connection than those of calls, for probes.
const CONNECTIONS_MAX: u64 = CONNECTIONS + 1;
/// While commits hang and the circuit breaker is open, only a probe's may.
const HUNG_MAX: u64 = 1;
const RECOVERY_MAX: Duration = Duration::from_secs(1);
/// A small run reports the recovery time, and checks it against the needs of a busy machine.
const RECOVERY_MAX_SMALL: Duration = Duration::from_secs(5);

bugs! {
    /// Bugs of the store. Any of the checks may find one.
    pub(crate) enum Bug {
        NoCancel: "A call that is given up is not cancelled.",
        AbandonedNotCounted: "A connection that is given up does not count.",
        ProbeReads: "The probe reads only.",
    }
}

impl Bug {
    fn of_store(self) -> SeededBug {
        match self {
            Self::NoCancel => SeededBug::NoCancel,
            Self::AbandonedNotCounted => SeededBug::AbandonedNotCounted,
            Self::ProbeReads => SeededBug::ProbeReads,
        }
    }
}

pub(crate) fn run(options: &Options<'_>, run: &mut Run) -> Result<Value> {
    let small = options.has("--small");
    let seconds = options.number("--cases", if small { SECONDS_SMALL } else { SECONDS })?;
    let recovery_max = if small { RECOVERY_MAX_SMALL } else { RECOVERY_MAX };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let seen = runtime.block_on(verify(seconds))?;
    run.violated(problems(&seen, recovery_max));
    run.seeded(runtime.block_on(find_seeded())?);
    Ok(figure(&seen, seconds))
}

async fn verify(seconds: u64) -> Result<Exhaustion> {
    println!("{:<8}{:>13}{:>8}  circuit breaker", "second", "connections", "hung");
    play(None, seconds, |second, Second { connections, hung, open }| {
        println!("{second:<8}{connections:>13}{hung:>8}  {}", if open { "open" } else { "closed" });
    })
    .await
}

async fn find_seeded() -> Result<Found> {
    let mut seeded = Found::default();
    println!("{:<24}found by", "seeded bug");
    for bug in Bug::ALL {
        let seen = play(Some(bug.of_store()), SECONDS_SEEDED, |_, _| {}).await?;
        let found = problems(&seen, RECOVERY_MAX_SMALL);
        println!("{:<24}{}", bug.name(), found.first().map_or("NOT FOUND", String::as_str));
        seeded.note(bug.name(), !found.is_empty());
    }
    Ok(seeded)
}

/// Lets commits hang for some seconds on a dedicated server.
async fn play(bug: Option<SeededBug>, seconds: u64, progress: impl FnMut(u64, Second)) -> Result<Exhaustion> {
    let server = Server::create();
    server.start();
    let store =
        PostgresStore::builder(server.url()).connections(CONNECTIONS as usize).migrate_on_connect(true);
    let store = store.seeded(bug).connect().await?;
    let limit = Limit::fixed_window(1_000_000, Duration::from_secs(3_600))?;
    let limiter = Arc::new(SharedLimiter::new(store, "p", limit)?);
    let load = Load { seconds, rate: RATE };
    Ok(hang_commits(Arc::new(server), limiter, PostgresStore::line_stats, load, progress).await)
}

fn problems(seen: &Exhaustion, recovery_max: Duration) -> Vec<String> {
    let (most, hung, closed) = (seen.connections_max(), seen.hung_late(), seen.closed_seconds());
    let checks = [
        (most > CONNECTIONS_MAX, format!("{most} connections, not {CONNECTIONS_MAX} at the most")),
        (hung > HUNG_MAX, format!("{hung} calls hang on the server that nobody waits for")),
        (closed > 0, format!("the circuit breaker was closed in {closed} seconds while commits hung")),
        (
            seen.others.1 < seen.others.0,
            format!("others connected {} times of {}", seen.others.1, seen.others.0),
        ),
        (seen.recovery > recovery_max, format!("recovery took {:?}", seen.recovery)),
    ];
    checks.into_iter().filter(|(wrong, _)| *wrong).map(|(_, what)| what).collect()
}

fn figure(seen: &Exhaustion, seconds: u64) -> Value {
    json!({
        "hung_seconds": seconds, "rate": RATE, "requests": seen.requests,
        "connections_configured": CONNECTIONS, "connections_max": seen.connections_max(),
        "hung_late_max": seen.hung_late(), "breaker_opened": seen.opened, "breaker_closed_seconds": seen.closed_seconds(),
        "others_tried": seen.others.0, "others_connected": seen.others.1,
        "recovery_ms": seen.recovery.as_millis() as u64,
    })
}

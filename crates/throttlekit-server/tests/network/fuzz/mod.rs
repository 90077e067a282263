//! Fuzzing over sockets: mutated byte streams for every listener of a server in another process.
//!
//! An input is one request, or one sequence of frames. A connection carries up to six of them, and all but the last leave
//! it usable, so that no input hides the next. Clients that close or reset wait 1 ms first; a server that is slower may
//! not read their last bytes. `cargo xtask verify wire-fuzz` sends a million inputs. It fails on
//!
//! * a crash: the server process ends, or a panic appears on its standard error;
//! * a hang: a connection whose client waits is neither answered nor closed in time, or an honest check fails;
//! * a leak: after the last input a connection, a turn, a body, a stream or a file descriptor is still open.

mod fast_path;
mod frames;
mod generator;
mod replies;
mod requests;
mod run;
pub(crate) mod seeded;
mod session;
mod watch;

use std::time::Duration;

use throttlekit_server::internals::listen::Limits;

use crate::measure::number;
use run::{Plan, Report};
use seeded::Bug;

/// The limits of the fuzzed server. Its deadlines are short, since clients of truncated inputs wait for them.
pub(crate) fn limits() -> Limits {
    let short = Duration::from_millis(400);
    Limits {
        handshake_max: short,
        header_read_max: short,
        body_for: short,
        request_max: short * 2,
        stall_max: short,
        idle_max: short * 2,
        keepalive_every: short,
        keepalive_max: short,
        grace: short,
        ..Limits::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_bytes_neither_crash_nor_hang_the_server() {
    let report = run::run(Plan { inputs: 3_000, ..Plan::default() }, None).await;
    report.print();
    assert_eq!(report.faults(), Vec::<&str>::new());
    assert!(report.is_broad(), "a kind of input that the server never served, or never closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: cargo xtask verify wire-fuzz"]
async fn full() {
    let plan = Plan {
        inputs: number("WIRE_FUZZ_INPUTS", 1_000_000),
        seed: number("WIRE_FUZZ_SEED", 1),
        from: number("WIRE_FUZZ_FROM", 0),
        ..Plan::default()
    };
    let seed = plan.seed;
    let report = run::run(plan, None).await;
    report.print();
    println!("figure: {}", report.figure(seed));
    assert_eq!(report.faults(), Vec::<&str>::new());
}

/// Runs until the bug is detected, with short deadlines.
async fn with(bug: Bug) -> Report {
    let deadline = Duration::from_secs(2);
    let plan = Plan {
        inputs: 3_000,
        patience: deadline,
        honest_within: deadline,
        released_within: deadline,
        ..Plan::default()
    };
    run::run(plan, Some(bug)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panicking_handler_is_detected() {
    let report = with(Bug::Panic).await;
    assert!(report.crashes.iter().any(|crash| crash.contains("panicked at")), "{:?}", report.faults());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_exit_is_detected() {
    let report = with(Bug::Abort).await;
    assert!(report.crashes.iter().any(|crash| crash.contains("ended")), "{:?}", report.faults());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_worker_threads_are_detected() {
    let report = with(Bug::Block).await;
    assert!(!report.hangs.is_empty(), "{:?}", report.faults());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_without_an_end_is_detected() {
    let report = with(Bug::Endless).await;
    assert!(report.hangs.iter().any(|hang| hang.contains("connection of session")), "{:?}", report.faults());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaked_connection_is_detected() {
    let report = with(Bug::Leak).await;
    assert!(report.leaks.iter().any(|leak| leak.contains("connections_open")), "{:?}", report.faults());
}

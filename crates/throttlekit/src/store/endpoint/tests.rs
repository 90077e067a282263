//! The endpoint on a paused clock.

use std::future::pending;
use std::sync::atomic::AtomicBool;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::*;

fn line(answers: Arc<AtomicBool>, options: StoreClientOptions) -> StoreClient {
    let probe = move || -> Pin<Box<dyn Future<Output = _> + Send>> {
        let up = answers.load(Relaxed);
        Box::pin(async move { if up { Ok(()) } else { Err(StoreError::unavailable("down")) } })
    };
    StoreClient::on(here(), options, Box::new(probe))
}

/// The test's own runtime, whose clock is paused.
fn here() -> Background {
    Background::default().on(Handle::current())
}

async fn down() -> Result<(), StoreError> {
    Err(StoreError::unavailable("down"))
}

#[tokio::test(start_paused = true)]
async fn outages_open_it_and_a_probe_closes_it() {
    let up = Arc::new(AtomicBool::new(false));
    let line = line(up.clone(), StoreClientOptions::default());
    for _ in 0..5 {
        assert!(line.call(down()).await.is_err());
    }
    let never = async { panic!("refused at once, so never polled") };
    let refused = line.call::<()>(never).await.unwrap_err();
    assert!(refused.is_outage() && refused.to_string().contains("down"), "it says why: {refused}");
    sleep(Duration::from_secs(1)).await;
    assert!(line.stats().open && line.stats().probes >= 5);

    up.store(true, Relaxed);
    sleep(Duration::from_millis(151)).await;
    assert_eq!(line.call(async { Ok(7) }).await, Ok(7));
    assert_eq!((line.stats().opened, line.stats().refused_open), (1, 1));
}

/// A probe without a response, as over a half-open connection, does not delay the one after it.
#[tokio::test(start_paused = true)]
async fn a_hung_probe_does_not_delay_recovery() {
    let probes = AtomicU64::new(0);
    let probe = move || -> Pin<Box<dyn Future<Output = _> + Send>> {
        let first = probes.fetch_add(1, Relaxed) == 0;
        Box::pin(async move { if first { pending().await } else { Ok(()) } })
    };
    let line = StoreClient::on(here(), StoreClientOptions::default(), Box::new(probe));
    line.open();
    sleep(Duration::from_millis(302)).await;
    assert_eq!(line.call(async { Ok(7) }).await, Ok(7));
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_deadline() {
    let line = line(Arc::default(), StoreClientOptions::default());
    let late = line.call(pending::<Result<(), _>>()).await;
    assert_eq!(late, Err(StoreError::Deadline(Duration::from_millis(100))));
    assert_eq!((line.stats().timed_out, line.stats().in_flight), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_probe_may_take_longer_than_a_short_deadline() {
    let slow = || -> Pin<Box<dyn Future<Output = _> + Send>> {
        Box::pin(async {
            sleep(Duration::from_millis(50)).await;
            Ok(())
        })
    };
    let options = StoreClientOptions { deadline: Duration::from_millis(2), ..StoreClientOptions::default() };
    let line = StoreClient::on(here(), options, Box::new(slow));
    line.open();
    sleep(Duration::from_secs(1)).await;
    let StoreClientStats { open, opened, failed, calls, probes, .. } = line.stats();
    assert_eq!((open, opened, failed, calls, probes), (false, 1, 0, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn one_call_too_many_is_refused_at_once() {
    let line = line(Arc::default(), StoreClientOptions { in_flight_max: 1, ..StoreClientOptions::default() });
    let (waiting, refused) = tokio::join!(line.call(pending::<Result<(), _>>()), line.call(down()));
    assert!(matches!(waiting, Err(StoreError::Deadline(_))));
    assert_eq!(refused, Err(StoreError::Overloaded), "the engine may be well");
    assert_eq!(line.stats().refused_full, 1);
}

/// Sends `calls` at once to an engine that answers one each millisecond, in order, and returns how they ended.
async fn burst(line: &StoreClient, calls: u32) -> Vec<Result<(), StoreError>> {
    let answered = |place: u32| async move {
        sleep(Duration::from_millis(1) * place).await;
        Ok(())
    };
    at_once(line, (1..=calls).map(answered)).await
}

async fn at_once<F>(line: &StoreClient, work: impl Iterator<Item = F>) -> Vec<Result<(), StoreError>>
where
    F: Future<Output = Result<(), StoreError>> + Send + 'static,
{
    let calls = work.map(|work| {
        let line = line.clone();
        async move { line.call(work).await }
    });
    calls.collect::<tokio::task::JoinSet<_>>().join_all().await
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_late_behind_our_own_are_no_outage_and_open_nothing() {
    let line = line(Arc::default(), StoreClientOptions::default());
    let ends = burst(&line, 1_000).await;
    let late: Vec<_> = ends.iter().filter_map(|end| end.as_ref().err()).collect();
    assert!(late.len() > 800 && late.iter().all(|error| **error == StoreError::Overloaded), "{late:?}");
    assert_eq!((line.stats().open, line.stats().opened), (false, 0));
    assert!(late.iter().all(|error| error.may_pass() && !error.is_outage()));
}

#[tokio::test(start_paused = true)]
async fn an_unresponsive_engine_is_unavailable_for_any_number_of_waiters() {
    let line = line(Arc::default(), StoreClientOptions::default());
    let ends = at_once(&line, (0..1_000).map(|_| pending())).await;
    assert!(ends.iter().all(|end| matches!(end, Err(StoreError::Deadline(_)))));
    assert!(line.stats().open);
}

#[tokio::test]
async fn non_outage_errors_do_not_open_the_circuit_breaker() {
    let line = line(Arc::default(), StoreClientOptions::default());
    for _ in 0..50 {
        let _ = line.call::<()>(async { Err(StoreError::bad_state("k")) }).await;
    }
    assert!(!line.stats().open);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_has_more_time_and_leaves_nothing_behind_when_dropped() {
    let line = line(Arc::default(), StoreClientOptions::default());
    let wait = Duration::from_secs(5);
    let late = async move {
        sleep(wait).await;
        Ok(7)
    };
    assert_eq!(line.call_waiting(wait, late).await, Ok(7));
    let dropped = Arc::new(());
    for _ in 0..10 {
        let held = Arc::clone(&dropped);
        let never = async move {
            let _held = held;
            pending::<Result<(), StoreError>>().await
        };
        assert!(timeout(Duration::from_millis(1), line.call_waiting(wait, never)).await.is_err());
    }
    sleep(Duration::from_millis(1)).await;
    assert_eq!(Arc::strong_count(&dropped), 1, "the work is dropped with its caller");
    let stats = line.stats();
    assert_eq!((stats.in_flight, stats.open, stats.failed, stats.timed_out), (0, false, 0, 0));
    assert!(line.call_waiting(wait, pending::<Result<(), StoreError>>()).await.unwrap_err().is_outage());
    assert_eq!(line.stats().timed_out, 1);
}

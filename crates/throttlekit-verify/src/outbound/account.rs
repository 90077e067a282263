//! One provider account of several processes, over any store: its ceiling, lower limits and pauses are common to all.

use std::time::Duration;

use http::Response;
use http::response::Parts;
use throttlekit::outbound::Outbound;
use throttlekit::store::{SlotStore, Store};
use throttlekit::wait::NotReady;

/// Long enough for a call to a store, and less than any wait that is expected.
const STORE_WAIT: Duration = Duration::from_secs(3);
/// Delay that a refusal states.
const DELAY: Duration = Duration::from_secs(30);
/// Time in which every process notices a pause of another one. A process looks every 100 ms.
const NOTICED_WITHIN: Duration = Duration::from_secs(2);

/// Examines accounts of processes that each have one of these stores. Panics with the first property that does not hold.
/// No account of `name` may exist on the store.
pub async fn examine_account<S: Store + SlotStore + Clone>(stores: [S; 3], name: &str) {
    share_a_ceiling(&stores, name).await;
    share_a_lower_limit(&stores, name).await;
    share_pauses(&stores, name).await;
}

fn processes<S: Store + SlotStore + Clone>(stores: &[S; 3], name: &str, per_minute: u64) -> [Outbound; 3] {
    stores.each_ref().map(|store| {
        let builder = Outbound::shared(store.clone(), name).requests_per_minute(per_minute);
        builder.max_wait(STORE_WAIT).build().expect("valid limits")
    })
}

async fn share_a_ceiling<S: Store + SlotStore + Clone>(stores: &[S; 3], name: &str) {
    let [first, second, third] = processes(stores, &format!("{name}-ceiling"), 6);
    first.until_ready("a").await.expect("the first call").success();
    for process in [&second, &third, &first] {
        assert!(is_late(process, "a").await, "a call beyond the ceiling started");
    }
    second.until_ready("b").await.expect("a key of its own").success();
}

/// A process that learned of the lower limit admits no call in addition to those of the others.
async fn share_a_lower_limit<S: Store + SlotStore + Clone>(stores: &[S; 3], name: &str) {
    let processes = processes(stores, &format!("{name}-lower"), 6_000);
    for process in &processes {
        let mut permit = process.until_ready("a").await.expect("below the ceiling");
        permit.observe(&response(200, &[("x-ratelimit-limit-requests", "6")]));
        permit.success();
    }
    processes[0].until_ready("a").await.expect("the first call at the lower limit").success();
    for process in &processes {
        assert!(is_late(process, "a").await, "a call beyond the lower limit started");
    }
}

/// Refusals of two processes are one pause of all three, for as long as one of them states.
async fn share_pauses<S: Store + SlotStore + Clone>(stores: &[S; 3], name: &str) {
    let [first, second, third] = processes(stores, &format!("{name}-pause"), 60_000);
    let permits = [first.until_ready("a").await, second.until_ready("a").await];
    for permit in permits {
        let mut permit = permit.expect("no pause yet");
        let seconds = DELAY.as_secs().to_string();
        permit.observe(&response(429, &[("retry-after", &seconds), ("x-ratelimit-limit-requests", "60000")]));
        permit.dropped();
    }
    let wait = tokio::time::timeout(NOTICED_WITHIN, paused(&third, "a")).await;
    let wait = wait.expect("the pause reaches the third process");
    assert!(wait <= DELAY, "longer than one pause: {wait:?}");
    assert!(wait >= DELAY - NOTICED_WITHIN - STORE_WAIT, "shorter than the pause: {wait:?}");
    third.until_ready("b").await.expect("a key that is not paused").success();
    assert_eq!(third.stats().refused, 0, "the third process was not refused");
}

/// Returns the wait of a process once it has noticed a pause.
async fn paused(process: &Outbound, key: &str) -> Duration {
    loop {
        match process.until_ready(key).await {
            Ok(permit) => permit.success(),
            Err(NotReady::Timeout(denied)) => return denied.decision.retry_after.wait().expect("a wait"),
            Err(other) => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Checks whether a call would wait for longer than it may.
async fn is_late(process: &Outbound, key: &str) -> bool {
    matches!(process.until_ready(key).await, Err(NotReady::Timeout(_)))
}

fn response(status: u16, headers: &[(&str, &str)]) -> Parts {
    let builder = Response::builder().status(status);
    let builder = headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
    builder.body(()).expect("a response").into_parts().0
}

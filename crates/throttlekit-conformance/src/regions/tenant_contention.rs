//! Stress test: tenants of several regions make requests until none is admitted any more.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::SharedFairLimiter;
use tokio::task::JoinSet;

const TENANTS: usize = 4;
/// Tasks for each tenant in each region.
const TASKS: usize = 2;
/// Number of consecutive denials until a task stops, and the wait in between.
const IN_VAIN_MAX: u32 = 5;
const PAUSE: Duration = Duration::from_millis(25);

/// Runs the stress test. Returns the units of each tenant in all regions together.
pub async fn tenant_contention(places: Vec<SharedFairLimiter>) -> Vec<u64> {
    let mut running = JoinSet::new();
    for place in places.into_iter().map(Arc::new) {
        for tenant in (0..TENANTS).flat_map(|tenant| [tenant; TASKS]) {
            running.spawn(ask_until_denied(place.clone(), tenant));
        }
    }
    let mut got = vec![0; TENANTS];
    while let Some(ended) = running.join_next().await {
        let (tenant, units) = ended.expect("a task does not panic");
        got[tenant] += units;
    }
    got
}

async fn ask_until_denied(place: Arc<SharedFairLimiter>, tenant: usize) -> (usize, u64) {
    let (name, mut got, mut in_vain) = (format!("tenant {tenant}"), 0, 0);
    while in_vain < IN_VAIN_MAX {
        let answer = place.check(&name).await.unwrap_or_else(|error| panic!("{error}"));
        assert!(answer.outage.is_none(), "{answer:?}");
        if answer.decision.allowed {
            (got, in_vain) = (got + 1, 0);
        } else {
            in_vain += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }
    (tenant, got)
}

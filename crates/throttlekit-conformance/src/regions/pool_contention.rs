//! Stress test: very many regions use one pool at once.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::Limit;
use throttlekit::store::{KeySpace, RegionRequest, RegionStore};
use throttlekit_core::fair::Weight;
use throttlekit_core::rate::shared::ScriptEncoding;
use tokio::task::JoinSet;

const LIMIT: u64 = 1_000;
const REGIONS: u64 = 8;
/// Tasks for each region.
const TASKS: u64 = 4;
const WANTS: u64 = 7;

/// The result of the stress test.
#[derive(Clone, Debug)]
pub struct PoolContention {
    /// The budget.
    pub limit: u64,
    /// Units granted to each region in the end.
    pub granted: Vec<u64>,
}

/// Regions of equal weight request units by several tasks each until none is granted any more.
///
/// The window is of a year, so that none ends in between.
pub async fn pool_contention<P: RegionStore + Clone>(pool: P, policy: &str) -> PoolContention {
    let year = Limit::fixed_window(LIMIT, Duration::from_secs(365 * 86_400)).expect("in range");
    let (form, key) =
        (ScriptEncoding::of(&year).expect("can be kept"), Arc::new(KeySpace::pool("tk", policy)));
    let mut granted = vec![0; REGIONS as usize];
    // All have made a request before any takes more than its share.
    for region in 0..REGIONS {
        take(&pool, &form, &key, region, 0).await;
    }
    let mut running = JoinSet::new();
    for region in (0..REGIONS).flat_map(|region| [region; TASKS as usize]) {
        let (pool, key) = (pool.clone(), key.clone());
        running.spawn(async move {
            let mut sum = 0;
            while let more @ 1.. = take(&pool, &form, &key, region, WANTS).await {
                sum += more;
            }
            (region, sum)
        });
    }
    while let Some(ended) = running.join_next().await {
        let (region, sum) = ended.expect("a task does not panic");
        granted[region as usize] += sum;
    }
    PoolContention { limit: LIMIT, granted }
}

async fn take<P: RegionStore>(pool: &P, form: &ScriptEncoding, key: &str, region: u64, wants: u64) -> u64 {
    let name = KeySpace::part(format!("region {region}").as_bytes());
    let ask = RegionRequest { key, form, region: &name, weight: Weight::ONE, wants };
    pool.grant(&ask).await.unwrap_or_else(|error| panic!("{error}")).grant.granted
}

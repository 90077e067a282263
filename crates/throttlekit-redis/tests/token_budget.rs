//! Streams of several gateways over real engines: nothing is charged that was not produced.

use std::time::Duration;

use crate::common::{cluster, policy, single, valkey};
use throttlekit::Limit;
use throttlekit::budget::{Reservation, Reserve, TokenBudget};
use throttlekit_conformance::Dice;
use throttlekit_redis::{RedisStore, RedisStoreBuilder};
use throttlekit_verify::learn::reserve::heavy_tailed;

const BUDGET: u64 = 20_000;
const CHUNK: u64 = 16;
const HOUR: Duration = Duration::from_secs(3_600);

/// Opens streams one after another until one is denied. Returns the tokens that they produced. Every third is
/// dropped unsettled.
async fn run_streams(budget: TokenBudget<RedisStore>, seed: u64) -> u64 {
    let mut dice = Dice::new(seed);
    let mut produced = 0;
    for turn in 0.. {
        let Some(mut stream) = budget.open("acme", None).await.unwrap().stream else { return produced };
        let length = heavy_tailed(&mut dice).clamp(1, 2_000);
        while stream.produced() < length {
            let tokens = CHUNK.min(length - stream.produced());
            if !stream.debit(tokens).await.unwrap().decision.allowed {
                break;
            }
        }
        produced += stream.produced();
        if turn % 3 > 0 {
            stream.settle().await.unwrap();
        }
    }
    produced
}

async fn charges_what_is_produced(builder: impl Fn() -> RedisStoreBuilder) {
    let policy = policy("streams");
    let limit = Limit::token_budget(BUDGET, HOUR).unwrap();
    let reserves = [
        Reserve::Learned(Reservation::default()),
        Reserve::Fixed(0),
        Reserve::Fixed(300),
        Reserve::PerKey { fresh: Reservation::default(), keys_max: 8 },
    ];
    let mut gateways = Vec::new();
    for reserve in reserves {
        let store = builder().connect().await.unwrap();
        gateways.push(TokenBudget::builder(store, &policy, limit).reserve(reserve).build().unwrap());
    }
    let streams = gateways.iter().cycle().take(32).zip(0..);
    let running: Vec<_> =
        streams.map(|(budget, seed)| tokio::spawn(run_streams(budget.clone(), seed))).collect();
    let mut produced = 0;
    for one in running {
        produced += one.await.unwrap();
    }
    assert!(produced < BUDGET + CHUNK, "{produced}");
    let left = || async { gateways[0].shared().peek(b"acme").await.unwrap().remaining };
    for _ in 0..100 {
        if left().await == BUDGET.saturating_sub(produced) {
            break;
        }
        // The tokens of dropped streams are being returned.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(left().await, BUDGET.saturating_sub(produced), "{produced} produced");
    println!(
        "{produced} of {BUDGET} tokens; {:?}",
        gateways.iter().map(TokenBudget::stats).collect::<Vec<_>>()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_charged_what_they_produce_on_redis() {
    charges_what_is_produced(single).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_charged_what_they_produce_on_a_redis_cluster() {
    charges_what_is_produced(cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_charged_what_they_produce_on_valkey() {
    charges_what_is_produced(valkey).await;
}

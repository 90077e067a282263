//! Limits each key over all processes that use one Redis.

use std::error::Error;

use throttlekit::{OnOutage, Rate, SharedLimiter};
use throttlekit_redis::RedisStore;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("THROTTLEKIT_REDIS").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
    let store = RedisStore::connect(&url).await?;
    let limiter = SharedLimiter::builder(store, "ladder-shared", Rate::per_minute(100).burst(10))
        .on_outage(OnOutage::Open)
        .build()?;

    limiter.reset("alice").await?;
    for request in 1..=12 {
        let answer = limiter.check("alice").await?;
        let status = if answer.allowed { 200 } else { 429 };
        println!("{request}: {status}, {} left, {}", answer.remaining, answer.guarantee.label());
    }
    Ok(())
}

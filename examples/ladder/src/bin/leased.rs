//! The same limit, but units are fetched in batches and spent in this process: few round trips, the same bound.

use std::error::Error;

use throttlekit::{Limit, SharedLimiter};
use throttlekit_redis::RedisStore;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("THROTTLEKIT_REDIS").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
    let store = RedisStore::connect(&url).await?;
    let hour = std::time::Duration::from_secs(3_600);
    let limiter =
        SharedLimiter::builder(store, "ladder-leased", Limit::fixed_window(1_000, hour)?).leased().build()?;

    limiter.reset("alice").await?;
    let mut allowed = 0;
    for _ in 0..1_200 {
        allowed += u32::from(limiter.check("alice").await?.allowed);
    }
    println!(
        "{allowed} of 1200 allowed, the store was called {} times",
        limiter.stats().leasing.store_calls()
    );
    limiter.close().await?;
    Ok(())
}

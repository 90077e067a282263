//! A Rust process that shares a limit with Python: `rust_peer URL POLICY UNITS strict|leased REQUESTS`.
//!
//! Makes the requests, returns its leases, and prints the number that were admitted.

use std::time::Duration;

use throttlekit::{Budget, SharedLimiter};
use throttlekit_redis::RedisStore;

type Error = Box<dyn std::error::Error>;

/// Longer than any default: the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(5);

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, policy, units, mode, requests] = &args[..] else {
        return Err("expected URL POLICY UNITS strict|leased REQUESTS".into());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let admitted = runtime.block_on(run(url, policy, units.parse()?, mode == "leased", requests.parse()?))?;
    println!("{admitted}");
    Ok(())
}

async fn run(url: &str, policy: &str, units: u64, leased: bool, requests: u64) -> Result<u64, Error> {
    let store = RedisStore::builder(url).deadline(DEADLINE).connect().await?;
    let builder = SharedLimiter::builder(store, policy, Budget::per_day(units));
    let limiter = if leased { builder.leased() } else { builder }.build()?;
    let mut admitted = 0;
    for _ in 0..requests {
        admitted += u64::from(limiter.check("shared").await?.allowed);
    }
    limiter.close().await?;
    Ok(admitted)
}

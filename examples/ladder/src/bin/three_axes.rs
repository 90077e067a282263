//! A gateway for a language model: concurrency, requests and tokens in one decision, over one Redis.

use std::error::Error;

use throttlekit::{Budget, Call, Concurrency, Rate, SharedPolicy};
use throttlekit_redis::RedisStore;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("THROTTLEKIT_REDIS").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
    let store = RedisStore::connect(&url).await?;
    let chat = SharedPolicy::builder(store, "ladder-chat")
        .concurrency(Concurrency::per_key(2))
        .rate(Rate::per_minute(60))
        .tokens(Budget::per_minute(100_000))
        .build()?;

    // A key of its own for each run, so that the output is the same.
    let tenant = format!("acme-{}", std::process::id());
    let mut streams = Vec::new();
    for prompt in 1..=3 {
        match chat.admit(Call::by(&tenant).cost(1_500)).await?.into_permit() {
            Ok(permit) => streams.push(permit),
            Err(denied) => println!(
                "prompt {prompt}: 429, denied by {}",
                denied.axis.map_or("nobody", |axis| axis.label())
            ),
        }
    }
    for permit in &mut streams {
        for _chunk in 0..10 {
            permit.debit(20).await?;
        }
        println!("a stream used {} of 1500 tokens", permit.used());
    }
    Ok(())
}

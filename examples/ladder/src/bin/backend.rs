//! Protects a backend: at most `n` calls at a time, where `n` is inferred from latency.

use std::error::Error;
use std::time::Duration;

use throttlekit::{Concurrency, Guard};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let guard = Guard::new(Concurrency::adaptive(2..=100))?;
    for _ in 0..500 {
        let permit = guard.try_acquire(())?;
        tokio::time::sleep(Duration::from_micros(200)).await;
        permit.success();
    }
    println!("one at a time: the limit stays within 2 and 100, it is {}", guard.peek(()).limit);

    let held: Vec<_> = std::iter::from_fn(|| guard.try_acquire(()).ok()).collect();
    println!("full after {} at a time", held.len());
    Ok(())
}

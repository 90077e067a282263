use std::time::{Duration, Instant};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use throttlekit::{Rate, SharedLimiter};
use throttlekit_redis::RedisStore;
fn main() {
    let url = std::env::var("THROTTLEKIT_REDIS").unwrap();
    let mode = std::env::args().nth(1).unwrap_or("mt".into());
    let tasks: u64 = std::env::args().nth(2).unwrap_or("256".into()).parse().unwrap();
    let rt = if mode == "ct" { tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap() }
      else { tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap() };
    rt.block_on(async move {
        let store = RedisStore::builder(url).deadline(Duration::from_secs(5)).connect().await.unwrap();
        let limiter = Arc::new(SharedLimiter::new(store, "bench", Rate::per_second(10).burst(10)).unwrap());
        for _ in 0..3 {
        let done = Arc::new(AtomicU64::new(0));
        let begin = Instant::now();
        let handles: Vec<_> = (0..tasks).map(|t| { let (l, d) = (limiter.clone(), done.clone()); tokio::spawn(async move {
            let mut x = t * 7919 + 1;
            while begin.elapsed() < Duration::from_secs(2) {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let key = format!("{:012}", (x >> 33) % 100000);
                l.check(&key).await.unwrap();
                d.fetch_add(1, Relaxed);
            }
        })}).collect();
        for h in handles { h.await.unwrap(); }
        println!("{mode} {tasks}: {:.0}/s", done.load(Relaxed) as f64 / begin.elapsed().as_secs_f64());
        }
    });
}

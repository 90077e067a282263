//! Over real sockets: the guard finds out what the backend takes, and what it saw is written down.

use std::time::Duration;

use axum_guard::{Act, csv, played, table};

/// Beside other tests on two cores latencies are anything but even, so this asks only for what noise cannot excuse: a
/// ceiling that has left its floor, and not for the sky. How near it comes on a quiet backend is what the proofs judge.
#[tokio::test]
async fn a_guard_finds_out_how_many_its_backend_takes() {
    let act = |at_a_time| Act { lasts: Duration::from_secs(2), at_a_time, work: Duration::from_millis(20) };
    let acts = [act(20), act(40)];
    let moments = played(&acts, 80).await.unwrap();

    let late = moments.iter().filter(|moment| moment.since > Duration::from_secs(1));
    let limits: Vec<f64> = late.map(|moment| f64::from(moment.limit)).collect();
    let mean = limits.iter().sum::<f64>() / limits.len() as f64;
    assert!((8.0..80.0).contains(&mean), "{mean} at a time, of 20 and then 40");
    let served: u32 = moments.iter().map(|moment| moment.served).sum();
    assert!(served > 1_000, "{served} served, of 6,000 at best");

    let csv = csv(&acts, &moments);
    assert_eq!(csv.lines().count(), moments.len() + 1);
    assert!(csv.lines().all(|line| line.split(',').count() == 6));
    assert_eq!(table(&acts, &moments).lines().count(), 3);
}

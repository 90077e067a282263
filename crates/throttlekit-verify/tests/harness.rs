//! Tests of the parts of the experiments: schedules, the proxy, measures, drawn lengths and times.

#![cfg(not(loom))]

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};
use throttlekit::rate::Timestamp;
use throttlekit_conformance::Dice;
use throttlekit_verify::divided::most_at_once;
use throttlekit_verify::fair::equal_leaves;
use throttlekit_verify::inference::tails::Shape;
use throttlekit_verify::isolation::{
    BLOCK_FULL, Engine, Kind, Lateness, Misbehaviour, Proxy, SLACK, Schedule, Trouble, background,
    slack_between, worst_between,
};
use throttlekit_verify::learn::reserve::heavy_tailed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

#[test]
fn deadlines_are_extended_by_at_least_the_slack() {
    let from = BootClock.now();
    let to = from + Duration::from_millis(200);
    assert!(slack_between(from, to) >= SLACK);
    thread::sleep(Duration::from_millis(120));
    assert!(worst_between(from, to) < Duration::from_secs(16), "it is a measurement");
}

#[test]
fn a_late_sleep_counts_for_its_whole_duration() {
    let (lateness, at) = (Lateness::default(), Timestamp::from_millis);
    lateness.note(at(1_000), at(1_205));
    assert_eq!(lateness.worst_between(at(1_100), at(1_110)), Duration::from_millis(200));
    assert_eq!(lateness.worst_between(at(1_300), at(1_400)), Duration::ZERO);
}

#[test]
fn a_seed_determines_its_schedule() {
    let of = |seed| Schedule::of(seed, Engine::Memory, &Kind::ON_STORES);
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
}

#[test]
fn every_kind_misbehavior_and_fault_occurs() {
    let all: Vec<_> = (0..2_000).map(|seed| Schedule::of(seed, Engine::Memory, &Kind::ON_STORES)).collect();
    for kind in Kind::ON_STORES {
        assert!(all.iter().any(|schedule| schedule.kind == kind), "{kind:?}");
    }
    for trouble in Engine::Memory.faults() {
        assert!(all.iter().any(|schedule| schedule.fault.is_some_and(|f| f.trouble == *trouble)));
    }
    let blocked = |schedule: &&Schedule| schedule.misbehaviour == Misbehaviour::Blocked(BLOCK_FULL);
    assert!(all.iter().filter(blocked).count() > 40, "some block for three seconds");
    assert!(all.iter().all(|s| (2..=4).contains(&s.runtimes.len())));
}

#[test]
fn a_lease_outlives_every_outage_that_it_must_survive() {
    for seed in 0..2_000 {
        let schedule = Schedule::of(seed, Engine::Memory, &Kind::ON_STORES);
        if let (true, Some(fault)) = (schedule.kind.holds_work(), schedule.fault) {
            assert!(fault.until - fault.from <= schedule.timing.lives / 4);
        }
    }
}

/// Starts an echo server.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut piece = [0; 64];
                while let Ok(bytes @ 1..) = client.read(&mut piece).await {
                    client.write_all(&piece[..bytes]).await.unwrap();
                }
            });
        }
    });
    address
}

/// Sends a byte and returns `true` if it comes back. Bytes that were held up may come first.
async fn answers(client: &mut TcpStream, sent: u8) -> bool {
    let asked = async {
        client.write_all(&[sent]).await?;
        while client.read_u8().await? != sent {}
        io::Result::Ok(())
    };
    matches!(timeout(Duration::from_millis(300), asked).await, Ok(Ok(())))
}

#[test]
fn a_proxy_hangs_falls_silent_refuses_and_heals() {
    let proxy = Proxy::to(background().block_on(echo())).unwrap();
    background().block_on(async {
        let connect = || TcpStream::connect(proxy.address());
        let mut old = connect().await.unwrap();
        assert!(answers(&mut old, 1).await);
        proxy.trouble(Trouble::Hangs);
        assert!(!answers(&mut old, 2).await);
        proxy.heal();
        assert!(answers(&mut old, 3).await);
        proxy.trouble(Trouble::Silent);
        assert!(!answers(&mut old, 4).await);
        let mut new = connect().await.unwrap();
        assert!(answers(&mut new, 5).await, "only those that were open are silent");
        proxy.trouble(Trouble::Refuses);
        assert!(!answers(&mut new, 6).await);
        proxy.heal();
        assert!(answers(&mut connect().await.unwrap(), 7).await);
    });
    let closed = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        proxy.open() == 0
    });
    assert!(closed, "{} connections are counted that are closed", proxy.open());
}

/// Returns the mean and coefficient of variation over many draws.
fn moments(shape: Shape) -> (f64, f64) {
    let (mut dice, draws) = (Dice::new(7), 400_000);
    let drawn: Vec<f64> = (0..draws).map(|_| shape.draw(&mut dice)).collect();
    let mean = drawn.iter().sum::<f64>() / f64::from(draws);
    let variance = drawn.iter().map(|takes| (takes - mean).powi(2)).sum::<f64>() / f64::from(draws);
    (mean, variance.sqrt() / mean)
}

#[test]
fn shapes_have_a_mean_of_one_and_the_variation_in_their_name() {
    for (shape, variation) in [
        (Shape::Exponential, 1.0),
        (Shape::Bimodal2, 2.0),
        (Shape::Bimodal3_5, 3.5),
        (Shape::Bimodal5, 5.0),
        (Shape::Llm, 1.0),
    ] {
        let (mean, varies) = moments(shape);
        assert!((mean - 1.0).abs() < 0.03, "{shape:?}: mean {mean}");
        assert!((varies / variation - 1.0).abs() < 0.05, "{shape:?}: variation {varies}");
    }
    for shape in [Shape::Pareto2_2, Shape::Pareto1_5] {
        let (mean, varies) = moments(shape);
        assert!((mean - 1.0).abs() < 0.05 && varies > 1.0, "{shape:?}: {mean}, {varies}");
    }
}

#[test]
fn heavy_tails_have_the_published_mean_median_and_top_percent() {
    let mut dice = Dice::new(7);
    let mut lengths: Vec<u64> = (0..1_000_000).map(|_| heavy_tailed(&mut dice)).collect();
    lengths.sort_unstable();
    let mean = lengths.iter().sum::<u64>() as f64 / 1e6;
    assert!((mean - 211.0).abs() < 2.0, "{mean}");
    assert!(lengths[500_000].abs_diff(129) <= 1 && lengths[990_000].abs_diff(601) <= 2);
    assert!(lengths[999_900] > 5_000, "the last ten thousandth is far out");
}

#[test]
fn intervals_that_touch_do_not_overlap() {
    assert_eq!(most_at_once([[0, 5], [5, 9], [4, 6]].iter(), 0, 10), 2);
    assert_eq!(most_at_once([[0, 5], [1, 9], [4, 6]].iter(), 0, 10), 3);
    assert_eq!(most_at_once([[0, 5], [1, 9], [4, 6]].iter(), 6, 10), 1);
}

#[test]
fn at_one_level_both_bounds_are_reached_to_a_unit() {
    // Of 101 each has one, and one of them, at a part of 101/51, takes what rounding leaves: fifty at once.
    assert_eq!(equal_leaves(51, 101, &[1, 50])[0], 51);
    // A part of 2549/51 is a little less than the request: most get nothing.
    assert_eq!(equal_leaves(51, 2_549, &[50])[50], 0);
}

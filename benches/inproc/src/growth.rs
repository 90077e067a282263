//! The longest single check while a table fills with two million keys, and while they expire.

use std::hint::black_box;
use std::time::Duration;

use governor::DefaultKeyedRateLimiter;
use serde_json::{Value, json};
use throttlekit::Rate;
use throttlekit::clock::{Clock, ManualClock, PreciseClock};
use throttlekit::hash::TrustedHash;

use crate::child::{ask, number};
use crate::contenders::{governor_stale_at_once, governor_stale_at_once_sized, limiter};
use crate::os;
use crate::report::{Report, progress};
use crate::thresholds::{STALL_US_MAX, runs};
use crate::workloads::{key, text};

const NEW_KEYS: u64 = 2_000_000;
/// Capacity for the first two million; a second two million fit only in place of expired ones.
const KEYS_MAX: usize = 2_500_000;
const ALIVE: Duration = Duration::from_secs(3_600);

/// Runs the probes and checks ours.
pub fn judge(report: &mut Report) {
    progress("growth: governor");
    let governor = ask(&["growth", "governor"]);
    let sized = ask(&["growth", "governor-sized"]);
    let (mut grows, mut expires, mut ours) = (Vec::new(), Vec::new(), Value::Null);
    runs(|run| {
        progress(&format!("growth: ours, run {run}"));
        ours = ask(&["growth", "ours"]);
        let (grow, expire) = (number(&ours, "grow_max_us"), number(&ours, "expire_max_us"));
        grows.push(grow);
        expires.push(expire);
    });
    println!("\nlongest single check over {NEW_KEYS} new keys, µs of processor time");
    report.ratio("stall while growing, µs", &grows, STALL_US_MAX);
    report.ratio("stall while expiring, µs", &expires, STALL_US_MAX);
    report.note("growth, ours", ours);
    report.note("growth, governor", governor);
    report.note("growth, governor with memory for all keys from the start", sized);
}

/// The probe: in its own process.
pub fn probe(who: &str) -> Value {
    match who {
        "ours" => probe_ours(),
        "governor" => probe_governor(&governor_stale_at_once()),
        "governor-sized" => probe_governor(&governor_stale_at_once_sized(KEYS_MAX)),
        unknown => panic!("no growth of {unknown}"),
    }
}

fn probe_ours() -> Value {
    let clock = ManualClock::at(PreciseClock::new().now());
    let limiter = limiter::<_, TrustedHash>(Rate::every(ALIVE).burst(10), KEYS_MAX, clock.clone());
    let grow = Waits::of(0, |key| _ = black_box(limiter.check(key)));
    clock.advance(2 * ALIVE);
    let expire = Waits::of(NEW_KEYS, |key| _ = black_box(limiter.check(key)));
    json!({
        "grow_p50_ns": grow.at(0.5),
        "grow_p999_ns": grow.at(0.999),
        "grow_max_us": grow.at(1.0) / 1_000.0,
        "expire_p50_ns": expire.at(0.5),
        "expire_p999_ns": expire.at(0.999),
        "expire_max_us": expire.at(1.0) / 1_000.0,
    })
}

fn probe_governor(limiter: &DefaultKeyedRateLimiter<String>) -> Value {
    let mut owned = String::new();
    let grow = Waits::of(0, |key| {
        owned.clear();
        owned.push_str(key);
        _ = black_box(limiter.check_key(&owned));
    });
    let start = os::thread_cpu_ns();
    limiter.retain_recent();
    json!({
        "grow_p50_ns": grow.at(0.5),
        "grow_p999_ns": grow.at(0.999),
        "grow_max_us": grow.at(1.0) / 1_000.0,
        "clean_up_us": (os::thread_cpu_ns() - start) as f64 / 1_000.0,
    })
}

/// The duration of each of two million first checks, timer included, sorted.
struct Waits(Vec<u32>);

impl Waits {
    fn of(first: u64, mut check: impl FnMut(&str)) -> Self {
        let mut waits = vec![1; NEW_KEYS as usize];
        for (number, wait) in (first..).zip(&mut waits) {
            let key = key(number);
            let start = os::thread_cpu_ns();
            check(text(&key));
            *wait = (os::thread_cpu_ns() - start) as u32;
        }
        waits.sort_unstable();
        Self(waits)
    }

    fn at(&self, quantile: f64) -> f64 {
        f64::from(self.0[((self.0.len() - 1) as f64 * quantile) as usize])
    }
}

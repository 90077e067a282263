//! Ten million new keys against memory for a million: the cost, and the effects.

use std::hint::black_box;
use std::time::Duration;

use serde_json::{Value, json};
use throttlekit::Rate;
use throttlekit::clock::PreciseClock;
use throttlekit::hash::SecretHash;

use crate::child::{ask, number};
use crate::contenders::{BYTES_PER_KEY, Call, limiter};
use crate::os;
use crate::report::{Report, progress};
use crate::thresholds::{FLOOD_MEMORY_MAX, FLOOD_P99_MAX, runs};
use crate::workloads::{KEY_BYTES, Random, key, text};

const CAP: usize = 1_000_000;
const STRANGERS: u64 = 10_000_000;
/// New keys between two timed checks of known keys.
const BETWEEN: u64 = 16;
const SAMPLES: usize = (STRANGERS / BETWEEN) as usize;
/// Known keys that are requested throughout.
const KNOWN: usize = 10_000;
/// Keys that were denied before the flood, and are not requested until it is over.
const LIMITED: u64 = 100;
const UNITS: u64 = 1_000_000;

/// Runs the probe and checks its results.
pub fn judge(report: &mut Report) {
    let (mut memory, mut p99, mut answer) = (Vec::new(), Vec::new(), Value::Null);
    let mut limited = true;
    runs(|run| {
        progress(&format!("flood: run {run}"));
        answer = ask(&["flood"]);
        memory.push(number(&answer, "rss_after_to_budget"));
        p99.push(number(&answer, "p99_to_before"));
        limited &= number(&answer, "still_limited") as u64 == LIMITED + 1;
    });
    println!("\na flood of {STRANGERS} distinct keys against a budget for {CAP}");
    report.ratio("flood: resident memory to the budget", &memory, FLOOD_MEMORY_MAX);
    report.ratio("flood: p99 of known keys to before", &p99, FLOOD_P99_MAX);
    report.holds("flood: limited keys stay limited", limited);
    report.note("flood", answer);
}

/// The probe: in its own process.
pub fn probe() -> Value {
    // Allocated and touched before memory is measured.
    let mut waits = vec![1u32; SAMPLES];
    let mut random = Random(4);
    let resident_empty = os::resident_bytes();

    let rate = Rate::every(Duration::from_secs(3_600)).burst(UNITS);
    let limiter = limiter::<_, SecretHash>(rate, CAP, PreciseClock::new());
    let check = |key: &[u8; KEY_BYTES]| black_box(limiter.check(text(key))).allowed;
    let limited = STRANGERS * 2..STRANGERS * 2 + LIMITED;
    let pestering = limited.end;
    for number in limited.start..=pestering {
        limiter.check(Call::by(text(&key(number))).cost(UNITS));
        assert!(!check(&key(number)), "a key without units is denied");
    }
    let filled = CAP as u64 - LIMITED - 1;
    for number in 0..filled {
        check(&key(number));
    }
    let resident_cap = os::resident_bytes() - resident_empty;

    let known: Vec<_> = (0..KNOWN).map(|_| key(random.below(filled as usize) as u64)).collect();
    let p99_among = |waits: &mut [u32], other: &mut dyn FnMut() -> u64| {
        for (at, wait) in waits.iter_mut().enumerate() {
            for _ in 0..BETWEEN {
                check(&key(other()));
            }
            *wait = ticks_of(|| check(&known[at % KNOWN]));
        }
        p99(waits)
    };
    let p99_before = p99_among(&mut waits, &mut || random.below(filled as usize) as u64);
    let mut pestered = true;
    let mut stranger = CAP as u64;
    let p99_during = p99_among(&mut waits, &mut || {
        stranger += 1;
        if stranger.is_multiple_of(100_000) {
            pestered &= !check(&key(pestering));
        }
        stranger
    });
    let resident_after = os::resident_bytes() - resident_empty;
    let p99_after = p99_among(&mut waits, &mut || random.below(filled as usize) as u64);
    let still_limited = limited.filter(|number| !check(&key(*number))).count() + usize::from(pestered);

    json!({
        "rss_cap_bytes": resident_cap,
        "rss_after_bytes": resident_after,
        "rss_after_to_budget": resident_after as f64 / (CAP * BYTES_PER_KEY) as f64,
        "p99_before_ticks": p99_before,
        "p99_during_ticks": p99_during,
        "p99_after_ticks": p99_after,
        "p99_to_before": f64::from(p99_during.max(p99_after)) / f64::from(p99_before),
        "still_limited": still_limited,
    })
}

/// Returns the ticks of the processor's counter, fences included.
fn ticks_of(check: impl FnOnce() -> bool) -> u32 {
    os::fence();
    let start = os::ticks();
    os::fence();
    check();
    os::fence();
    (os::ticks() - start) as u32
}

fn p99(waits: &mut [u32]) -> u32 {
    let at = waits.len() / 100 * 99;
    *waits.select_nth_unstable(at).1
}

//! Processor time: how much this process took, and taking as much without doing anything.

use std::time::Duration;

use tokio::time::Instant;

/// As many as attackers have.
const THREADS: u32 = 2;

/// Processor time of this process so far, in steps of ten milliseconds.
pub(crate) fn spent() -> Duration {
    spent_by(std::process::id())
}

/// Processor time of a process so far.
pub(crate) fn spent_by(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("Linux");
    // The name of the process, in brackets, may hold spaces.
    let fields: Vec<_> = stat.rsplit_once(") ").expect("a name").1.split(' ').collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("ticks")).sum();
    Duration::from_millis(ticks * 10)
}

/// Takes so much processor time, evenly over so long.
pub(crate) fn burn(processor: Duration, time: Duration) {
    let share = processor.as_secs_f64() / time.as_secs_f64() / f64::from(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| burn_evenly(share, time));
        }
    });
}

fn burn_evenly(share: f64, time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        let due = begun.elapsed().mul_f64(share);
        if on_processor() < due {
            let until = Instant::now() + Duration::from_micros(200);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        } else {
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

/// Of this thread.
fn on_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("nanoseconds"))
}

#[test]
fn it_burns_about_as_much_as_it_is_told() {
    let before = spent();
    burn(Duration::from_millis(200), Duration::from_secs(1));
    let burnt = spent() - before;
    // Others of this process burn too, and a busy machine gives less.
    assert!(burnt >= Duration::from_millis(50), "{burnt:?}");
}

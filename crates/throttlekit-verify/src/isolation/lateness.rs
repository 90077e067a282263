//! Measures continuously how late this machine wakes a thread, so that a busy machine is not mistaken for a
//! fault.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};
use throttlekit::rate::Timestamp;
use throttlekit::store::Background;

/// The interval at which a thread sleeps and measures its delay.
const EVERY: Duration = Duration::from_millis(5);
const BUCKET: Duration = Duration::from_millis(50);
/// Enough for some minutes.
const BUCKETS: usize = 8_192;
/// The number of threads that one call may wait for in sequence: caller, driver, engine and back, twice.
const HOPS: u32 = 6;
/// The allowance on top of the measured delay.
pub const SLACK: Duration = Duration::from_millis(250);

/// Returns the allowance for anything that began and ended between these instants: [`SLACK`], and six times
/// the worst delay that was measured meanwhile.
pub fn slack_between(from: Timestamp, to: Timestamp) -> Duration {
    SLACK + worst_between(from, to) * HOPS
}

/// Returns the worst delay of a thread that was measured between two instants. That of the driver thread
/// counts too, up to [`SLACK`]: a longer stall is not the machine's fault.
pub fn worst_between(from: Timestamp, to: Timestamp) -> Duration {
    let meters = Meters::get();
    meters.thread.worst_between(from, to).max(meters.driver.worst_between(from, to).min(SLACK))
}

/// Returns how long the library's driver thread stalled between two instants, if that was longer than the
/// machine explains.
pub(super) fn driver_stood_still(from: Timestamp, to: Timestamp) -> Option<Duration> {
    let meters = Meters::get();
    let stood = meters.driver.worst_between(from, to);
    (stood > SLACK + meters.thread.worst_between(from, to) * HOPS).then_some(stood)
}

/// A thread of the harness that sleeps, and a task on the driver thread that does.
struct Meters {
    thread: Arc<Lateness>,
    driver: Arc<Lateness>,
}

impl Meters {
    fn get() -> &'static Self {
        static METERS: OnceLock<Meters> = OnceLock::new();
        METERS.get_or_init(Self::start)
    }

    fn start() -> Self {
        let [thread, driver] = [(); 2].map(|()| Arc::new(Lateness::default()));
        let measured = thread.clone();
        let body = move || {
            loop {
                measured.measure(|| thread::sleep(EVERY));
            }
        };
        thread::Builder::new().name("lateness".into()).spawn(body).expect("a thread");
        let (measured, background) = (driver.clone(), Background::default());
        Background::default().spawn(async move {
            loop {
                let begun = BootClock.now();
                background.sleep(EVERY).await;
                measured.note(begun, BootClock.now());
            }
        });
        Self { thread, driver }
    }
}

/// The worst delay of each twentieth of a second.
pub struct Lateness {
    /// The index of the bucket above 24 bits of microseconds.
    buckets: [AtomicU64; BUCKETS],
}

fn bucket(at: Timestamp) -> u64 {
    at.as_nanos() / BUCKET.as_nanos() as u64
}

impl Default for Lateness {
    fn default() -> Self {
        Self { buckets: array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Lateness {
    fn measure(&self, sleep: impl FnOnce()) {
        let begun = BootClock.now();
        sleep();
        self.note(begun, BootClock.now());
    }

    /// Records a delay. A sleep through several buckets was late in each of them.
    pub fn note(&self, begun: Timestamp, woken: Timestamp) {
        let late = woken.since(begun).saturating_sub(EVERY).as_micros() as u64;
        for number in bucket(begun)..=bucket(woken) {
            let kept = self.read(number).as_micros() as u64;
            let worst = late.max(kept).min(0xff_ffff);
            self.buckets[number as usize % BUCKETS].store(number << 24 | worst, Relaxed);
        }
    }

    /// Returns the worst delay between two instants.
    pub fn worst_between(&self, from: Timestamp, to: Timestamp) -> Duration {
        (bucket(from)..=bucket(to)).map(|number| self.read(number)).max().unwrap_or_default()
    }

    fn read(&self, number: u64) -> Duration {
        let kept = self.buckets[number as usize % BUCKETS].load(Relaxed);
        let is_it = kept >> 24 == number & (u64::MAX >> 24);
        Duration::from_micros(if is_it { kept & 0xff_ffff } else { 0 })
    }
}

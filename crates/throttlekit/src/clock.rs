//! Clocks: sources of time for limiters and leases.
//!
//! The only module that reads a clock.
#![allow(clippy::disallowed_methods, reason = "this is the one file where time enters")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use throttlekit_core::Timestamp;
use throttlekit_core::rate::Limit;

/// A source of time for a limiter.
///
/// A clock may step back; limits never admit more when it does.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    #[inline]
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// A clock for leases: it advances evenly, never steps, and is right as soon as a stopped process resumes.
///
/// [`WallClock`] steps, and [`CoarseClock`] is updated by a thread that may be late, so neither qualifies.
pub trait LeaseClock: Clock {
    /// Returns the largest delay of a reading behind the true time. Leases expire that much earlier.
    fn behind_max(&self) -> Duration {
        Duration::ZERO
    }
}

/// Nanoseconds from the processor's counter: the default.
///
/// Anchored to the wall clock when created, then even; steps of the wall clock do not affect it. Over months it drifts
/// from wall-clock time with the counter (some parts per million), so limits that follow the calendar read
/// [`WallClock`] instead.
#[derive(Clone, Debug)]
pub struct PreciseClock {
    counter: quanta::Clock,
    anchor_raw: u64,
    anchor_unix: u64,
    /// Nanoseconds in 2⁶⁴ ticks, for a counter that ticks faster than that.
    nanos_per_2_64: u64,
    /// Largest difference for which the product below is exact: zero for a slow counter.
    fast_ticks_max: u64,
    /// Nanoseconds in 2³² ticks: exact to 10⁻⁹, far below the calibration error.
    nanos_per_2_32: u64,
}

impl PreciseClock {
    /// Creates a clock anchored to the current wall-clock time.
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        let nanos_per_2_32 = counter.delta_as_nanos(0, 1 << 32);
        let fast_ticks_max = if nanos_per_2_32 < 1 << 32 { TICKS_MAX } else { 0 };
        let anchor_raw = counter.raw();
        Self {
            anchor_unix: unix_nanos(),
            anchor_raw,
            nanos_per_2_64: nanos_per_2_32 << 32,
            fast_ticks_max,
            nanos_per_2_32,
            counter,
        }
    }

    /// Returns the time for a slow counter, or for one slightly behind the one that set the anchor. Not inlined: every
    /// instruction between the counter and the decision delays a check.
    #[inline(never)]
    fn slowly(&self, ticks: u64) -> Timestamp {
        let ticks = if ticks > TICKS_MAX { 0 } else { ticks };
        let elapsed = (u128::from(ticks) * u128::from(self.nanos_per_2_32)) >> 32;
        Timestamp::from_nanos(self.anchor_unix + elapsed as u64)
    }
}

/// A difference above this means that the counter is behind its anchor.
const TICKS_MAX: u64 = u64::MAX / 2;

impl Default for PreciseClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for PreciseClock {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        let ticks = self.counter.raw().wrapping_sub(self.anchor_raw);
        if ticks > self.fast_ticks_max {
            return self.slowly(ticks);
        }
        let elapsed = (u128::from(ticks) * u128::from(self.nanos_per_2_64)) >> 64;
        Timestamp::from_nanos(self.anchor_unix + elapsed as u64)
    }
}

/// Wall-clock time of the operating system: for windows that follow the calendar.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    #[inline(never)]
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(unix_nanos())
    }
}

/// The clock that fits a limit: the default.
///
/// Wall-clock time for limits that follow the calendar or align to the epoch, precise time for all others.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SystemClock {
    /// See [`PreciseClock`].
    Precise(PreciseClock),
    /// See [`WallClock`].
    Wall(WallClock),
}

impl SystemClock {
    /// Returns the clock that fits this limit.
    pub fn for_limit(limit: &Limit) -> Self {
        Self::for_limits(std::slice::from_ref(limit))
    }

    /// Returns the clock that fits all of these limits.
    pub fn for_limits(limits: &[Limit]) -> Self {
        if limits.iter().any(Limit::follows_wall_clock) {
            Self::Wall(WallClock)
        } else {
            Self::Precise(PreciseClock::new())
        }
    }
}

impl Clock for SystemClock {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        match self {
            Self::Precise(clock) => clock.now(),
            Self::Wall(clock) => clock.now(),
        }
    }
}

/// A clock that a thread updates every half millisecond: reading it costs one load.
///
/// It runs behind by at most [`CoarseClock::TICK`] plus the wake-up latency of the thread, and never ahead; so a limit
/// that reads it may react late, never early. Clones share the thread, which ends with the last of them.
#[derive(Clone, Debug)]
pub struct CoarseClock {
    wound: Arc<AtomicU64>,
}

impl CoarseClock {
    /// Update interval of the clock.
    pub const TICK: Duration = Duration::from_micros(500);

    /// Starts the update thread.
    pub fn start() -> Self {
        let precise = PreciseClock::new();
        let wound = Arc::new(AtomicU64::new(precise.now().as_nanos()));
        let held = Arc::downgrade(&wound);
        let wind = move || {
            while let Some(wound) = held.upgrade() {
                wound.store(precise.now().as_nanos(), Ordering::Relaxed);
                drop(wound);
                thread::sleep(Self::TICK);
            }
        };
        thread::Builder::new()
            .name("throttlekit-clock".into())
            .spawn(wind)
            .expect("a thread to wind the clock");
        Self { wound }
    }
}

impl Clock for CoarseClock {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.wound.load(Ordering::Relaxed))
    }
}

/// Time since the machine was started, including suspend: the clock for leases.
///
/// It never steps. Setting the wall clock or suspending the machine does not extend leases. Not comparable with any
/// other clock. On systems other than Linux it is the operating system's monotonic clock, which may stop while the
/// machine sleeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

#[cfg(target_os = "linux")]
impl Clock for BootClock {
    #[inline]
    fn now(&self) -> Timestamp {
        linux_nanos(rustix::time::ClockId::Boottime)
    }
}

#[cfg(not(target_os = "linux"))]
impl Clock for BootClock {
    fn now(&self) -> Timestamp {
        static BEGUN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        let since = BEGUN.get_or_init(std::time::Instant::now).elapsed();
        Timestamp::EPOCH + Duration::from_secs(1) + since
    }
}

/// The time of the kernel's last tick: a clock that costs a few loads, and runs behind by a tick, or by
/// [`TickClock::STALLED_TICKS`] if the processor that updates it stalls and another must notice.
///
/// The kernel updates it, so a process that was stopped reads the right time when it resumes. It stops while the
/// machine is suspended; if machines are suspended, hold leases by [`BootClock`].
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug)]
pub struct TickClock {
    tick: Duration,
}

#[cfg(target_os = "linux")]
impl TickClock {
    /// Maximum lag in ticks: after five missed ticks Linux lets another processor update the clock.
    pub const STALLED_TICKS: u32 = 6;

    /// Reads the kernel's clock and the length of its tick.
    pub fn new() -> Self {
        let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
        Self { tick: Duration::from_nanos(nanos_of(tick)) }
    }
}

#[cfg(target_os = "linux")]
impl Default for TickClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(target_os = "linux")]
impl Clock for TickClock {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        linux_nanos(rustix::time::ClockId::MonotonicCoarse)
    }
}

#[cfg(target_os = "linux")]
impl LeaseClock for TickClock {
    fn behind_max(&self) -> Duration {
        self.tick * Self::STALLED_TICKS
    }
}

impl LeaseClock for BootClock {}

/// The cheapest clock for leases: [`TickClock`] on Linux, elsewhere [`BootClock`].
#[cfg(target_os = "linux")]
pub type DefaultLeaseClock = TickClock;
/// The cheapest clock for leases: `TickClock` on Linux, elsewhere [`BootClock`].
#[cfg(not(target_os = "linux"))]
pub type DefaultLeaseClock = BootClock;

/// Cheaper to read than [`BootClock`]. Its rate was measured when it was created, and is assumed to be right within the
/// margin. The behavior of the processor's counter during suspend differs between machines; if machines are suspended,
/// hold leases by [`BootClock`].
impl LeaseClock for PreciseClock {}

impl LeaseClock for ManualClock {}

#[cfg(target_os = "linux")]
#[inline(always)]
fn linux_nanos(clock: rustix::time::ClockId) -> Timestamp {
    Timestamp::from_nanos(nanos_of(rustix::time::clock_gettime(clock)))
}

/// Clocks that count from the start of the machine never read before it.
#[cfg(target_os = "linux")]
#[inline(always)]
fn nanos_of(time: rustix::time::Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A clock that moves only when set, in either direction: for tests.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    set_to: Arc<AtomicU64>,
}

impl ManualClock {
    /// Creates a clock that reads [`Timestamp::EPOCH`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a clock that reads `start`.
    pub fn at(start: Timestamp) -> Self {
        Self { set_to: Arc::new(AtomicU64::new(start.as_nanos())) }
    }

    /// Advances the clock.
    pub fn advance(&self, by: Duration) {
        let next = self.now() + by;
        self.set(next);
    }

    /// Sets the clock, backward as well as forward.
    pub fn set(&self, now: Timestamp) {
        self.set_to.store(now.as_nanos(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.set_to.load(Ordering::SeqCst))
    }
}

fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_agree_with_civil_time() {
        let wall = WallClock.now();
        for now in [PreciseClock::new().now(), CoarseClock::start().now()] {
            let apart = now.since(wall).max(wall.since(now));
            assert!(apart < Duration::from_secs(1), "{apart:?}");
        }
    }

    #[test]
    fn the_coarse_clock_never_runs_ahead_and_stops_with_its_last_clone() {
        let precise = PreciseClock::new();
        let coarse = CoarseClock::start();
        let weak = Arc::downgrade(&coarse.wound);
        let ahead = coarse.now().since(precise.now());
        assert!(ahead < Duration::from_millis(1), "two anchors apart by {ahead:?}");
        drop(coarse);
        for _ in 0..1_000 {
            if weak.upgrade().is_none() {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("the winding thread is still there");
    }
}

//! The telemetry of all decisions: counters, latencies, denials.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use throttlekit::clock::{Clock, WallClock};
use throttlekit::internals::Mutex;
use throttlekit::observe::Event;
use throttlekit::rate::Timestamp;
use throttlekit::{Decision, Guarantee};
use throttlekit_telemetry::{Counts, OTHER, PolicyCounts, Telemetry, Top};

use super::denials::{Denial, Denials};
use super::key_display::KeyDisplay;
use super::latency::{Latency, SLICE, Summary};
use super::watch::{Watch, Watchers};
use crate::engine::DecisionObserver;
use crate::share::TooManyWatchers;

/// Options of the telemetry.
#[derive(Clone, Debug)]
pub struct TelemetryOptions {
    /// Maximum number of policies with labels of their own; all later ones are counted as `other`.
    pub policies_max: usize,
    /// Number of busiest keys that are counted, over all policies.
    pub top_keys: usize,
    /// Capacity of the event queue of the telemetry's thread; events beyond it are counted, and missing from lists of
    /// keys.
    pub queue: usize,
    /// Shows keys as hashes in the monitor.
    pub hash_keys: bool,
    /// Name of this instance.
    pub node_id: String,
}

impl Default for TelemetryOptions {
    fn default() -> Self {
        Self { policies_max: 256, top_keys: 1_024, queue: 8_192, hash_keys: false, node_id: String::new() }
    }
}

/// Observes every decision, and reports to metrics, the monitor and streams of denials.
pub struct ServerTelemetry {
    telemetry: Telemetry,
    seen: Box<[OnceLock<Box<PolicyRecord>>]>,
    denials: Arc<Denials>,
    store: Mutex<StoreRecord>,
    options: TelemetryOptions,
}

/// Data of a policy in addition to its counts.
pub(super) struct PolicyRecord {
    latency: Latency,
    shadow_denied: AtomicU64,
    /// Guarantee of the last decision, and its bound if it has one.
    worth: AtomicU64,
}

/// Time since when the store is unavailable, if it is, and the number of outages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreRecord {
    pub(super) away_since: Option<Timestamp>,
    pub(super) went_away: u64,
}

/// One policy, as seen in its decisions.
pub(super) struct PolicySnapshot {
    pub(super) counts: PolicyCounts,
    pub(super) latency: Summary,
    pub(super) cumulative: (f64, u64, Vec<(f64, u64)>),
    pub(super) shadow_denied: u64,
    pub(super) worth: Option<Guarantee>,
}

impl ServerTelemetry {
    /// Starts the telemetry's thread, and one that cuts minutes into slices.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn start(options: TelemetryOptions) -> io::Result<Arc<Self>> {
        let denials = Arc::new(Denials::new(options.hash_keys));
        let noted = denials.clone();
        let telemetry = Telemetry::builder()
            .policies_max(options.policies_max)
            .top_keys(options.top_keys)
            .queue(options.queue)
            .subscribe(move |event: &Event<'_>| noted.note(event))
            .subscribe(super::logs::denied)
            .start()?;
        let seen = (0..telemetry.counts().places()).map(|_| OnceLock::new()).collect();
        let this = Arc::new(Self { telemetry, seen, denials, store: Mutex::default(), options });
        let cut = Arc::downgrade(&this);
        thread::Builder::new().name("throttlekit-latency".into()).spawn(move || cut_slices(&cut))?;
        Ok(this)
    }

    /// Returns the exact counters, for other exporters.
    pub fn counts(&self) -> Counts {
        self.telemetry.counts()
    }

    /// Streams denials by policies for which `wants` returns true. The telemetry's thread calls it, for each denial.
    ///
    /// # Errors
    ///
    /// If the maximum number of watchers is reached.
    pub fn watch(
        &self,
        wants: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<Watch, TooManyWatchers> {
        self.denials.watchers.watch(Box::new(wants))
    }

    /// Ends every watch, so that a stopping server need not wait for them.
    pub fn close(&self) {
        self.denials.watchers.close();
    }

    /// Waits until lists of keys and denials include all earlier decisions, for at most `wait`.
    pub fn flush(&self, wait: Duration) -> bool {
        self.telemetry.flush(wait)
    }

    pub(super) fn options(&self) -> &TelemetryOptions {
        &self.options
    }

    pub(super) fn keys(&self) -> &KeyDisplay {
        self.denials.keys()
    }

    pub(super) fn top(&self) -> Top {
        self.telemetry.top()
    }

    pub(super) fn recent(&self) -> Vec<Denial> {
        self.denials.recent()
    }

    pub(super) fn watchers(&self) -> &Watchers {
        &self.denials.watchers
    }

    pub(super) fn store(&self) -> StoreRecord {
        *self.store.lock()
    }

    /// Records whether the store responds. If that has just changed, returns the time since when it was unavailable.
    pub(super) fn store_serves(&self, serves: bool) -> Option<Timestamp> {
        let mut store = self.store.lock();
        let (was_away, now) = (store.away_since, WallClock.now());
        match (was_away, serves) {
            (None, false) => {
                (store.away_since, store.went_away) = (Some(now), store.went_away + 1);
                Some(now)
            }
            (Some(_), true) => store.away_since.take(),
            _ => None,
        }
    }

    /// Returns every policy with requests, by name; `other` last.
    pub(super) fn policies(&self) -> Vec<PolicySnapshot> {
        let mut counts = self.counts().policies();
        counts.sort_by(|a, b| (a.policy() == OTHER, a.policy()).cmp(&(b.policy() == OTHER, b.policy())));
        counts.into_iter().map(|counts| self.policy(counts)).collect()
    }

    fn policy(&self, counts: PolicyCounts) -> PolicySnapshot {
        // It may have been counted and not yet timed.
        let seen = self.seen(counts.place());
        PolicySnapshot {
            counts,
            latency: seen.latency.summary(),
            cumulative: seen.latency.cumulative(),
            shadow_denied: seen.shadow_denied.load(Relaxed),
            worth: worth_of(seen.worth.load(Relaxed)),
        }
    }

    #[inline]
    fn seen(&self, place: usize) -> &PolicyRecord {
        self.seen[place].get_or_init(Box::default)
    }

    fn cut(&self) {
        for seen in self.seen.iter().filter_map(OnceLock::get) {
            seen.latency.cut();
        }
    }
}

impl DecisionObserver for ServerTelemetry {
    /// Counts a denial in shadow mode by its outcome: allowed.
    #[inline]
    fn decided(&self, event: &Event<'_>, shadow: bool, took: Duration) {
        #[cfg(feature = "otlp")]
        super::spans::note(event);
        let passed = shadow && !event.decision.allowed;
        let place = if passed {
            let decision = Decision { allowed: true, ..event.decision };
            self.telemetry.observe_at(&Event { decision, denied_by: None, limit_name: None, ..*event })
        } else {
            self.telemetry.observe_at(event)
        };
        let seen = self.seen(place);
        seen.latency.record(took);
        if passed {
            seen.shadow_denied.fetch_add(1, Relaxed);
        }
        // Written only when it changes, so that threads can share the cache line.
        let worth = worth_as(event.guarantee);
        if seen.worth.load(Relaxed) != worth {
            seen.worth.store(worth, Relaxed);
        }
    }
}

impl Default for PolicyRecord {
    fn default() -> Self {
        Self { latency: Latency::new(), shadow_denied: AtomicU64::new(0), worth: AtomicU64::new(0) }
    }
}

fn cut_slices(this: &Weak<ServerTelemetry>) {
    loop {
        thread::sleep(SLICE);
        let Some(this) = this.upgrade() else { return };
        this.cut();
    }
}

/// A guarantee in one integer: its kind in the low bits from 1 on, its bound above them. Zero: none yet.
const WORTH_BITS: u32 = 3;
/// Maximum bound that is reported; larger ones are reported as this.
const WORTH_MAX: u64 = u64::MAX >> WORTH_BITS;

const fn worth_as(guarantee: Guarantee) -> u64 {
    match guarantee {
        Guarantee::Exact => 1,
        Guarantee::Bounded(over) if over < WORTH_MAX => 2 | (over << WORTH_BITS),
        Guarantee::Bounded(_) => 2 | (WORTH_MAX << WORTH_BITS),
        Guarantee::Local => 3,
        Guarantee::Open => 4,
        Guarantee::Closed => 5,
    }
}

const fn worth_of(word: u64) -> Option<Guarantee> {
    Some(match word & ((1 << WORTH_BITS) - 1) {
        1 => Guarantee::Exact,
        2 => Guarantee::Bounded(word >> WORTH_BITS),
        3 => Guarantee::Local,
        4 => Guarantee::Open,
        5 => Guarantee::Closed,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarantee_comes_back_from_its_word() {
        let all = [
            Guarantee::Exact,
            Guarantee::Bounded(0),
            Guarantee::Bounded(77),
            Guarantee::Local,
            Guarantee::Open,
        ];
        for guarantee in all.into_iter().chain([Guarantee::Closed]) {
            assert_eq!(worth_of(worth_as(guarantee)), Some(guarantee));
        }
        assert_eq!(worth_of(worth_as(Guarantee::Bounded(u64::MAX))), Some(Guarantee::Bounded(WORTH_MAX)));
        assert_eq!(worth_of(0), None);
    }
}

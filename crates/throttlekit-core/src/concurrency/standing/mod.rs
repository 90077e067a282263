//! The rule for latencies that vary by the call: a queue stands where even the fastest calls wait.

use super::Sample;
use super::groups::{Filling, GROUP, Groups, Moments};
use super::windowed_min::WindowedMin;
use crate::time::nanos;

/// A call that met this part of the limit or more was admitted at the limit; one that met this part or less, well below
/// it.
const AT_LIMIT: f64 = 0.9;
const WELL_BELOW: f64 = 0.6;
/// A dip goes down to this fraction of the limit. With a queue at both levels they differ by four tenths of the mean
/// latency, which is above [`LOWER_ABOVE`]: so a queue that is mistaken for the latency without one does not stay.
const DIP: f64 = 0.6;
/// The limit is lowered when the fastest calls wait for more than this part of the mean latency, and raised when they
/// wait for less than that part. Between them it stays: with every slot in use that is 1.2 to 1.5 of the backend's
/// capacity.
const LOWER_ABOVE: f64 = 0.35;
const RAISE_BELOW: f64 = 0.17;
const _: () = assert!(RAISE_BELOW < LOWER_ABOVE && LOWER_ABOVE < 1.0 - DIP && DIP <= WELL_BELOW);
/// Number of standard errors by which the wait must be above that: nothing is lowered without confidence.
const CONFIDENCE: f64 = 2.0;
/// The same for calls that take longer on average, as on a backend that all calls share: there the fastest hardly wait.
const SLOWER_ABOVE: f64 = 0.2;
const SLOWER_AGAIN: f64 = 0.15;
const SLOWER_CONFIDENCE: f64 = 1.5;
const SLOWER_GROUPS: f64 = 8.0;
/// Such calls must be slower in their fastest as well, by this factor.
const SLOWER_ALL: f64 = 1.4;
/// And by less than this fraction of the increase of their mean. More is a queue that all wait in: the fastest measure
/// its length, and means of long tails measure it worse.
const SLOWER_FASTEST: f64 = 0.5;
/// Target of lowering, as a fraction of the capacity of the backend, and the largest and smallest cut of one move.
const AIM: f64 = 1.4;
const SLOWER_AIM: f64 = 1.3;
const CUT_MOST: f64 = 0.8;
const CUT_LEAST: f64 = 0.9;
/// Growth factors: at the start and far below where it was lowered last, and otherwise.
const FAST: f64 = 1.5;
const SLOW: f64 = 1.1;
/// Number of consecutive rises without a cut after which the last cut is forgotten.
const RISES_FORGET: u32 = 6;
/// Groups by which a limit is judged: at the start, later, one for each `n` of the limit; and the number without a
/// verdict after which they are gathered again.
const GROUPS_START: f64 = 2.0;
const GROUPS_MIN: f64 = 4.0;
const GROUP_PER_LIMIT: f64 = 16.0;
const GROUPS_MAX: f64 = 32.0;
/// Groups from well below the limit that make one reading, and the number of readings for the minimum.
const READING: f64 = 4.0;
const READINGS: usize = 6;
/// Groups in a reading between two cuts, which is longer.
const LOOK: f64 = 12.0;
/// A reading that is further above the least of them than this part of the mean latency was in a queue itself.
const CLEAN: f64 = 0.1;
/// Number of such readings averaged in the mean latency without a queue.
const UNQUEUED_MAX: f64 = 16.0;
/// Number of calls over which latencies are averaged, and the largest multiple of the mean that one counts for.
const MEAN_CALLS: f64 = 1_024.0;
const CAP: f64 = 3.0;
/// Calls without a reading, fixed and per unit of the limit, after which the limit dips for one.
const STALE_CALLS: u32 = 512;
const STALE_PER_LIMIT: u32 = 24;
/// Each dip that finds calls unchanged doubles that, up to this factor: a dip costs a backend with a few very long
/// calls most of its admissions.
const STALE_TIMES_MAX: u32 = 8;
/// The same before the first reading, per unit of the limit.
const FIRST_PER_LIMIT: f64 = 1.0;
/// Calls, fixed and per unit of the limit, after which a dip ends, also without a reading.
const DIP_CALLS: u32 = 160;
const DIP_PER_LIMIT: u32 = 2;
/// Calls that wait less than [`RAISE_BELOW`] relative to those of a dip, and take longer by less than this fraction of
/// the mean latency, do not queue: work itself is slower than it was.
const ALIKE: f64 = 0.0;
const ALIKE_FASTEST: f64 = 0.15;
/// Fewer drops than this are no sign of load: every backend fails now and then.
const DROPS_TOLERATED: f64 = 0.05;
const BACK_OFF_MOST: f64 = 0.5;

/// Compares calls that were admitted at the limit with calls that were admitted well below it.
///
/// Without a queue the two differ by chance alone, whatever the latencies. With one, those at the limit wait, the
/// fastest of them as well, and the fastest of a few calls hardly vary. Where the limit is never reached nothing is
/// learned, and nothing is lowered.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    mean: Moments,
    at_limit: Groups,
    filling_at_limit: Filling,
    below: Groups,
    filling_below: Filling,
    filling_ended: Filling,
    /// Latency of the fastest calls without a queue, the minimum and the usual.
    fastest: WindowedMin<READINGS>,
    usual: Moments,
    /// Mean latency of calls without a queue.
    unqueued: Moments,
    phase: Phase,
    starting: bool,
    rises: u32,
    /// The last move was a cut, and a dip has given a reading since.
    lowered: bool,
    looked: bool,
    /// The mean latency caused the cut, and not the fastest calls.
    by_mean: bool,
    /// The level of the last cut.
    careful_from: f64,
    /// Endings so far, which wrap; those to skip; and those since the last reading.
    endings: u32,
    passing: u32,
    unread: u32,
    in_flight: u32,
    /// Factor by which the time until the next dip has grown.
    stale_times: u32,
    /// Limit before the dip.
    allowed: u32,
    calls: u32,
    drops: u32,
}

// Hold => Hold | Dip; Dip => Hold.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Hold,
    /// Well below the level it came from, for a reading.
    Dip {
        from: f64,
    },
}

/// Difference between calls at the limit and those well below it, as fractions of the mean latency.
struct Contrast {
    wait: f64,
    wait_error: f64,
    slower: f64,
    slower_error: f64,
    /// The same for the fastest relative to their usual latency, and that as a multiple.
    fastest_slower: f64,
    ratio: f64,
}

impl Standing {
    /// Starts with only the latency `alone`, if known. `starting` if the limit is rising for the first time.
    pub(super) fn new(starting: bool, alone: Option<f64>, in_flight: u32) -> Self {
        let mut fastest = WindowedMin::new();
        alone.into_iter().for_each(|latency| fastest.push(latency));
        Self {
            mean: Moments::default(),
            at_limit: Groups::default(),
            filling_at_limit: Filling::default(),
            below: Groups::default(),
            filling_below: Filling::default(),
            filling_ended: Filling::default(),
            fastest,
            usual: Moments::default(),
            unqueued: Moments::default(),
            phase: Phase::Hold,
            starting,
            rises: 0,
            lowered: false,
            looked: false,
            by_mean: false,
            careful_from: f64::INFINITY,
            endings: 0,
            // The first calls to end are the short ones.
            passing: 2 * in_flight,
            unread: 0,
            in_flight,
            stale_times: 1,
            allowed: 0,
            calls: 0,
            drops: 0,
        }
    }

    /// Resets the latency without a queue, and dips next to measure it.
    pub(super) fn recalibrate(&mut self) {
        self.fastest.clear();
        (self.usual, self.unqueued) = Default::default();
    }

    /// The limit was multiplied by `times`: what was admitted before has met another one.
    pub(super) fn moved(&mut self, times: f64) {
        let in_flight = f64::from(self.in_flight);
        self.passing = match self.phase {
            _ if times == 1.0 => 0,
            // A reading of means must exclude calls admitted before it. Otherwise those are recognized by the limit at
            // that time, and only the pause before the next call passes.
            Phase::Dip { .. } if self.lowered && self.by_mean => in_flight as u32,
            Phase::Dip { .. } => (in_flight * (1.0 - times)) as u32,
            Phase::Hold => (in_flight * times.max(1.0)) as u32,
        };
        self.filling_at_limit = Filling::default();
    }

    /// Records a successful call. Returns the next limit, if it changes.
    pub(super) fn success(&mut self, sample: Sample, limit: f64) -> Option<f64> {
        let latency = nanos(sample.latency) as f64;
        self.endings = self.endings.wrapping_add(1);
        self.in_flight = sample.in_flight;
        self.mean.add(latency, MEAN_CALLS);
        if self.passes() {
            return None;
        }
        if let Some(lower) = self.round_of_drops(limit) {
            return Some(lower);
        }
        self.unread += 1;
        match self.phase {
            Phase::Hold => self.held(latency, sample, limit),
            Phase::Dip { from } => self.dipped(latency, sample, limit, from),
        }
    }

    /// Records a dropped call. Returns the next limit, if it changes.
    pub(super) fn dropped(&mut self, limit: f64) -> Option<f64> {
        if self.passes() {
            return None;
        }
        self.drops += 1;
        self.round_of_drops(limit)
    }

    fn passes(&mut self) -> bool {
        let passes = self.passing > 0;
        self.passing = self.passing.saturating_sub(1);
        passes
    }

    /// Reduces the limit after drops. They indicate overload, and nothing about latency.
    fn round_of_drops(&mut self, limit: f64) -> Option<f64> {
        self.calls += 1;
        if f64::from(self.calls) < limit.max(f64::from(GROUP)) {
            return None;
        }
        let dropped = f64::from(self.drops) / f64::from(self.calls);
        let many = self.drops > 1 && dropped > DROPS_TOLERATED;
        (self.calls, self.drops) = (0, 0);
        many.then(|| {
            self.restart();
            limit * (0.9 * (1.0 - dropped)).max(BACK_OFF_MOST)
        })
    }

    fn held(&mut self, latency: f64, sample: Sample, limit: f64) -> Option<f64> {
        self.allowed = sample.allowed;
        let level = f64::from(sample.in_flight) / f64::from(sample.allowed.max(1));
        if level <= WELL_BELOW {
            self.read(latency, true);
            return None;
        }
        if level < AT_LIMIT {
            return None;
        }
        if let Some(group) = self.filling_at_limit.add(latency, self.cap(), self.endings) {
            self.at_limit.add(group);
            if let Some(aim) = self.decide(limit) {
                return Some(aim);
            }
        }
        let unread_max = f64::from(STALE_CALLS) + f64::from(STALE_PER_LIMIT * self.stale_times) * limit;
        let unread = f64::from(self.unread);
        let first = self.unqueued.count == 0.0 && unread > FIRST_PER_LIMIT * limit;
        let stale = first || unread > unread_max;
        stale.then(|| self.dip(limit))
    }

    fn dip(&mut self, limit: f64) -> f64 {
        self.phase = Phase::Dip { from: limit };
        self.unread = 0;
        (self.below, self.filling_below, self.filling_ended) = Default::default();
        DIP * limit
    }

    /// Only calls that were admitted in the dip count. Where the limit could not dip, those of any time do.
    fn dipped(&mut self, latency: f64, sample: Sample, limit: f64, from: f64) -> Option<f64> {
        let dips = f64::from(sample.allowed) <= 0.8 * f64::from(self.allowed) || limit >= from;
        let read = self.read(latency, dips);
        let over = f64::from(self.unread) > f64::from(DIP_CALLS) + f64::from(DIP_PER_LIMIT) * from;
        (read || over).then(|| {
            self.phase = Phase::Hold;
            self.unread = 0;
            from
        })
    }

    /// Records a call from well below the limit. Returns whether that completes a reading.
    ///
    /// Of those that `met` the lower level from the start the short ones end first: they measure the fastest latency,
    /// and not the mean. For that all calls that end there count.
    fn read(&mut self, latency: f64, met: bool) -> bool {
        let (cap, at) = (self.cap(), self.endings);
        if let Some(group) = self.filling_ended.add(latency, cap, at) {
            self.below.mean.add(group.mean, f64::INFINITY);
        }
        if !met {
            return false;
        }
        let Some(group) = self.filling_below.add(latency, cap, at) else { return false };
        self.below.fastest.add(group.fastest, f64::INFINITY);
        let looks = self.lowered && self.phase != Phase::Hold;
        if self.below.count() < if looks { LOOK } else { READING } {
            return false;
        }
        let below = core::mem::take(&mut self.below);
        self.learn(below);
        self.unread = 0;
        true
    }

    /// Learns the latency without a queue. A level that is itself in a queue carries no information about it. A dip
    /// counts all the same: where work itself is slower, all of them are like that.
    fn learn(&mut self, below: Groups) {
        let looks = self.lowered && self.phase != Phase::Hold;
        self.looked |= looks;
        if looks && self.is_slower_by_itself(&below) {
            self.recalibrate();
            self.at_limit = Groups::default();
            (self.lowered, self.careful_from) = (false, f64::INFINITY);
        }
        let lowest = self.fastest.min().unwrap_or(f64::INFINITY);
        let clean = below.fastest.mean <= lowest + CLEAN * self.mean.mean;
        if self.phase != Phase::Hold {
            self.stale_times = if clean && !looks { (2 * self.stale_times).min(STALE_TIMES_MAX) } else { 1 };
        }
        if clean || self.phase != Phase::Hold {
            self.fastest.push(below.fastest.mean);
        }
        if clean && below.mean.count > 0.0 {
            self.unqueued.add(below.mean.mean, UNQUEUED_MAX);
            self.usual.add(below.fastest.mean, UNQUEUED_MAX);
        }
    }

    /// Checks whether calls at the limit are like those of the dip, and both slower than before: then neither queue.
    fn is_slower_by_itself(&self, below: &Groups) -> bool {
        let (at, mean) = (&self.at_limit, self.mean.mean);
        let waits = at.fastest.mean - below.fastest.mean;
        let longer = at.mean.mean - below.mean.mean;
        let alike = at.fastest.mean < (1.0 + ALIKE_FASTEST) * below.fastest.mean && longer < ALIKE * mean;
        let slower = below.fastest.mean > SLOWER_ALL * self.usual.mean;
        at.count() >= GROUPS_MIN && waits < RAISE_BELOW * mean && alike && slower
    }

    fn cap(&self) -> f64 {
        CAP * self.mean.mean
    }

    fn decide(&mut self, limit: f64) -> Option<f64> {
        let groups = self.at_limit.count();
        let enough = if self.starting { GROUPS_START } else { GROUPS_MIN }.max(limit / GROUP_PER_LIMIT);
        let fastest = self.fastest.min().filter(|_| groups >= enough)?;
        let contrast = self.contrast(fastest);
        if let Some((aim, by_mean)) = contrast.lowers(groups) {
            self.by_mean = by_mean;
            return Some(self.lower(limit, aim));
        }
        if self.unqueued.count > 0.0 && contrast.is_free() {
            return Some(self.raise(limit));
        }
        if groups >= 2.0 * GROUPS_MIN {
            (self.starting, self.rises) = (false, 0);
        }
        if groups >= GROUPS_MAX.max(2.0 * enough) {
            self.at_limit = Groups::default();
        }
        None
    }

    fn contrast(&self, fastest: f64) -> Contrast {
        let (at, mean) = (&self.at_limit, self.mean.mean);
        // What is well below the limit varies as what is at it: of one reading, and of all that are averaged.
        let wait_error = libm::sqrt(at.fastest.variance() * (1.0 / at.count() + 1.0 / READING));
        let read = READING * self.unqueued.count.max(1.0);
        let slower_error = libm::sqrt(at.mean.variance() * (1.0 / at.count() + 1.0 / read));
        Contrast {
            wait: (at.fastest.mean - fastest) / mean,
            wait_error: wait_error / mean,
            slower: (at.mean.mean - self.unqueued.mean) / mean,
            slower_error: slower_error / mean,
            fastest_slower: (at.fastest.mean - self.usual.mean) / mean,
            ratio: at.fastest.mean / self.usual.mean,
        }
    }

    /// Lowers the limit, a second time only after a reading well below it: latency may have another cause.
    fn lower(&mut self, limit: f64, aim: f64) -> f64 {
        if self.lowered && !self.looked {
            return self.dip(limit);
        }
        self.restart();
        (self.lowered, self.careful_from) = (true, limit);
        limit * aim.clamp(CUT_MOST, CUT_LEAST)
    }

    fn raise(&mut self, limit: f64) -> f64 {
        let fast = self.starting || (self.rises > 1 && FAST * limit < CUT_MOST * self.careful_from);
        if self.starting {
            // A level that does not queue is well below the next one.
            self.learn(self.at_limit);
            self.unread = 0;
        }
        let (starting, rises) = (self.starting, self.rises + 1);
        self.restart();
        (self.starting, self.rises) = (starting, rises);
        if rises > RISES_FORGET {
            self.careful_from = f64::INFINITY;
        }
        if fast { FAST * limit } else { (SLOW * limit).max(limit + 1.0) }
    }

    /// The limit moves, and what is known of calls at the limit was of another one.
    fn restart(&mut self) {
        self.at_limit = Groups::default();
        self.phase = Phase::Hold;
        self.starting = false;
        self.rises = 0;
        (self.lowered, self.looked) = (false, false);
    }
}

impl Contrast {
    /// Returns the factor by which to lower, if the calls at the limit surely wait, or are surely slower on average;
    /// and whether it is the mean that shows it.
    ///
    /// With every slot in use the limit is what the backend takes times the mean latency over the mean without a wait
    /// (Little's law).
    fn lowers(&self, groups: f64) -> Option<(f64, bool)> {
        let waits = self.wait - CONFIDENCE * self.wait_error > LOWER_ABOVE;
        if groups >= GROUPS_MIN && waits {
            return Some((AIM * (1.0 - self.wait).max(0.0), false));
        }
        let slower = self.slower - SLOWER_CONFIDENCE * self.slower_error > SLOWER_ABOVE;
        let shared = self.ratio > SLOWER_ALL && self.fastest_slower < SLOWER_FASTEST * self.slower;
        let surely = groups >= SLOWER_GROUPS && slower && shared;
        surely.then_some((SLOWER_AIM * (1.0 - self.slower).max(0.0), true))
    }

    /// Returns whether nothing speaks against more. That needs no confidence: what is too much will be lowered.
    fn is_free(&self) -> bool {
        self.wait < RAISE_BELOW && self.slower - self.slower_error < SLOWER_AGAIN
    }
}

#[cfg(test)]
mod tests;

//! The limits of one upstream and key, as its responses report them.

mod bound;
mod pace;
mod settings;
#[cfg(test)]
mod tests;

use std::time::Duration;

use http::StatusCode;
use throttlekit_core::Timestamp;

use super::reported::{Quota, Reported};
use crate::admit::{Axis, LimitInfo};
use bound::Bound;
use pace::Pace;
pub(super) use pace::WHOLE;
pub(super) use settings::LearnSettings;

/// Pause after the first refusal without a delay. Each further one doubles it.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// Units of one call that are counted at most.
const COST_MAX: u64 = 1 << 53;

/// The limits of one upstream and key, as its responses report them: when the next call may start.
///
/// Pure: state in, time in, wait out. An [`Upstream`](super::Upstream) has a clock and a lock around it.
///
/// * **Lowers at once.** A refusal (429, 503, 529) pauses all calls for its delay; without one, for 1 s, 2 s, 4 s and so
///   on. Reported units that are left bound the calls started since that call, until the reset. A reported limit below the
///   ceiling becomes the limit. A 429 without a reported limit lowers it by an eighth, once for all calls in flight.
/// * **Raises carefully.** Only after successes, evenly: from nothing to the ceiling in
///   [`raise_over`](LearnSettings::raise_over).
/// * **Never above the ceiling.** What was learned only delays calls. The ceiling is enforced by the limiter in front, which
///   no response can change.
/// * **Never stops for long.** If calls have waited for [`max_pause`](LearnSettings::max_pause) because of responses, the
///   next one may start, whatever they report.
/// * **Forgets** after [`expires`](LearnSettings::expires) without information.
///
/// A clock that steps back extends no wait beyond `max_pause` from then on.
#[derive(Clone, Debug)]
pub(super) struct Learned {
    settings: LearnSettings,
    requests: Units,
    tokens: Units,
    pause_until: Timestamp,
    /// Refusals since the last success, counted once for all calls in flight.
    refusals: u32,
    /// Position at the last refusal that was counted.
    refused_at: u64,
    /// Last time that a response had information.
    informed_at: Timestamp,
    /// First time that a call had to wait since the last one started.
    stopped_since: Option<Timestamp>,
    started_at: Timestamp,
    /// Last reading of the clock.
    seen: Timestamp,
}

/// The position of a call among those started, to which its response is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    requests: u64,
    tokens: u64,
    /// State of the wait before the call, for a call that is not made.
    stopped_since: Option<Timestamp>,
}

/// The room of an upstream for one call, by which one of several is picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headroom {
    /// Time until the call may start.
    pub(super) wait: Duration,
    /// Part of its limits that is left, in millionths.
    pub(super) free_ppm: u32,
    /// Time of the last call.
    pub(super) last_call: Timestamp,
}

impl Learned {
    /// Creates a state in which nothing is learned, below these limits.
    pub(super) fn new(limits: &[LimitInfo], settings: LearnSettings) -> Self {
        let of = |axis: Axis| limits.iter().filter(move |limit| limit.axis == axis);
        Self {
            settings,
            requests: Units::new(Pace::of(of(Axis::Rate))),
            tokens: Units::new(Pace::of(of(Axis::Cost))),
            pause_until: Timestamp::EPOCH,
            refusals: 0,
            refused_at: 0,
            informed_at: Timestamp::EPOCH,
            stopped_since: None,
            started_at: Timestamp::EPOCH,
            seen: Timestamp::EPOCH,
        }
    }

    /// Starts a call with this estimate of tokens, or returns how long to wait.
    pub(super) fn start(&mut self, tokens: u64, now: Timestamp) -> Result<Sent, Duration> {
        self.see(now);
        let tokens = tokens.min(COST_MAX);
        let ready_at = self.ready_at(tokens, now);
        if ready_at > now {
            self.stopped_since.get_or_insert(now);
            return Err(ready_at.since(now));
        }
        let stopped_since = self.stopped_since.take();
        self.started_at = now;
        self.requests.start(1, now);
        self.tokens.start(tokens, now);
        Ok(Sent { stopped_since, ..self.position() })
    }

    /// Takes back a call that was started and not made, because the limiter denied it.
    pub(super) fn cancel(&mut self, sent: Sent, tokens: u64) {
        self.requests.cancel(1);
        self.tokens.cancel(tokens.min(COST_MAX));
        self.stopped_since = self.stopped_since.or(sent.stopped_since);
    }

    /// Returns the position after all calls started so far.
    pub(super) fn position(&self) -> Sent {
        Sent { requests: self.requests.started, tokens: self.tokens.started, stopped_since: None }
    }

    /// Learns from the response to a call.
    pub(super) fn report(&mut self, reported: &Reported, sent: Sent, now: Timestamp) {
        self.see(now);
        if self.is_expired(now) {
            self.forget();
        }
        if reported.is_informative() {
            self.informed_at = now;
        }
        let max = self.settings.max_pause;
        self.requests.learn(reported.requests, sent.requests, max, now);
        self.tokens.learn(reported.all_tokens(), sent.tokens, max, now);
        if reported.is_refusal() {
            self.refuse(reported, sent, now);
        } else if let Some(delay) = reported.retry_after {
            self.pause(delay, now);
        } else if reported.status.is_success() {
            self.succeed(sent, now);
        }
    }

    /// Pauses because another process does. Bounded as a pause of its own is.
    pub(super) fn pause_with_others(&mut self, rest: Duration, now: Timestamp) {
        self.see(now);
        if self.is_expired(now) {
            self.forget();
        }
        self.informed_at = now;
        self.pause(rest, now);
    }

    /// Returns the limit of requests in a minute, rounded. `None` if there is no ceiling.
    pub(super) fn requests_per_minute(&self, now: Timestamp) -> Option<u64> {
        self.pace_now(&self.requests, now).per_minute()
    }

    /// Returns the limit of tokens in a minute, rounded. `None` if there is no ceiling.
    pub(super) fn tokens_per_minute(&self, now: Timestamp) -> Option<u64> {
        self.pace_now(&self.tokens, now).per_minute()
    }

    /// Returns the parts of the ceilings on requests and on tokens that are in use, of [`WHOLE`].
    pub(super) fn parts(&self, now: Timestamp) -> [u32; 2] {
        [&self.requests, &self.tokens].map(|units| self.pace_now(units, now).part())
    }

    /// Returns the room for a call with this estimate of tokens.
    pub(super) fn headroom(&self, tokens: u64, now: Timestamp) -> Headroom {
        let wait = self.ready_at(tokens.min(COST_MAX), now).since(now);
        let free = self.requests.part_left(now).min(self.tokens.part_left(now));
        let free = if self.is_expired(now) { WHOLE } else { free };
        let free_ppm = u64::from(free) * 1_000_000 / u64::from(WHOLE);
        Headroom { wait, free_ppm: free_ppm as u32, last_call: self.started_at }
    }

    /// Returns when a call may start, at most `max_pause` after calls began to wait.
    fn ready_at(&self, tokens: u64, now: Timestamp) -> Timestamp {
        if self.is_expired(now) {
            return now;
        }
        let waits = [self.pause_until, self.requests.ready_at(1, now), self.tokens.ready_at(tokens, now)];
        let ready_at = waits.into_iter().fold(now, Timestamp::max);
        let since = self.stopped_since.map_or(now, |since| since.min(now));
        ready_at.min(since + self.settings.max_pause).max(now)
    }

    /// Handles a refusal. Those of calls that were in flight at the last one are the same event: they may extend the pause
    /// by their own delay, and lower nothing.
    fn refuse(&mut self, reported: &Reported, sent: Sent, now: Timestamp) {
        let is_new = self.is_after_refusal(sent);
        if is_new {
            self.refusals = self.refusals.saturating_add(1);
            self.refused_at = self.requests.started;
            if reported.status == StatusCode::TOO_MANY_REQUESTS && !reported.has_limit() {
                self.requests.pace.guess_lower(now);
                self.tokens.pace.guess_lower(now);
            }
        }
        match reported.retry_after {
            Some(delay) => self.pause(delay, now),
            None if is_new => self.pause(self.backoff(), now),
            None => {}
        }
    }

    fn backoff(&self) -> Duration {
        let doublings = self.refusals.saturating_sub(1).min(16);
        BACKOFF_MIN.saturating_mul(1 << doublings)
    }

    fn pause(&mut self, delay: Duration, now: Timestamp) {
        let until = now + delay.min(self.settings.max_pause);
        self.pause_until = self.pause_until.max(until);
        self.requests.pace.pause(self.pause_until);
        self.tokens.pace.pause(self.pause_until);
    }

    /// Handles a success. Those of calls that were in flight at a refusal raise nothing.
    fn succeed(&mut self, sent: Sent, now: Timestamp) {
        if self.is_after_refusal(sent) {
            self.refusals = 0;
            self.requests.pace.raise(&self.settings, now);
            self.tokens.pace.raise(&self.settings, now);
        }
    }

    /// Checks whether a call was started after the last refusal that was counted.
    fn is_after_refusal(&self, sent: Sent) -> bool {
        sent.requests.wrapping_sub(self.refused_at) as i64 > 0
    }

    /// Adapts to a clock that stepped back: what was at most a pause ahead still is.
    fn see(&mut self, now: Timestamp) {
        if now < self.seen {
            let max = self.settings.max_pause;
            self.pause_until = self.pause_until.min(now + max);
            self.stopped_since = self.stopped_since.map(|since| since.min(now));
            (self.informed_at, self.started_at) = (self.informed_at.min(now), self.started_at.min(now));
            self.requests.rewind(max, now);
            self.tokens.rewind(max, now);
        }
        self.seen = now;
    }

    fn is_expired(&self, now: Timestamp) -> bool {
        now.since(self.informed_at) >= self.settings.expires
    }

    fn forget(&mut self) {
        self.requests.forget();
        self.tokens.forget();
        (self.pause_until, self.refusals) = (Timestamp::EPOCH, 0);
    }

    fn pace_now(&self, units: &Units, now: Timestamp) -> Pace {
        if self.is_expired(now) { units.pace.forgotten() } else { units.pace }
    }
}

/// One kind of units: requests or tokens.
#[derive(Clone, Debug)]
struct Units {
    /// Units of all calls started so far.
    started: u64,
    pace: Pace,
    bound: Option<Bound>,
}

impl Units {
    fn new(pace: Pace) -> Self {
        Self { started: 0, pace, bound: None }
    }

    fn ready_at(&self, cost: u64, now: Timestamp) -> Timestamp {
        let bound = self.bound.filter(|bound| !bound.is_over(now));
        let by_bound = bound.map_or(Timestamp::EPOCH, |bound| bound.ready_at(cost, now));
        self.pace.ready_at().max(by_bound)
    }

    fn start(&mut self, cost: u64, now: Timestamp) {
        self.started = self.started.wrapping_add(cost);
        self.pace.start(cost, now);
        if let Some(bound) = &mut self.bound {
            bound.start(cost);
        }
    }

    fn cancel(&mut self, cost: u64) {
        self.started = self.started.wrapping_sub(cost);
        self.pace.cancel(cost);
        if let Some(bound) = &mut self.bound {
            bound.cancel(cost);
        }
    }

    fn learn(&mut self, quota: Option<Quota>, position: u64, max: Duration, now: Timestamp) {
        let Some(quota) = quota else { return };
        self.pace.learn(&quota, now);
        // Calls that were taken back may leave less than at the position.
        let since = self.started.wrapping_sub(position);
        let since = if since as i64 > 0 { since } else { 0 };
        if let Some(later) = Bound::of(&quota, position, since, max, now) {
            self.bound = Some(self.bound.map_or(later, |bound| bound.then(later, now)));
        }
    }

    fn rewind(&mut self, max: Duration, now: Timestamp) {
        self.pace.rewind(max, now);
        if let Some(bound) = &mut self.bound {
            bound.rewind(max, now);
        }
    }

    fn part_left(&self, now: Timestamp) -> u32 {
        let bound = self.bound.filter(|bound| !bound.is_over(now));
        let left = bound.map_or(WHOLE, |bound| bound.part_left(WHOLE, now));
        left.min(self.pace.part())
    }

    fn forget(&mut self) {
        (self.pace, self.bound) = (self.pace.forgotten(), None);
    }
}

/// Returns the nanoseconds of a duration.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

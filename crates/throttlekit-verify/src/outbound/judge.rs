//! The judge: knows the numbers of the ceiling, the admitted calls and the truthful responses, and no state of a limiter.

use std::time::Duration;

use throttlekit::rate::Timestamp;

use super::report::LearnReport;
use super::responses::{Response, Truth};
use super::subject::{Ceilings, Settings};

/// A violation: the check, and the details.
pub(super) type Verdict = Result<(), (&'static str, String)>;

pub(super) struct Judge {
    ceilings: Ceilings,
    settings: Settings,
    /// Time and tokens of each admitted call.
    admitted: Vec<(Timestamp, u64)>,
    /// First denial since the last admission, for any reason.
    waiting_since: Option<Timestamp>,
    /// First denial since the last admission that the ceiling does not explain.
    stopped_since: Option<Timestamp>,
    /// No call may start before, by a truthful response.
    held_until: Timestamp,
    left: Option<Left>,
    /// The latest call to which a response may have reported units that are left.
    newest: usize,
    /// Last time that a response had information, and that one may have had it.
    informed_at: Option<Timestamp>,
    maybe_informed_at: Option<Timestamp>,
    /// Learned limits at the last response, and the limit and time from which they rise.
    lows: [Option<(u64, Timestamp)>; 2],
    limits: [Option<u64>; 2],
}

/// Calls that may be admitted until an instant, counted from the first one of the case.
#[derive(Clone, Copy, Debug)]
struct Left {
    call: usize,
    admitted_max: usize,
    until: Timestamp,
}

impl Judge {
    pub(super) fn new(ceilings: Ceilings, settings: Settings) -> Self {
        let limits = ceilings.per_minute().map(Some);
        Self {
            ceilings,
            settings,
            admitted: Vec::new(),
            waiting_since: None,
            stopped_since: None,
            held_until: Timestamp::EPOCH,
            left: None,
            newest: 0,
            informed_at: None,
            maybe_informed_at: None,
            lows: limits.map(|limit| limit.map(|limit| (limit, Timestamp::EPOCH))),
            limits,
        }
    }

    /// Returns the number of calls admitted so far.
    pub(super) fn calls(&self) -> usize {
        self.admitted.len()
    }

    /// Checks the decision about a call. A denial has the wait, if one was reported.
    pub(super) fn call(
        &mut self,
        tokens: u64,
        decision: Result<(), Option<Duration>>,
        now: Timestamp,
        report: &mut LearnReport,
    ) -> Verdict {
        let ceiling_admits = self.ceiling_admits(tokens, now);
        report.calls += 1;
        match decision {
            Ok(()) => {
                self.admit(tokens, ceiling_admits, now, report)?;
                report.admitted += 1;
            }
            Err(wait) => {
                self.waiting_since.get_or_insert(now);
                if !ceiling_admits {
                    report.at_ceiling += 1;
                    return Ok(());
                }
                report.delayed += 1;
                self.delay(wait, now)?;
            }
        }
        Ok(())
    }

    fn admit(
        &mut self,
        tokens: u64,
        ceiling_admits: bool,
        now: Timestamp,
        report: &mut LearnReport,
    ) -> Verdict {
        if !ceiling_admits {
            return Err(("ceiling", format!("a call of {tokens} tokens was admitted beyond the ceiling")));
        }
        let is_probe = self.waiting_since.is_some_and(|since| now >= since + self.settings.max_pause);
        if now < self.held_until && !is_probe {
            return Err((
                "heed",
                format!("admitted {:?} before a delay was over", self.held_until.since(now)),
            ));
        }
        let exceeded = self.left.filter(|left| now < left.until && self.calls() >= left.admitted_max);
        if let Some(left) = exceeded.filter(|_| !is_probe) {
            return Err(("heed", format!("call {} was admitted beyond {left:?}", self.calls())));
        }
        report.probes += u64::from(is_probe && now < self.held_until);
        (self.waiting_since, self.stopped_since) = (None, None);
        self.admitted.push((now, tokens));
        Ok(())
    }

    fn delay(&mut self, wait: Option<Duration>, now: Timestamp) -> Verdict {
        let since = *self.stopped_since.get_or_insert(now);
        let ends = since + self.settings.max_pause;
        if now >= ends {
            return Err(("stop", format!("stopped for {:?}", now.since(since))));
        }
        match wait {
            Some(wait) if now + wait <= ends => {}
            other => return Err(("stop", format!("told to wait {other:?} after {:?}", now.since(since)))),
        }
        let expires = self.settings.expires;
        if self.maybe_informed_at.is_none_or(|at| now.since(at) >= expires) {
            return Err(("stop", "delayed without a response that is remembered".into()));
        }
        Ok(())
    }

    /// Checks whether the ceiling admits a call, by the sums over all intervals.
    fn ceiling_admits(&self, tokens: u64, now: Timestamp) -> bool {
        let Ceilings { requests, period, burst, tokens: most, window, is_ample } = self.ceilings;
        if is_ample {
            return true;
        }
        let fits = |(calls, (at, _)): (usize, &(Timestamp, u64))| {
            let over = (calls as u128 + 2).saturating_sub(u128::from(burst));
            over * period.as_nanos() <= u128::from(requests) * now.since(*at).as_nanos()
        };
        let rate = burst >= 1 && self.admitted.iter().rev().enumerate().all(fits);
        let of = |at: Timestamp| u128::from(at.as_nanos()) / window.as_nanos();
        let used: u64 =
            self.admitted.iter().filter(|(at, _)| of(*at) == of(now)).map(|(_, tokens)| tokens).sum();
        rate && used + tokens <= most
    }

    /// Remembers the truth of the response to the call of this number, and checks the change of the learned
    /// limits.
    pub(super) fn response(
        &mut self,
        call: usize,
        response: &Response,
        limits: [Option<u64>; 2],
        now: Timestamp,
        report: &mut LearnReport,
    ) -> Verdict {
        report.responses += 1;
        let expires = self.settings.expires;
        let is_forgotten = self.informed_at.is_none_or(|at| now.since(at) >= expires);
        self.heed(call, &response.truth, now);
        let is_success = response.parts.status.is_success();
        self.judge_limits(limits, is_success, is_forgotten, now, report)?;
        match response.truth.per_minute {
            Some(limit) if limits[0].is_none_or(|learned| learned > limit.saturating_add(1)) => {
                Err(("heed", format!("the limit is {:?}, and {limit} a minute were reported", limits[0])))
            }
            _ => Ok(()),
        }
    }

    fn heed(&mut self, call: usize, truth: &Truth, now: Timestamp) {
        let max = self.settings.max_pause;
        if *truth != Truth::default() {
            self.maybe_informed_at = Some(now);
        }
        if truth.is_hostile {
            self.newest = self.newest.max(call);
            self.left = self.left.filter(|left| left.call > call);
        } else if *truth != Truth::default() {
            self.informed_at = Some(now);
        }
        if let Some(delay) = truth.delay {
            self.held_until = self.held_until.max(now + delay.min(max));
        }
        // A later call has better information about what an earlier one left.
        if let Some((left, reset)) = truth.left.filter(|_| call >= self.newest) {
            let admitted_max = call + 1 + left as usize;
            (self.newest, self.left) = (call, Some(Left { call, admitted_max, until: now + reset.min(max) }));
        }
    }

    fn judge_limits(
        &mut self,
        limits: [Option<u64>; 2],
        is_success: bool,
        is_forgotten: bool,
        now: Timestamp,
        report: &mut LearnReport,
    ) -> Verdict {
        let before = std::mem::replace(&mut self.limits, limits);
        let most = self.ceilings.per_minute();
        for kind in 0..2 {
            let (Some(limit), Some(before)) = (limits[kind], before[kind]) else {
                return Err(("ceiling", "a ceiling is not known".into()));
            };
            if limit > most[kind] {
                return Err((
                    "ceiling",
                    format!("a learned limit is {limit}, and the ceiling {}", most[kind]),
                ));
            }
            if limit > before && !is_forgotten {
                report.raised += 1;
                self.judge_raise(kind, limit, is_success, most[kind], now)?;
            }
            report.lowered += u64::from(limit < before);
            if limit < before || (is_forgotten && limit > before) {
                self.lows[kind] = Some((limit, now));
            }
        }
        Ok(())
    }

    fn judge_raise(&self, kind: usize, limit: u64, is_success: bool, most: u64, now: Timestamp) -> Verdict {
        if !is_success {
            return Err(("raise", format!("a response without success raised a limit to {limit}")));
        }
        let Some((low, since)) = self.lows[kind] else { return Ok(()) };
        let rises = self.rise(most, now.since(since));
        if u128::from(limit) > u128::from(low) + rises + 1 {
            let elapsed = now.since(since);
            return Err(("raise", format!("a limit rose from {low} to {limit} of {most} in {elapsed:?}")));
        }
        Ok(())
    }

    /// Returns the most by which a limit rises in this time.
    fn rise(&self, most: u64, elapsed: Duration) -> u128 {
        u128::from(most) * elapsed.as_nanos() / self.settings.raise_over.as_nanos()
    }

    /// Adapts to a clock that steps back from `before`: waits count from then on, and past intervals stay
    /// past.
    pub(super) fn step_back(&mut self, before: Timestamp, now: Timestamp) {
        let max = self.settings.max_pause;
        if self.held_until <= before {
            self.held_until = Timestamp::EPOCH;
        }
        self.left = self.left.filter(|left| left.until > before);
        let earlier = |at: Option<Timestamp>| at.map(|at| at.min(now));
        (self.waiting_since, self.stopped_since) = (earlier(self.waiting_since), earlier(self.stopped_since));
        self.informed_at = earlier(self.informed_at);
        self.maybe_informed_at = earlier(self.maybe_informed_at);
        self.held_until = self.held_until.min(now + max);
        if let Some(left) = &mut self.left {
            left.until = left.until.min(now + max);
        }
        // A limit may have risen until then, and may rise from then on.
        let most = self.ceilings.per_minute();
        let risen = |(low, since): (u64, Timestamp), most: u64| {
            let risen = u128::from(low) + self.rise(most, before.since(since)) + 1;
            (u64::try_from(risen).map_or(most, |risen| risen.min(most)), now)
        };
        self.lows = std::array::from_fn(|kind| self.lows[kind].map(|low| risen(low, most[kind])));
    }
}

//! What is judged: an upstream over a policy, by a clock that the case sets.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::admit::{Admission, SharedPermit};
use throttlekit::clock::ManualClock;
use throttlekit::outbound::{LearnSettings, Reported, Sent, Upstream};
use throttlekit::rate::{Limit, Timestamp};
use throttlekit::{Admit, Axis, Call, Policy, Rate};

use super::responses::Response;
use throttlekit_conformance::Dice;

/// Memory for the one key of a case.
const MEMORY_BYTES: usize = 1 << 16;

/// Something that paces calls by responses.
pub trait Paces {
    /// Admits a call with this estimate of tokens, or returns the wait, if one is known.
    fn admit(&mut self, tokens: u64) -> Result<Sent, Option<Duration>>;
    /// Learns from the response to a call.
    fn respond(&mut self, sent: Sent, response: &Response);
    /// Returns the limits of requests and of tokens in a minute that are learned.
    fn limits(&self) -> [Option<u64>; 2];
}

/// The configured limits of a case: a smooth rate of requests, and a window of tokens.
#[derive(Clone, Copy, Debug)]
pub struct Ceilings {
    pub(super) requests: u64,
    pub(super) period: Duration,
    pub(super) burst: u64,
    pub(super) tokens: u64,
    pub(super) window: Duration,
    /// `true` if no case can reach them.
    pub(super) is_ample: bool,
}

impl Ceilings {
    pub(super) fn roll(dice: &mut Dice) -> Self {
        let second = Duration::from_secs;
        if dice.once_in(3) {
            // A rule stands still while its clock is behind. So much is left of a day's burst that none has to wait for it.
            let (units, period) = (1_000_000, second(86_400));
            let tokens = 1_000_000_000_000;
            return Self { requests: units, period, burst: units, tokens, window: period, is_ample: true };
        }
        let requests = dice.pick(&[1, 2, 3, 10, 60, 500]);
        let burst = dice.pick(&[1, requests, 2 * requests]);
        let (period, window) =
            (second(dice.pick(&[1, 30, 60, 60, 600])), second(dice.pick(&[1, 60, 60, 3_600])));
        Self { requests, period, burst, tokens: dice.pick(&[100, 1_000, 100_000]), window, is_ample: false }
    }

    /// Returns the requests and the tokens in a minute, rounded.
    pub(super) fn per_minute(&self) -> [u64; 2] {
        let in_minute =
            |units: u64, period: Duration| (units * 120 + period.as_secs()) / (2 * period.as_secs());
        [in_minute(self.requests, self.period), in_minute(self.tokens, self.window)]
    }

    /// Builds a policy with these limits, of which nothing is used.
    pub(super) fn policy(&self, clock: &ManualClock) -> Arc<Policy<ManualClock>> {
        let rate = Rate::per(self.requests, self.period).burst(self.burst);
        let window = Limit::fixed_window(self.tokens, self.window).expect("a window");
        let policy =
            Policy::builder("provider").rate(rate).limit(Axis::Cost, window).memory_budget(MEMORY_BYTES);
        Arc::new(policy.clock(clock.clone()).build().expect("a policy"))
    }
}

/// What ships.
pub(super) struct Shipped {
    upstream: Upstream<Arc<Policy<ManualClock>>>,
    clock: ManualClock,
    /// Permits are held, so that nothing is returned.
    permits: Vec<SharedPermit>,
}

impl Shipped {
    pub(super) fn new(ceilings: &Ceilings, settings: LearnSettings, clock: &ManualClock) -> Self {
        let LearnSettings { max_pause, expires, raise_over, .. } = settings;
        let upstream = Upstream::builder(ceilings.policy(clock)).max_pause(max_pause).expires(expires);
        let upstream = upstream.raise_over(raise_over).build().expect("settings in range");
        Self { upstream, clock: clock.clone(), permits: Vec::new() }
    }
}

impl Paces for Shipped {
    fn admit(&mut self, tokens: u64) -> Result<Sent, Option<Duration>> {
        let admission = at_once(&self.upstream, tokens);
        let wait = admission.retry_after.wait();
        self.permits.push(admission.permit.ok_or(wait)?);
        Ok(self.upstream.position())
    }

    fn respond(&mut self, sent: Sent, response: &Response) {
        self.upstream.report(sent, &response.parts, &response.body);
    }

    fn limits(&self) -> [Option<u64>; 2] {
        let (learned, now) = (self.upstream.learned(), now(&self.clock));
        [learned.requests_per_minute(now), learned.tokens_per_minute(now)]
    }
}

/// Admits a call in process.
pub(super) fn at_once(admit: &impl Admit, tokens: u64) -> Admission {
    let result = admit.admit(Call::by("key").cost(tokens)).now_or_later();
    result.expect("decided in process").expect("no store")
}

pub(super) fn now(clock: &ManualClock) -> Timestamp {
    throttlekit::clock::Clock::now(clock)
}

/// Reads a response as an upstream does.
pub(super) fn read(response: &Response, now: Timestamp) -> Reported {
    Reported::of(response.parts.status, &response.parts.headers, &response.body, now)
}

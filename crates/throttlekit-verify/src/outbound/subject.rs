//! The subject: an upstream over a policy, with a clock that the case sets.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use throttlekit::clock::ManualClock;
use throttlekit::outbound::{Outbound, OutboundPermit};
use throttlekit::rate::{Limit, Timestamp};
use throttlekit::{Admit, Axis, Call, Policy, Rate};

use super::responses::Response;
use throttlekit_conformance::Dice;

/// Memory for the one key of a case.
const MEMORY_BYTES: usize = 1 << 16;

/// The number of an admitted call.
pub type Sent = usize;

/// Settings of learned limits.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub(super) max_pause: Duration,
    pub(super) expires: Duration,
    pub(super) raise_over: Duration,
}

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
            // A rule stands still while its clock is behind. A day's burst is large enough that no call has
            // to wait for it.
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

/// The production code.
pub(super) struct Shipped {
    outbound: Outbound,
    /// Permits are held, so that nothing is returned.
    permits: Vec<OutboundPermit>,
}

impl Shipped {
    pub(super) fn new(limiter: impl Admit, settings: Settings) -> Self {
        let Settings { max_pause, expires, raise_over } = settings;
        let outbound = Outbound::limited_by("provider", limiter).max_wait(Duration::ZERO);
        let outbound = outbound.max_pause(max_pause).expires(expires).raise_over(raise_over);
        Self { outbound: outbound.build().expect("settings in range"), permits: Vec::new() }
    }

    /// Forgets the learned limits, and no use.
    pub(super) fn forget(&mut self, limiter: impl Admit, settings: Settings) {
        self.outbound = Self::new(limiter, settings).outbound;
    }

    /// Returns the learned limits. `None` before the first call.
    pub(super) fn learned(&self) -> Option<[Option<u64>; 2]> {
        let stats = self.outbound.stats();
        stats.keys.first().map(|key| [key.requests_per_minute, key.tokens_per_minute])
    }

    /// Returns the last call that was admitted.
    pub(super) fn last(&self) -> Sent {
        self.permits.len() - 1
    }
}

impl Paces for Shipped {
    fn admit(&mut self, tokens: u64) -> Result<Sent, Option<Duration>> {
        self.permits.push(at_once(&self.outbound, tokens)?);
        Ok(self.last())
    }

    fn respond(&mut self, sent: Sent, response: &Response) {
        self.permits[sent].observe_body(&response.parts, &response.body);
    }

    fn limits(&self) -> [Option<u64>; 2] {
        self.learned().unwrap_or_default()
    }
}

/// Requests a call that is decided in process and does not wait. Within a tokio runtime, whose time is not used.
fn at_once(outbound: &Outbound, tokens: u64) -> Result<OutboundPermit, Option<Duration>> {
    let call = pin!(outbound.until_ready(Call::by("key").cost(tokens)));
    match call.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(permit)) => Ok(permit),
        Poll::Ready(Err(not_ready)) => {
            Err(not_ready.denied().and_then(|denied| denied.decision.retry_after.wait()))
        }
        Poll::Pending => panic!("a call waits"),
    }
}

pub(super) fn now(clock: &ManualClock) -> Timestamp {
    throttlekit::clock::Clock::now(clock)
}

//! An upstream: the limiter with the configured ceiling, and what responses taught.

use std::sync::Arc;
use std::time::Duration;

use http::response::Parts;
use throttlekit_core::{Decision, Retry, Timestamp};

use super::learned::{Headroom, LearnSettings, Learned, Sent};
use super::reported::Reported;
use crate::admit::{Admission, Admit, Admitting, Axis, LimitInfo, SharedPermit};
use crate::sync::Mutex;
use crate::{BuildError, Call};

/// An upstream and the key that it is called with: a limiter, and what its responses taught.
///
/// It is [`Admit`], so that anything that takes a limiter takes it too. A call is admitted if the limiter admits it and what
/// was [learned](Learned) does not delay it. The cost of a call is its estimate of tokens. Clones share the state.
///
/// The limiter enforces the configured ceiling: a policy of requests and tokens by the minute, for example. Over a store
/// it is one ceiling for all processes. What was learned is per process: each one learns from its own responses, which
/// report the account's limits to all of them.
///
/// ```
/// use http::{Response, StatusCode};
/// use std::sync::Arc;
/// use throttlekit::outbound::Upstream;
/// use throttlekit::{Admit, Budget, Call, Policy, Rate};
///
/// let ceiling = Policy::builder("openai").rate(Rate::per_minute(500)).tokens(Budget::per_minute(200_000)).build()?;
/// let openai = Upstream::new(Arc::new(ceiling));
///
/// # async fn send() -> Response<Vec<u8>> {
/// #     Response::builder().status(StatusCode::TOO_MANY_REQUESTS).header("retry-after", "7").body(vec![]).unwrap()
/// # }
/// # let example = async move {
/// let admission = openai.admit(Call::by("key-1").cost(1_500)).await?;
/// if admission.allowed {
///     let sent = openai.position();
///     let (parts, body) = send().await.into_parts();
///     openai.report(sent, &parts, &body);
/// }
/// // The provider refused for seven seconds.
/// let next = openai.admit(Call::by("key-1").cost(1_500)).await?;
/// assert!(!next.allowed && next.retry_after.wait_ms() > Some(6_000));
/// # Ok::<(), throttlekit::StoreError>(())
/// # };
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(example)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Upstream<A>(Arc<Inner<A>>);

struct Inner<A> {
    limiter: A,
    learned: Mutex<Learned>,
}

impl<A: Admit> Upstream<A> {
    /// Creates an upstream with the default settings, below the limits of `limiter`.
    pub fn new(limiter: A) -> Self {
        Self::built(limiter, LearnSettings::default())
    }

    /// Returns a builder of an upstream below the limits of `limiter`.
    pub fn builder(limiter: A) -> UpstreamBuilder<A> {
        UpstreamBuilder { limiter, settings: LearnSettings::default() }
    }

    pub(super) fn built(limiter: A, settings: LearnSettings) -> Self {
        let learned = Mutex::new(Learned::new(&limiter.limits(), settings));
        Self(Arc::new(Inner { limiter, learned }))
    }

    /// Returns the position after all calls admitted so far. Take it when a call is sent and pass it to
    /// [`report`](Self::report): calls sent later are not in the units that the response reports as left.
    pub fn position(&self) -> Sent {
        self.0.learned.lock().position()
    }

    /// Learns from the response to a call. The body is read only if it is a refusal, and may be empty.
    pub fn report(&self, sent: Sent, response: &Parts, body: &[u8]) -> Reported {
        let now = self.0.limiter.now();
        let reported = Reported::of(response.status, &response.headers, body, now);
        self.learn(sent, &reported);
        reported
    }

    /// Learns from a response that was read already.
    pub fn learn(&self, sent: Sent, reported: &Reported) {
        let now = self.0.limiter.now();
        self.0.learned.lock().report(reported, sent, now);
    }

    /// Returns the room for a call with this estimate of tokens, by what was learned.
    pub fn headroom(&self, tokens: u64) -> Headroom {
        let now = self.0.limiter.now();
        self.0.learned.lock().headroom(tokens, now)
    }

    /// Returns a copy of what was learned.
    pub fn learned(&self) -> Learned {
        self.0.learned.lock().clone()
    }

    /// Returns the parts of the ceilings on requests and on tokens that are in use, of [`WHOLE`](super::learned::WHOLE).
    pub(super) fn parts(&self) -> [u32; 2] {
        let now = self.0.limiter.now();
        self.0.learned.lock().parts(now)
    }

    /// Returns the limiter.
    pub fn limiter(&self) -> &A {
        &self.0.limiter
    }

    fn admit_by(&self, call: Call<'_>, admit: impl FnOnce(&A) -> Admitting) -> Admitting {
        let (tokens, now) = (call.units(), self.0.limiter.now());
        let sent = match self.0.learned.lock().start(tokens, now) {
            Ok(sent) => sent,
            Err(wait) => return Admitting::ready(Ok(denied(wait, now))),
        };
        let later = match admit(&self.0.limiter).now_or_later() {
            Ok(Ok(admission)) if admission.allowed => return Admitting::ready(Ok(admission)),
            Ok(other) => {
                self.0.cancel(sent, tokens);
                return Admitting::ready(other);
            }
            Err(later) => later,
        };
        let started = Started { upstream: Some(self.0.clone()), sent, tokens };
        Admitting::pending(async move {
            let result = later.await;
            if result.as_ref().is_ok_and(|admission| admission.allowed) {
                started.keep();
            }
            result
        })
    }
}

/// Builder of an [`Upstream`].
pub struct UpstreamBuilder<A> {
    limiter: A,
    settings: LearnSettings,
}

impl<A: Admit> UpstreamBuilder<A> {
    /// Sets the longest time for which responses can stop all calls, from 1 ms to 1 h. Default: 60 s.
    pub fn max_pause(mut self, max_pause: Duration) -> Self {
        self.settings.max_pause = max_pause;
        self
    }

    /// Sets the time without information from the provider after which all that was learned is forgotten: at least 1 s, and
    /// at least the longest pause. Default: 10 min.
    pub fn expires(mut self, expires: Duration) -> Self {
        self.settings.expires = expires;
        self
    }

    /// Sets the time in which a lowered limit rises from nothing to the ceiling, at least 1 s. Default: 60 s.
    pub fn raise_over(mut self, raise_over: Duration) -> Self {
        self.settings.raise_over = raise_over;
        self
    }

    /// Builds the upstream. Fails if a setting is out of range.
    pub fn build(self) -> Result<Upstream<A>, BuildError> {
        self.settings.check()?;
        Ok(Upstream::built(self.limiter, self.settings))
    }
}

debug_fields!([A] UpstreamBuilder<A>, |it| settings = it.settings);

impl<A> Inner<A> {
    fn cancel(&self, sent: Sent, tokens: u64) {
        self.learned.lock().cancel(sent, tokens);
    }
}

/// A call that the limiter has not decided yet. Dropped, it is taken back.
struct Started<A> {
    upstream: Option<Arc<Inner<A>>>,
    sent: Sent,
    tokens: u64,
}

impl<A> Started<A> {
    fn keep(mut self) {
        self.upstream = None;
    }
}

impl<A> Drop for Started<A> {
    fn drop(&mut self) {
        if let Some(upstream) = self.upstream.take() {
            upstream.cancel(self.sent, self.tokens);
        }
    }
}

/// Returns the denial of a call that has to wait for the provider.
fn denied(wait: Duration, now: Timestamp) -> Admission {
    let (reset_at, retry_after) = (now + wait, Retry::after(wait));
    let decision = Decision { allowed: false, limit: 0, remaining: 0, reset_at, retry_after };
    Admission::of(Axis::Rate, decision, SharedPermit::none())
}

impl<A: Admit> Admit for Upstream<A> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        self.admit_by(call, |limiter| limiter.admit(call))
    }

    fn admit_queued(&self, call: Call<'_>) -> Admitting {
        self.admit_by(call, |limiter| limiter.admit_queued(call))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.0.limiter.limits()
    }

    fn now(&self) -> Timestamp {
        self.0.limiter.now()
    }
}

impl<A> Clone for Upstream<A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

debug_fields!([A] Upstream<A>, |it| learned = it.0.learned.lock());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::{Limiter, Rate};
    use http::{Response, StatusCode};

    fn refusal(seconds: u64) -> Parts {
        let response = Response::builder().status(StatusCode::TOO_MANY_REQUESTS);
        response.header("retry-after", seconds).body(()).expect("a response").into_parts().0
    }

    fn upstream(rate: Rate) -> (Upstream<Limiter<ManualClock>>, ManualClock) {
        let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
        let limiter = Limiter::builder(rate).clock(clock.clone()).build().expect("a limiter");
        (Upstream::new(limiter), clock)
    }

    fn is_admitted(upstream: &Upstream<Limiter<ManualClock>>) -> bool {
        let result = upstream.admit(Call::by("a")).now_or_later().expect("decided in process");
        result.expect("no store").allowed
    }

    #[test]
    fn a_refusal_delays_calls_exactly_for_its_time() {
        let (upstream, clock) = upstream(Rate::per_minute(600));
        assert!(is_admitted(&upstream));
        upstream.report(upstream.position(), &refusal(7), b"");
        clock.advance(Duration::from_nanos(6_999_999_999));
        assert!(!is_admitted(&upstream));
        clock.advance(Duration::from_nanos(1));
        assert!(is_admitted(&upstream));
    }

    #[test]
    fn a_call_that_the_limiter_denies_is_taken_back() {
        let (upstream, _) = upstream(Rate::per_minute(1).burst(1));
        assert!(is_admitted(&upstream));
        let before = upstream.position();
        assert!(!is_admitted(&upstream));
        assert_eq!(upstream.position(), before);
    }

    #[test]
    fn settings_out_of_range_are_errors() {
        let builder = || Upstream::builder(Limiter::new(Rate::per_minute(1)).expect("a limiter"));
        let (none, second, minute) = (Duration::ZERO, Duration::from_secs(1), Duration::from_secs(60));
        assert!(builder().max_pause(second).expires(second).raise_over(second).build().is_ok());
        for wrong in [
            builder().max_pause(none),
            builder().max_pause(61 * minute),
            builder().expires(minute - second),
            builder().raise_over(none),
        ] {
            assert!(matches!(wrong.build(), Err(BuildError::OutOfRange { .. })));
        }
    }
}

//! An upstream: the limiter with the configured ceiling, and what responses taught.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use http::response::Parts;
use throttlekit_core::{Decision, Retry, Timestamp};

use super::learned::{Headroom, LearnSettings, Learned, Sent, WHOLE};
use super::reported::Reported;
use crate::Call;
use crate::admit::{Admission, Admit, Admitting, Axis, LimitInfo, SharedPermit};
use crate::sync::Mutex;

/// One upstream and key: a limiter, and what its responses taught. Clones share the state.
///
/// A call is admitted if the limiter admits it and what was [learned](Learned) does not delay it. The cost of a call is
/// its estimate of tokens.
pub(super) struct Upstream<A>(Arc<Inner<A>>);

struct Inner<A> {
    limiter: A,
    learned: Mutex<Learned>,
    /// `false` if all of the ceiling is in use, as far as the last response reports.
    is_lowered: AtomicBool,
}

impl<A: Admit> Upstream<A> {
    /// Creates an upstream below the limits of `limiter`.
    pub(super) fn new(limiter: A, settings: LearnSettings) -> Self {
        let learned = Mutex::new(Learned::new(&limiter.limits(), settings));
        Self(Arc::new(Inner { limiter, learned, is_lowered: AtomicBool::new(false) }))
    }

    /// Returns the position after all calls admitted so far. Take it when a call is sent and pass it to
    /// [`report`](Self::report): calls sent later are not in the units that the response reports as left.
    pub(super) fn position(&self) -> Sent {
        self.0.learned.lock().position()
    }

    /// Learns from the response to a call. The body is read only if it is a refusal, and may be empty.
    pub(super) fn report(&self, sent: Sent, response: &Parts, body: &[u8]) -> Reported {
        let now = self.0.limiter.now();
        let reported = Reported::of(response.status, &response.headers, body, now);
        let mut learned = self.0.learned.lock();
        learned.report(&reported, sent, now);
        self.0.is_lowered.store(learned.parts(now) != [WHOLE; 2], Relaxed);
        reported
    }

    /// Pauses as another process does.
    pub(super) fn pause(&self, rest: Duration) {
        let now = self.0.limiter.now();
        self.0.learned.lock().pause_with_others(rest, now);
    }

    /// Returns the room for a call with this estimate of tokens, by what was learned.
    pub(super) fn headroom(&self, tokens: u64) -> Headroom {
        let now = self.0.limiter.now();
        self.0.learned.lock().headroom(tokens, now)
    }

    /// Returns the requests and the tokens by the minute that are in use at most. `None`: there is no ceiling.
    pub(super) fn per_minute(&self) -> [Option<u64>; 2] {
        let (learned, now) = (self.0.learned.lock(), self.0.limiter.now());
        [learned.requests_per_minute(now), learned.tokens_per_minute(now)]
    }

    /// Checks whether less than a ceiling may be in use. Takes no lock and reads no clock.
    pub(super) fn is_lowered(&self) -> bool {
        self.0.is_lowered.load(Relaxed)
    }

    /// Returns the parts of the ceilings on requests and on tokens that are in use, of [`WHOLE`](super::learned::WHOLE).
    pub(super) fn parts(&self) -> [u32; 2] {
        let now = self.0.limiter.now();
        self.0.learned.lock().parts(now)
    }

    /// Admits a call. Returns its [position](Self::position) as well, if it was admitted at once.
    pub(super) fn admit_with_position(&self, call: Call<'_>) -> (Admitting, Option<Sent>) {
        self.admit_by(call, |limiter| limiter.admit(call))
    }

    fn admit_by(&self, call: Call<'_>, admit: impl FnOnce(&A) -> Admitting) -> (Admitting, Option<Sent>) {
        let (tokens, now) = (call.units(), self.0.limiter.now());
        let sent = match self.0.learned.lock().start(tokens, now) {
            Ok(sent) => sent,
            Err(wait) => return (Admitting::ready(Ok(denied(wait, now))), None),
        };
        let admitting = admit(&self.0.limiter);
        match admitting.as_ready() {
            Some(Ok(admission)) if admission.allowed => return (admitting, Some(sent)),
            Some(_) => {
                self.0.cancel(sent, tokens);
                return (admitting, None);
            }
            None => {}
        }
        let started = Started { upstream: Some(self.0.clone()), sent, tokens };
        let admitting = Admitting::pending(async move {
            let result = admitting.await;
            if result.as_ref().is_ok_and(|admission| admission.allowed) {
                started.keep();
            }
            result
        });
        (admitting, None)
    }
}

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
        self.admit_with_position(call).0
    }

    fn admit_queued(&self, call: Call<'_>) -> Admitting {
        self.admit_by(call, |limiter| limiter.admit_queued(call)).0
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
        (Upstream::new(limiter, LearnSettings::default()), clock)
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
}

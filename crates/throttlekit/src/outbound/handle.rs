//! The public object of one upstream.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::builder::OutboundBuilder;
use super::credit::Taken;
use super::keyed::KeyedUpstreams;
use super::learned::Headroom;
use super::permit::OutboundPermit;
use super::stats::{KeyLimits, OutboundStats};
use crate::Call;
use crate::admit::{Admit, SharedPermit};
use crate::wait::{First, NotReady, Queue};

/// Paces the calls to one provider: requests and tokens by the minute, daily quotas and concurrency, for each key, and
/// below all of these what the provider's responses report.
///
/// A call waits its turn ([`Queue`]), is sent, and its response is [observed](OutboundPermit::observe). A refusal pauses
/// all calls of its key in this process at once. In process, or over a store, where all processes share one account.
/// The key of a call is a model, an API key or a deployment: whatever the provider limits separately. Clones share
/// everything.
///
/// ```
/// use http::{Response, StatusCode};
/// use throttlekit::Call;
/// use throttlekit::outbound::Outbound;
///
/// # async fn send() -> Response<()> { Response::new(()) }
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let openai = Outbound::builder("openai")
///     .requests_per_minute(500)
///     .tokens_per_minute(90_000)
///     .concurrency(32)
///     .build()?;
///
/// let mut permit = openai.until_ready(Call::by("gpt-5").cost(1_200)).await?; // the estimate of its tokens
/// let (response, _body) = send().await.into_parts();
/// permit.observe(&response); // learns, and pauses after a refusal
/// permit.settle(870); // the tokens that it took
/// permit.success();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Limits by the minute
///
/// Requests are spread evenly. A limit of `n` requests by the minute is kept as `n` in 61.2 s, of which 1 % may start at
/// once, so that at most `n` start in any minute and calls that bunch up on their way are not refused. Tokens are spread
/// likewise, with 5 % at once. A call that is estimated at more starts when that much is there, and the rest is charged
/// when it ends. Tokens that calls reserved and did not take are those of the next calls of the key, so that estimates may
/// be too high.
///
/// # Several processes
///
/// Over a store, the ceiling and limits that responses lower are kept by all processes together. If a refusal states its
/// delay, all processes pause. Each looks for pauses of the others at most every 100 ms, which takes one more round trip
/// to the store. Pauses after a refusal without a delay, or within 100 ms after another pause, are per process.
#[derive(Clone)]
pub struct Outbound(Arc<Inner>);

struct Inner {
    name: Box<str>,
    queue: Queue<KeyedUpstreams>,
}

impl Outbound {
    /// Creates a builder of limits in this process. The name appears in metrics, logs and traces.
    pub fn builder(name: &str) -> OutboundBuilder {
        OutboundBuilder::local(name)
    }

    /// Creates a builder of limits over a store. All processes that use the same name on the same store share them.
    #[cfg(feature = "store")]
    pub fn shared<S: crate::store::Store + crate::store::SlotStore>(store: S, name: &str) -> OutboundBuilder {
        OutboundBuilder::shared(store, name)
    }

    /// Creates a builder of an upstream whose ceiling is a limiter of your own, such as a remote policy or a rule that the
    /// builder does not have. The builder's own limits stay unset.
    pub fn limited_by(name: &str, limiter: impl Admit) -> OutboundBuilder {
        OutboundBuilder::limited_by(name, limiter)
    }

    pub(super) fn new(name: Box<str>, queue: Queue<KeyedUpstreams>) -> Self {
        Self(Arc::new(Inner { name, queue }))
    }

    /// Waits until the call may be sent, at most for [`max_wait`](OutboundBuilder::max_wait). The cost of the call is the
    /// estimate of its tokens.
    ///
    /// Calls of one key and priority are served in order. The future can be dropped at any time: it leaves the queue, and
    /// its turn passes on.
    pub async fn until_ready<'c>(&self, call: impl Into<Call<'c>>) -> Result<OutboundPermit, NotReady> {
        let (call, upstreams) = (call.into(), self.0.queue.limiter());
        let (estimate, taken) = (call.units(), Taken::of(upstreams.of(call.key()), call.units()));
        let call = call.cost(estimate - taken.tokens);
        let mut sent = None;
        let first = self.0.queue.inner().begin_by(&call, |upstreams| {
            let (admitting, position) = upstreams.admit_to(&taken.keyed, call);
            sent = position;
            admitting
        });
        // A call that need not wait moves its admission once: that is a tenth of what it costs.
        let (permit, wait) = match first {
            Ok(First::Ready(admission)) => (admission.into_permit().map_err(NotReady::Never), Duration::ZERO),
            Ok(first) => {
                sent = None;
                Box::pin(self.wait(call, first)).await
            }
            Err(not_ready) => (Err(not_ready), Duration::ZERO),
        };
        match permit {
            Ok(permit) => {
                upstreams.counters.admitted(wait);
                let sent = sent.unwrap_or_else(|| taken.keyed.upstream.position());
                Ok(OutboundPermit::new(permit, taken, sent, estimate))
            }
            Err(not_ready) => {
                upstreams.counters.not_ready();
                Err(not_ready)
            }
        }
    }

    async fn wait(&self, call: Call<'_>, first: First) -> (Result<SharedPermit, NotReady>, Duration) {
        let begun = Instant::now();
        let result = self.0.queue.inner().resume(call, first).await;
        let permit = result.and_then(|admission| admission.into_permit().map_err(NotReady::Never));
        (permit, begun.elapsed())
    }

    /// Returns the counters, and what was learned about each key.
    pub fn stats(&self) -> OutboundStats {
        let upstreams = self.0.queue.limiter();
        let keys = upstreams.all().into_iter().map(|(key, keyed)| {
            let [requests_per_minute, tokens_per_minute] = keyed.upstream.per_minute();
            let (wait, reported) = (keyed.upstream.headroom(1).wait, keyed.reported());
            let requests = reported.and_then(|reported| reported.requests);
            let tokens = reported.and_then(|reported| reported.all_tokens());
            KeyLimits { key, requests_per_minute, tokens_per_minute, wait, requests, tokens }
        });
        OutboundStats { waiting: self.waiting() as u64, keys: keys.collect(), ..upstreams.counters.read() }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the number of calls that wait.
    pub(super) fn waiting(&self) -> usize {
        self.0.queue.waiting()
    }

    /// Returns the room for a call, by what was learned about its key.
    pub(super) fn headroom(&self, call: Call<'_>) -> Headroom {
        self.0.queue.limiter().of(call.key()).upstream.headroom(call.units())
    }

    pub(super) fn count_retry(&self) {
        self.0.queue.limiter().counters.retried();
    }
}

debug_fields!([] Outbound, |it| name = it.0.name, waiting = it.0.queue.waiting());

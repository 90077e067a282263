//! The permit of one call to a provider.

use std::time::Duration;

use http::Response;
use http::response::Parts;
use http_body::Body;
use throttlekit_core::concurrency::Ending;

use super::body::OutboundBody;
use super::credit::{Taken, settled};
use super::layer::Settings;
use super::learned::Sent;
use super::reported::Reported;
use super::service::seen;
use super::usage::{Usage, UsageReader};
use crate::admit::SharedPermit;
use crate::guard::ending_without_outcome;

/// Permission to send one call, held until its response was read.
///
/// [Observe](Self::observe) the response, [read](Self::read) its body or [settle](Self::settle) the tokens that it took,
/// then report the outcome. If the provider refused the call, what it was charged stays charged, since the provider had
/// less left than was known here. Dropped without an outcome and without a count of tokens, the call counts as not sent:
/// its tokens return.
#[must_use = "dropping it gives back what the call was admitted with"]
pub struct OutboundPermit {
    /// `None` once it has ended.
    permit: Option<SharedPermit>,
    taken: Taken,
    sent: Sent,
    estimate: u64,
    /// `None` before the first piece of the body.
    usage: Option<Box<UsageReader>>,
    settled: Option<u64>,
    is_refused: bool,
    /// Time to the response.
    took: Option<Duration>,
}

impl OutboundPermit {
    pub(super) fn new(permit: SharedPermit, taken: Taken, sent: Sent, estimate: u64) -> Self {
        Self {
            permit: Some(permit),
            taken,
            sent,
            estimate,
            usage: None,
            settled: None,
            is_refused: false,
            took: None,
        }
    }

    /// Learns from the response. A refusal (429, 503, 529) pauses the calls of this key.
    pub fn observe(&mut self, response: &Parts) -> Reported {
        self.observe_body(response, b"")
    }

    /// Like [`observe`](Self::observe), with the body of a refusal, which may contain the delay.
    pub fn observe_body(&mut self, response: &Parts, body: &[u8]) -> Reported {
        let reported = self.taken.keyed.upstream.report(self.sent, response, body);
        self.taken.keyed.remember(reported);
        self.took = self.took.or_else(|| self.permit.as_ref()?.elapsed());
        if reported.is_refusal() && !self.is_refused {
            self.is_refused = true;
            self.taken.keyed.counters.refused();
        }
        reported
    }

    /// Observes a response and holds the permit until its body was read or is dropped. The tokens are settled from the
    /// `usage` in the body, and the delay of a refusal is read from it. For clients that are no tower services.
    pub fn hold<B: Body>(mut self, response: Response<B>) -> Response<OutboundBody<B>> {
        let (response, body) = response.into_parts();
        self.observe(&seen(&response));
        let body = OutboundBody::new(body, self, &response, &Settings::default());
        Response::from_parts(response, body)
    }

    /// Reads a piece of the response's body, which may end anywhere: one JSON object, or server-sent events. Its `usage`
    /// settles the tokens when the permit ends, unless [`settle`](Self::settle) does.
    pub fn read(&mut self, piece: &[u8]) {
        self.usage.get_or_insert_default().push(piece);
    }

    /// Returns the usage in the body as far as it was read. Numbers that are missing are those of the estimate.
    pub fn usage(&self) -> Option<Usage> {
        self.usage.as_ref()?.usage(Usage::of(self.estimate, 0))
    }

    /// Sets the number of tokens that the call took. Settled when the permit ends. Default: the `usage` that was
    /// [read](Self::read), or else the estimate.
    pub fn settle(&mut self, tokens: u64) {
        self.settled = Some(tokens);
    }

    /// Returns the estimate of the call's tokens.
    pub fn estimate(&self) -> u64 {
        self.estimate
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Ends the permit of a call that was sent and whose response was not read to its end: its tokens were used.
    pub(super) fn abandon(mut self) {
        if self.settled.is_none() {
            self.settle(self.usage().map_or(self.estimate, |usage| usage.total));
        }
        self.ignored();
    }

    endings!();

    pub(super) fn end(mut self, ending: Ending, latency: Option<Duration>) {
        self.finish(ending, latency);
    }

    fn finish(&mut self, ending: Ending, latency: Option<Duration>) {
        let ending = if self.is_refused { Ending::Dropped } else { ending };
        let Some(mut permit) = self.permit.take() else { return };
        if self.is_refused {
            // What it was charged stays charged, also from its credit.
            permit.settle(self.estimate - std::mem::take(&mut self.taken.tokens));
        } else if let Some(actual) = self.actual(ending) {
            let taken = std::mem::take(&mut self.taken.tokens);
            permit.settle(settled(&self.taken.keyed.credit, permit.reserved(), taken, actual));
        }
        permit.end(ending, latency.or(self.took));
    }

    /// Returns the tokens that the call took. `None`: it counts as not sent, and what it was charged returns.
    fn actual(&self, ending: Ending) -> Option<u64> {
        let read = || self.usage().map(|usage| usage.total);
        self.settled.or_else(read).or((ending == Ending::Success).then_some(self.estimate))
    }
}

impl Drop for OutboundPermit {
    fn drop(&mut self) {
        self.finish(ending_without_outcome(), None);
    }
}

debug_fields!([] OutboundPermit, |it| estimate = it.estimate, is_refused = it.is_refused);

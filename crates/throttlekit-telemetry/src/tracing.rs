//! A `tracing` event for each decision, and span attributes of a decision.
//!
//! [`Decisions`] is a [`Subscriber`] of the telemetry: it runs on the telemetry's thread, so a `tracing` subscriber may
//! be slow. [`record`] is for the calling thread: it records [`Attributes`] on a span that declared them.

use ::tracing::dispatcher::{Dispatch, with_default};
use ::tracing::{Level, Span, event};
use throttlekit::admit::LimitName;
use throttlekit::observe::Event;
use throttlekit::{Axis, Guarantee};

use crate::{Attributes, Subscriber};

/// The target of all events.
pub const TARGET: &str = "throttlekit";

/// Emits each decision as an event with the target [`TARGET`].
///
/// Allowed decisions have the level DEBUG, denied ones INFO, and those that were denied or allowed because a store was
/// unavailable WARN. The fields are `policy`, `cost`, `policy_denied`, and [`Attributes`] under their names; `key` if
/// it is enabled.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    keys: bool,
    to: Option<Dispatch>,
}

impl Decisions {
    /// Creates a subscriber that emits to the `tracing` subscriber of the process.
    pub fn new() -> Self {
        Self::default()
    }

    /// Includes the key: as text, the stored part of it, with invalid text replaced. Keys may be addresses or names of
    /// people, so they are left out by default.
    pub fn with_keys(mut self) -> Self {
        self.keys = true;
        self
    }

    /// Emits to this `tracing` subscriber instead.
    pub fn to(mut self, listener: Dispatch) -> Self {
        self.to = Some(listener);
        self
    }

    fn tell(&self, event: &Event<'_>) {
        let key = self.keys.then(|| String::from_utf8_lossy(event.key));
        let said = Attributes::from(event);
        macro_rules! tell {
            ($level:expr) => {
                event!(
                    target: TARGET,
                    $level,
                    policy = event.policy,
                    key = key.as_deref(),
                    cost = event.cost,
                    policy_denied = event.denied_by == Some(Axis::Price),
                    throttlekit.allowed = said.allowed,
                    throttlekit.binding_axis = said.binding_axis.map(|axis| axis.label()),
                    throttlekit.limit_name = said.limit_name.map(LimitName::as_str),
                    throttlekit.limit = said.limit,
                    throttlekit.remaining = said.remaining,
                    throttlekit.retry_after_ms = said.retry_after_ms,
                    throttlekit.guarantee = said.guarantee.label(),
                    "{}",
                    if said.allowed { "allowed" } else { "denied" }
                )
            };
        }
        match level_of(&said) {
            Level::WARN => tell!(Level::WARN),
            Level::INFO => tell!(Level::INFO),
            _ => tell!(Level::DEBUG),
        }
    }
}

impl Subscriber for Decisions {
    fn event(&mut self, event: &Event<'_>) {
        match &self.to {
            Some(listener) => with_default(listener, || self.tell(event)),
            None => self.tell(event),
        }
    }
}

fn level_of(said: &Attributes) -> Level {
    match said.guarantee {
        Guarantee::Open | Guarantee::Closed => Level::WARN,
        _ if said.allowed => Level::DEBUG,
        _ => Level::INFO,
    }
}

/// Records a decision on a span, in the fields that the span declared; others are left out.
///
/// ```
/// use throttlekit::observe::Event;
/// use throttlekit_telemetry::tracing::record;
/// use tracing::{field::Empty, info_span};
///
/// fn note(event: &Event<'_>) {
///     let span = info_span!(
///         "request",
///         throttlekit.allowed = Empty,
///         throttlekit.binding_axis = Empty,
///         throttlekit.retry_after_ms = Empty,
///     );
///     record(&span, event);
/// }
/// ```
pub fn record(span: &Span, of: impl Into<Attributes>) {
    let of = of.into();
    span.record(Attributes::ALLOWED, of.allowed)
        .record(Attributes::LIMIT, of.limit)
        .record(Attributes::REMAINING, of.remaining)
        .record(Attributes::GUARANTEE, of.guarantee.label());
    if let Some(axis) = of.binding_axis {
        span.record(Attributes::BINDING_AXIS, axis.label());
    }
    if let Some(name) = of.limit_name {
        span.record(Attributes::LIMIT_NAME, name.as_str());
    }
    if let Some(wait) = of.retry_after_ms {
        span.record(Attributes::RETRY_AFTER_MS, wait);
    }
}

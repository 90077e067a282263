//! The observer.

use std::io;
use std::time::Duration;

use throttlekit::observe::{Event, Observer};

use crate::counts::Counts;
use crate::queue::Queue;
use crate::subscriber::{Subscriber, Subscribers};
use crate::top_keys::Top;

/// Observes decisions: counts them immediately, and passes them to subscribers on a separate thread.
///
/// A decision pays for one counter, at most two histograms, and for a copy of the event into a queue, and never for what subscribers do: nothing
/// in [`observe`](Observer::observe) waits, allocates or runs code of a subscriber. (The first event of a policy
/// allocates its counters and its name.) An event that finds the queue full is lost to subscribers and top keys, and
/// counted as lost; the counters of decisions are exact all the same.
///
/// Dropping it passes the remaining events to subscribers, for at most [`TelemetryBuilder::drain_max`].
pub struct Telemetry {
    counts: Counts,
    queue: Option<Queue>,
}

impl Telemetry {
    /// Creates a builder.
    pub fn builder() -> TelemetryBuilder {
        TelemetryBuilder::default()
    }

    /// Returns the counters, to read or to export. They outlive the telemetry.
    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Observes an event, and returns the [place](Counts::places) of its policy's counters.
    #[inline]
    pub fn observe_at(&self, event: &Event<'_>) -> usize {
        let policy = self.counts.count(event);
        if let Some(queue) = &self.queue {
            queue.tell(event, policy);
        }
        self.counts.place_of(policy)
    }

    /// Returns the busiest keys of the events dispatched so far. Empty without [`TelemetryBuilder::top_keys`].
    pub fn top(&self) -> Top {
        self.queue.as_ref().map(Queue::top).unwrap_or_default()
    }

    /// Waits until subscribers have received all events observed before, for at most `wait`, to a millisecond or so.
    /// Returns whether they have.
    pub fn flush(&self, wait: Duration) -> bool {
        self.queue.as_ref().is_none_or(|queue| queue.flush(wait))
    }
}

impl Observer for Telemetry {
    #[inline]
    fn observe(&self, event: &Event<'_>) {
        self.observe_at(event);
    }
}

throttlekit::debug_fields!([] Telemetry, |it| counts = it.counts);

/// Configures a [`Telemetry`].
pub struct TelemetryBuilder {
    subscribers: Vec<Box<dyn Subscriber>>,
    queue: usize,
    top_keys: usize,
    policies_max: usize,
    drain_max: Duration,
}

impl Default for TelemetryBuilder {
    fn default() -> Self {
        Self {
            subscribers: Vec::new(),
            queue: 8_192,
            top_keys: 256,
            policies_max: 256,
            drain_max: Duration::from_secs(2),
        }
    }
}

impl TelemetryBuilder {
    /// Maximum capacity of the queue.
    pub const QUEUE_MAX: usize = 1 << 20;

    /// Adds a subscriber, which receives every event after those added before it.
    pub fn subscribe(mut self, subscriber: impl Subscriber) -> Self {
        self.subscribers.push(Box::new(subscriber));
        self
    }

    /// Sets the capacity of the queue. Default: 8,192. Maximum: [`QUEUE_MAX`](Self::QUEUE_MAX). Each event takes some
    /// 200 bytes, allocated at the start.
    pub fn queue(mut self, events: usize) -> Self {
        self.queue = events.clamp(1, Self::QUEUE_MAX);
        self
    }

    /// Sets the number of busiest keys to count, by requests and by denials. Default: 256. With 0, and without
    /// subscribers, there is no queue and no thread.
    pub fn top_keys(mut self, keys: usize) -> Self {
        self.top_keys = keys;
        self
    }

    /// Sets the maximum number of separately counted policies. Default: 256. Maximum: [`Counts::POLICIES_MAX`]. All
    /// that come later are counted and reported as [`OTHER`](crate::OTHER).
    pub fn policies_max(mut self, policies: usize) -> Self {
        self.policies_max = policies;
        self
    }

    /// Sets how long dropping may wait for subscribers. Default: 2 s. Events that they have not received by then are
    /// lost, and counted; a subscriber that still blocks keeps its thread until it returns.
    pub fn drain_max(mut self, wait: Duration) -> Self {
        self.drain_max = wait;
        self
    }

    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If the system cannot create a thread.
    pub fn start(self) -> io::Result<Telemetry> {
        let counts = Counts::new(self.policies_max);
        if self.subscribers.is_empty() && self.top_keys == 0 {
            return Ok(Telemetry { counts, queue: None });
        }
        let subscribers = Subscribers(self.subscribers);
        let queue = Queue::start(counts.clone(), subscribers, self.top_keys, self.queue, self.drain_max)?;
        Ok(Telemetry { counts, queue: Some(queue) })
    }
}

throttlekit::debug_fields!([] TelemetryBuilder, |it| subscribers = it.subscribers.len());

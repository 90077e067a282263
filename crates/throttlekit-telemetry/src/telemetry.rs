//! The observer.

use std::io;
use std::time::Duration;

use throttlekit::admission::{Event, Observer};

use crate::counts::Counts;
use crate::queue::Queue;
use crate::subscriber::{Subscriber, Subscribers};
use crate::top_keys::Top;

/// Watches decisions: counts them at once, and tells subscribers of them on a thread of its own.
///
/// A decision pays for one counter and for a copy of the event into a queue, and never for what subscribers do: nothing in
/// [`observe`](Observer::observe) waits, allocates or runs code of a subscriber. (The first event of a policy allocates its
/// counters and its name.) An event that finds the queue full is lost to subscribers and top keys, and counted as lost; the
/// counters of decisions are exact all the same.
///
/// Dropping it shows subscribers what is still in the queue, for as long as [`Builder::drain_max`] at the most.
pub struct Telemetry {
    counts: Counts,
    queue: Option<Queue>,
}

impl Telemetry {
    /// One with this queue and these subscribers.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The counters, to read or to hand to whoever exports them. They outlive the telemetry.
    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Observes an event, and says in which of the [places](Counts::places) its policy is counted.
    #[inline]
    pub fn observe_at(&self, event: &Event<'_>) -> usize {
        let policy = self.counts.count(event);
        if let Some(queue) = &self.queue {
            queue.tell(event, policy);
        }
        self.counts.place_of(policy)
    }

    /// The busiest keys, of the events that the thread has come to so far. Nobody, without [`Builder::top_keys`].
    pub fn top(&self) -> Top {
        self.queue.as_ref().map(Queue::top).unwrap_or_default()
    }

    /// Waits until subscribers were shown whatever was observed before, `wait` at the most and to a millisecond or so. Tells
    /// whether they were.
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

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telemetry").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// What a [`Telemetry`] can be told.
pub struct Builder {
    subscribers: Vec<Box<dyn Subscriber>>,
    queue: usize,
    top_keys: usize,
    policies_max: usize,
    drain_max: Duration,
}

impl Default for Builder {
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

impl Builder {
    /// The most events that can wait.
    pub const QUEUE_MAX: usize = 1 << 20;

    /// Shows every event to this one as well, after those before it.
    pub fn subscribe(mut self, subscriber: impl Subscriber) -> Self {
        self.subscribers.push(Box::new(subscriber));
        self
    }

    /// How many events wait at the most: 8,192 unless stated, [`QUEUE_MAX`](Self::QUEUE_MAX) at the most. Each takes some
    /// 200 bytes, from the start.
    pub fn queue(mut self, events: usize) -> Self {
        self.queue = events.clamp(1, Self::QUEUE_MAX);
        self
    }

    /// How many keys are counted as the busiest, of those that ask and of those that are denied: 256 unless stated. With none,
    /// and without subscribers, there is no queue and no thread.
    pub fn top_keys(mut self, keys: usize) -> Self {
        self.top_keys = keys;
        self
    }

    /// How many policies are kept apart: 256 unless stated, [`Counts::POLICIES_MAX`] at the most. All that come later are
    /// counted and shown as [`OTHER`](crate::OTHER).
    pub fn policies_max(mut self, policies: usize) -> Self {
        self.policies_max = policies;
        self
    }

    /// How long dropping it may wait for subscribers: two seconds unless stated. What they have not seen by then is lost, and
    /// counted; a subscriber that still blocks keeps its thread until it returns.
    pub fn drain_max(mut self, wait: Duration) -> Self {
        self.drain_max = wait;
        self
    }

    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If the system has no thread to give.
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

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("subscribers", &self.subscribers.len()).finish_non_exhaustive()
    }
}

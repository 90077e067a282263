//! Builder of a queue.

use std::time::Duration;

use throttlekit_core::turn::Jitter;

use super::Queue;
use crate::{Admit, BuildError};

const MAX_WAITERS_DEFAULT: usize = 10_000;
const MAX_WAITERS_MAX: usize = 1 << 20;
const MAX_WAIT_DEFAULT: Duration = Duration::from_secs(60);
/// Longer than any window but a month.
const MAX_WAIT_MAX: Duration = Duration::from_secs(31 * 86_400);
const JITTER_MAX: Duration = Duration::from_secs(60);

/// Builder of a [`Queue`].
///
/// ```
/// use std::time::Duration;
/// use throttlekit::{Limiter, Rate};
/// use throttlekit::wait::Queue;
///
/// let queue = Queue::builder(Limiter::new(Rate::per_minute(500))?)
///     .max_waiters(1_000)
///     .max_wait(Duration::from_secs(20))
///     .build()?;
/// # let _ = queue;
/// # Ok::<(), throttlekit::BuildError>(())
/// ```
pub struct QueueBuilder<A> {
    limiter: A,
    settings: Settings,
}

/// The settings of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) max_waiters: usize,
    pub(super) max_wait: Duration,
    pub(super) jitter: Jitter,
    pub(super) ignore_keys: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_waiters: MAX_WAITERS_DEFAULT,
            max_wait: MAX_WAIT_DEFAULT,
            jitter: Jitter::Automatic,
            ignore_keys: false,
        }
    }
}

impl<A: Admit> QueueBuilder<A> {
    pub(super) fn new(limiter: A) -> Self {
        Self { limiter, settings: Settings::default() }
    }

    /// Sets the maximum number of waiters of all keys together, from 1 to 2²⁰. Default: 10,000.
    pub fn max_waiters(mut self, waiters: usize) -> Self {
        self.settings.max_waiters = waiters;
        self
    }

    /// Sets the longest that a call waits, up to 31 days. Default: 60 s.
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.settings.max_wait = wait;
        self
    }

    /// Adds a random time of up to `most`, at most one minute, to each wait, so that several processes do not request at
    /// the same instant. Never shortens a wait. Default: none if the limiter decides in process; otherwise up to a tenth
    /// of the wait, at most 10 ms.
    pub fn jitter(mut self, most: Duration) -> Self {
        self.settings.jitter = Jitter::UpTo(most);
        self
    }

    /// Puts all calls into one queue: for a limiter that ignores keys, such as a [`Guard`](crate::Guard) or a
    /// [`KeylessLimiter`](crate::limiter::KeylessLimiter). Default: one queue for each first key.
    pub fn ignore_keys(mut self) -> Self {
        self.settings.ignore_keys = true;
        self
    }

    /// Builds the queue. Fails if a setting is out of range.
    pub fn build(self) -> Result<Queue<A>, BuildError> {
        let Settings { max_waiters, max_wait, jitter, .. } = self.settings;
        if !(1..=MAX_WAITERS_MAX).contains(&max_waiters) {
            return Err(BuildError::OutOfRange { setting: "max_waiters", expected: "1 to 1048576" });
        }
        if max_wait > MAX_WAIT_MAX {
            return Err(BuildError::OutOfRange { setting: "max_wait", expected: "at most 31 days" });
        }
        if matches!(jitter, Jitter::UpTo(most) if most > JITTER_MAX) {
            return Err(BuildError::OutOfRange { setting: "jitter", expected: "at most 1 minute" });
        }
        Ok(Queue::from_parts(self.limiter, self.settings))
    }
}

debug_fields!([A] QueueBuilder<A>, |it| settings = it.settings);

//! Builder of the limits of an upstream.

use std::sync::Arc;
use std::time::Duration;

use super::ceiling::{Ceiling, Limits, PerMinute};
use super::handle::Outbound;
use super::keyed::KeyedUpstreams;
use super::learned::LearnSettings;
use super::lowered::Lowered;
use super::pauses::Pauses;
use crate::admit::Admit;
use crate::observe::{Observed, Observer};
use crate::wait::Queue;
use crate::{BuildError, Concurrency, Policy, Rate};

/// Builder of an [`Outbound`].
pub struct OutboundBuilder {
    name: Box<str>,
    limits: Limits,
    make: Make,
    settings: LearnSettings,
    max_wait: Option<Duration>,
    max_waiters: Option<usize>,
    observer: Option<Arc<dyn Observer>>,
}

/// Makes the limiters of these limits.
type Make = Box<dyn FnOnce(&str, &Limits, Option<Arc<dyn Observer>>) -> Made + Send>;
type Made = Result<Limiters, BuildError>;

/// The ceiling, and what several processes share beside it.
struct Limiters {
    ceiling: Arc<dyn Admit>,
    lowered: Lowered,
    pauses: Pauses,
}

impl OutboundBuilder {
    fn new(name: &str, make: Make) -> Self {
        let (limits, settings) = (Limits::default(), LearnSettings::default());
        Self { name: name.into(), limits, make, settings, max_wait: None, max_waiters: None, observer: None }
    }

    pub(super) fn local(name: &str) -> Self {
        Self::new(name, Box::new(make_local))
    }

    #[cfg(feature = "store")]
    pub(super) fn shared<S: crate::store::Store + crate::store::SlotStore>(store: S, name: &str) -> Self {
        let store = Arc::new(store);
        Self::new(name, Box::new(move |name, limits, observer| make_shared(&store, name, limits, observer)))
    }

    pub(super) fn limited_by(name: &str, limiter: impl Admit) -> Self {
        let make = |name: &str, limits: &Limits, observer: Option<Arc<dyn Observer>>| {
            if limits.is_any() {
                let expected = "no limits beside those of the limiter";
                return Err(BuildError::OutOfRange { setting: "limited_by", expected });
            }
            let ceiling = observed(name, limiter, observer);
            Ok(Limiters { ceiling, lowered: Lowered::default(), pauses: Pauses::default() })
        };
        Self::new(name, Box::new(make))
    }

    /// Limits the requests of each key by the minute. Default: no limit.
    pub fn requests_per_minute(mut self, requests: u64) -> Self {
        self.limits.requests = Some(PerMinute::requests(requests));
        self
    }

    /// Limits the tokens of each key by the minute. Default: no limit.
    pub fn tokens_per_minute(mut self, tokens: u64) -> Self {
        self.limits.tokens = Some(PerMinute::tokens(tokens));
        self
    }

    /// Limits the requests of each key by the day, in UTC. Default: no limit.
    pub fn requests_per_day(mut self, requests: u64) -> Self {
        self.limits.requests_per_day = Some(requests);
        self
    }

    /// Limits the tokens of each key by the day, in UTC. Default: no limit.
    pub fn tokens_per_day(mut self, tokens: u64) -> Self {
        self.limits.tokens_per_day = Some(tokens);
        self
    }

    /// Limits the number of concurrent calls, in total or per key. Over a store, a fixed limit is one for all processes;
    /// an adaptive one is of each process. Default: no limit.
    pub fn concurrency(mut self, limit: impl Into<Concurrency>) -> Self {
        self.limits.concurrency = Some(limit.into());
        self
    }

    /// Sets the longest that a call waits. If the wait is known to be longer, the call fails at once. Default: 60 s.
    pub fn max_wait(self, wait: Duration) -> Self {
        Self { max_wait: Some(wait), ..self }
    }

    /// Sets the maximum number of calls that wait. Default: 10,000.
    pub fn max_waiters(self, waiters: usize) -> Self {
        Self { max_waiters: Some(waiters), ..self }
    }

    /// Sets the longest time for which responses can stop all calls, from 1 ms to 1 h. Default: 60 s.
    pub fn max_pause(mut self, pause: Duration) -> Self {
        self.settings.max_pause = pause;
        self
    }

    /// Sets the time in which a limit that responses lowered rises from nothing to the ceiling, at least 1 s. Default: 60 s.
    pub fn raise_over(mut self, time: Duration) -> Self {
        self.settings.raise_over = time;
        self
    }

    /// Sets the time without information from the provider after which all that was learned is forgotten: at least 1 s, and
    /// at least the longest pause. Default: 10 min.
    pub fn expires(mut self, time: Duration) -> Self {
        self.settings.expires = time;
        self
    }

    /// Sets the observer, which receives each decision of the configured limits.
    pub fn observer(self, observer: impl Observer) -> Self {
        Self { observer: Some(Arc::new(observer)), ..self }
    }

    /// Builds the object. Fails if a limit or a setting is out of range.
    pub fn build(self) -> Result<Outbound, BuildError> {
        let Self { name, limits, make, settings, max_wait, max_waiters, observer } = self;
        settings.check()?;
        let Limiters { ceiling, lowered, pauses } = make(&name, &limits, observer)?;
        let upstreams = KeyedUpstreams::new(Ceiling::new(ceiling, &limits), lowered, pauses, settings);
        let mut queue = Queue::builder(upstreams);
        if let Some(wait) = max_wait {
            queue = queue.max_wait(wait);
        }
        if let Some(waiters) = max_waiters {
            queue = queue.max_waiters(waiters);
        }
        Ok(Outbound::new(name, queue.build()?))
    }
}

fn observed(name: &str, limiter: impl Admit, observer: Option<Arc<dyn Observer>>) -> Arc<dyn Admit> {
    match observer {
        Some(observer) => Arc::new(Observed::new(name, limiter, observer)),
        None => Arc::new(limiter),
    }
}

fn make_local(name: &str, limits: &Limits, observer: Option<Arc<dyn Observer>>) -> Made {
    let lowered = Lowered::new(limits, |part: &str, rate: Rate| {
        let policy = Policy::builder(&format!("{name}:{part}")).tokens(rate).build()?;
        Ok(Arc::new(Arc::new(policy)) as Arc<dyn Admit>)
    });
    Ok(Limiters { ceiling: limits.local(name, observer)?, lowered: lowered?, pauses: Pauses::default() })
}

#[cfg(feature = "store")]
fn make_shared<S: crate::store::Store + crate::store::SlotStore>(
    store: &Arc<S>,
    name: &str,
    limits: &Limits,
    observer: Option<Arc<dyn Observer>>,
) -> Made {
    let lowered = Lowered::new(limits, |part: &str, rate: Rate| {
        let policy = crate::SharedPolicy::builder(store.clone(), &format!("{name}:{part}")).tokens(rate);
        Ok(Arc::new(Arc::new(policy.build()?)) as Arc<dyn Admit>)
    });
    let ceiling = limits.shared(store.clone(), name, observer)?;
    Ok(Limiters { ceiling, lowered: lowered?, pauses: Pauses::shared(store, name)? })
}

debug_fields!([] OutboundBuilder, |it| name = it.name, limits = it.limits);

//! The upstream of each key: one ceiling for all of them, and what was learned about each.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use throttlekit_core::Timestamp;

use super::ceiling::Ceiling;
use super::credit::Credit;
use super::learned::{LearnSettings, Sent};
use super::lowered::Lowered;
use super::pauses::{LOOK_EVERY, Pauses};
use super::reported::Reported;
use super::stats::Counters;
use super::upstream::Upstream;
use crate::Call;
use crate::admit::{Admit, Admitting, LimitInfo};
use crate::call::OwnedCall;
use crate::hash::random_u64;
use crate::sync::{Mutex, RwLock};

/// Keys about which something is remembered: models, API keys, deployments.
const KEYS_MAX: usize = 4_096;

pub(super) struct KeyedUpstreams {
    ceiling: Arc<Ceiling>,
    lowered: Arc<Lowered>,
    pauses: Arc<Pauses>,
    settings: LearnSettings,
    keys: RwLock<HashMap<Box<[u8]>, Arc<KeyedUpstream>, FixedState>>,
    pub(super) counters: Arc<Counters>,
}

/// One key.
pub(super) struct KeyedUpstream {
    pub(super) upstream: Upstream<Arc<Ceiling>>,
    key: Box<[u8]>,
    pauses: Arc<Pauses>,
    max_pause: Duration,
    pub(super) credit: Credit,
    /// Those of all keys.
    pub(super) counters: Arc<Counters>,
    shared: Mutex<SharedPause>,
    /// The last response with information.
    reported: Mutex<Option<Reported>>,
}

/// Use of the pauses that processes share.
#[derive(Default)]
struct SharedPause {
    /// Last time that one was looked for.
    looked_at: Timestamp,
    /// End of the last one of this process.
    ends_at: Timestamp,
}

impl KeyedUpstreams {
    pub(super) fn new(ceiling: Ceiling, lowered: Lowered, pauses: Pauses, settings: LearnSettings) -> Self {
        let (ceiling, lowered, pauses) = (Arc::new(ceiling), Arc::new(lowered), Arc::new(pauses));
        let keys = RwLock::new(HashMap::with_hasher(FixedState::with_seed(random_u64())));
        Self { ceiling, lowered, pauses, settings, keys, counters: Arc::default() }
    }

    /// Returns the upstream of a key.
    pub(super) fn of(&self, key: &[u8]) -> Arc<KeyedUpstream> {
        if let Some(known) = self.keys.read().get(key) {
            return known.clone();
        }
        self.insert(key)
    }

    #[cold]
    fn insert(&self, key: &[u8]) -> Arc<KeyedUpstream> {
        let mut keys = self.keys.write();
        if keys.len() >= KEYS_MAX && !keys.contains_key(key) {
            let last_call = |upstream: &KeyedUpstream| upstream.upstream.headroom(0).last_call;
            let oldest = keys.iter().min_by_key(|(_, upstream)| last_call(upstream));
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                keys.remove(&oldest);
            }
        }
        keys.entry(key.into()).or_insert_with(|| Arc::new(self.fresh(key))).clone()
    }

    fn fresh(&self, key: &[u8]) -> KeyedUpstream {
        KeyedUpstream {
            upstream: Upstream::new(self.ceiling.clone(), self.settings),
            key: key.into(),
            pauses: self.pauses.clone(),
            max_pause: self.settings.max_pause,
            credit: Credit::new(self.ceiling.credit_max()),
            counters: self.counters.clone(),
            shared: Mutex::default(),
            reported: Mutex::default(),
        }
    }

    /// Returns all keys and their upstreams.
    pub(super) fn all(&self) -> Vec<(Box<[u8]>, Arc<KeyedUpstream>)> {
        self.keys.read().iter().map(|(key, upstream)| (key.clone(), upstream.clone())).collect()
    }

    fn counted(&self, admitting: Admitting) -> Admitting {
        if let Some(result) = admitting.as_ready() {
            self.counters.decided(result);
            return admitting;
        }
        let counters = self.counters.clone();
        Admitting::pending(async move {
            let result = admitting.await;
            counters.decided(&result);
            result
        })
    }
}

impl KeyedUpstream {
    /// Remembers a response that has information, and shares the pause that it requires.
    pub(super) fn remember(&self, reported: Reported) {
        if reported.is_informative() {
            *self.reported.lock() = Some(reported);
        }
        let delay = reported.retry_after.filter(|_| reported.is_refusal());
        if let Some(delay) = delay.map(|delay| delay.min(self.max_pause))
            && self.begins_pause(delay)
        {
            self.pauses.share(&self.key, delay);
        }
    }

    /// Checks whether a pause is to be shared: refusals of calls that were in flight at the first one are the same event.
    fn begins_pause(&self, delay: Duration) -> bool {
        let (now, mut shared) = (self.upstream.now(), self.shared.lock());
        let begins = self.pauses.are_shared() && now >= shared.ends_at;
        if begins {
            shared.ends_at = now + delay;
        }
        begins
    }

    /// Checks whether it is time to look for a pause of another process. Only one call does.
    fn is_look_due(&self) -> bool {
        if !self.pauses.are_shared() {
            return false;
        }
        let (now, mut shared) = (self.upstream.now(), self.shared.lock());
        let is_due = now < shared.looked_at || now.since(shared.looked_at) >= LOOK_EVERY;
        if is_due {
            shared.looked_at = now;
        }
        is_due
    }

    async fn look_for_pause(&self) {
        if let Some(rest) = self.pauses.rest(&self.key).await {
            self.upstream.pause(rest);
        }
    }

    pub(super) fn reported(&self) -> Option<Reported> {
        *self.reported.lock()
    }
}

impl Admit for KeyedUpstreams {
    fn admit(&self, call: Call<'_>) -> Admitting {
        self.admit_to(&self.of(call.key()), call).0
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.ceiling.limits()
    }

    fn now(&self) -> Timestamp {
        self.ceiling.now()
    }
}

impl KeyedUpstreams {
    /// Admits a call to the upstream of its key. Returns its position as well, if it was decided at once.
    pub(super) fn admit_to(&self, keyed: &Arc<KeyedUpstream>, call: Call<'_>) -> (Admitting, Option<Sent>) {
        let is_look_due = keyed.is_look_due();
        let is_lowered = || keyed.upstream.is_lowered() && self.lowered.charges(keyed.upstream.parts());
        if !is_look_due && !is_lowered() {
            let (admitting, sent) = keyed.upstream.admit_with_position(call);
            return (self.counted(admitting), sent);
        }
        let (keyed, lowered, call) = (keyed.clone(), self.lowered.clone(), OwnedCall::of(&call));
        let admitting = self.counted(Admitting::pending(async move {
            if is_look_due {
                keyed.look_for_pause().await;
            }
            lowered.admit(&keyed.upstream, call, keyed.upstream.parts()).await
        }));
        (admitting, None)
    }
}

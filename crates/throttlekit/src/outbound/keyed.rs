//! The upstream of each key: one ceiling for all of them, and what was learned about each.

use std::collections::HashMap;
use std::sync::Arc;

use throttlekit_core::Timestamp;

use super::ceiling::Ceiling;
use super::learned::{LearnSettings, WHOLE};
use super::lowered::Lowered;
use super::reported::Reported;
use super::stats::Counters;
use super::upstream::Upstream;
use crate::admit::{Admission, Admit, Admitting, LimitInfo, StoreError};
use crate::call::OwnedCall;
use crate::sync::{Mutex, RwLock};
use crate::{BuildError, Call};

/// Keys about which something is remembered: models, API keys, deployments.
const KEYS_MAX: usize = 4_096;

pub(super) struct KeyedUpstreams {
    ceiling: Arc<Ceiling>,
    lowered: Arc<Lowered>,
    settings: LearnSettings,
    keys: RwLock<HashMap<Box<[u8]>, Arc<KeyedUpstream>>>,
    pub(super) counters: Arc<Counters>,
}

/// One key.
pub(super) struct KeyedUpstream {
    pub(super) upstream: Upstream<Arc<Ceiling>>,
    /// The last response with information.
    reported: Mutex<Option<Reported>>,
}

impl KeyedUpstreams {
    pub(super) fn new(
        ceiling: Ceiling,
        lowered: Lowered,
        settings: LearnSettings,
    ) -> Result<Self, BuildError> {
        let ceiling = Arc::new(ceiling);
        settings.check()?;
        let (lowered, counters) = (Arc::new(lowered), Arc::default());
        Ok(Self { ceiling, lowered, settings, keys: RwLock::default(), counters })
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
        keys.entry(key.into()).or_insert_with(|| Arc::new(self.fresh())).clone()
    }

    fn fresh(&self) -> KeyedUpstream {
        let upstream = Upstream::built(self.ceiling.clone(), self.settings);
        KeyedUpstream { upstream, reported: Mutex::default() }
    }

    /// Returns all keys and their upstreams.
    pub(super) fn all(&self) -> Vec<(Box<[u8]>, Arc<KeyedUpstream>)> {
        self.keys.read().iter().map(|(key, upstream)| (key.clone(), upstream.clone())).collect()
    }

    fn counted(&self, admitting: Admitting) -> Admitting {
        match admitting.now_or_later() {
            Ok(result) => {
                self.counters.decided(&result);
                Admitting::ready(result)
            }
            Err(later) => {
                let counters = self.counters.clone();
                Admitting::pending(async move {
                    let result = later.await;
                    counters.decided(&result);
                    result
                })
            }
        }
    }
}

impl KeyedUpstream {
    pub(super) fn remember(&self, reported: Reported) {
        if reported.is_informative() {
            *self.reported.lock() = Some(reported);
        }
    }

    pub(super) fn reported(&self) -> Option<Reported> {
        *self.reported.lock()
    }
}

impl Admit for KeyedUpstreams {
    fn admit(&self, call: Call<'_>) -> Admitting {
        let keyed = self.of(call.key());
        let parts = keyed.upstream.parts();
        if parts == [WHOLE; 2] {
            return self.counted(keyed.upstream.admit(call));
        }
        let (lowered, call) = (self.lowered.clone(), OwnedCall::of(&call));
        self.counted(Admitting::pending(async move {
            let admitted: Result<Admission, StoreError> = lowered.admit(&keyed.upstream, call, parts).await;
            admitted
        }))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.ceiling.limits()
    }

    fn now(&self) -> Timestamp {
        self.ceiling.now()
    }
}

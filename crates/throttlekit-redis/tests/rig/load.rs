//! Callers that send requests one after another and record the responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::Guarantee;
use throttlekit::rate::Timestamp;
use throttlekit::store::StoreError;
use tokio::task::JoinSet;

use super::{Limiter, is_own, now};

/// One response.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) key: Arc<str>,
    pub(crate) at: Timestamp,
    pub(crate) took: Duration,
    pub(crate) allowed: bool,
    /// `None` where an error was returned.
    pub(crate) guarantee: Option<Guarantee>,
    pub(crate) error: Option<StoreError>,
}

pub(crate) struct Load {
    callers: JoinSet<Vec<Heard>>,
    over: Arc<AtomicBool>,
}

impl Load {
    /// Starts `callers` callers for each key, each with a pause between its requests.
    pub(crate) fn start(limiter: &Arc<Limiter>, keys: &[&str], callers: usize, pause: Duration) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for key in keys {
            let key: Arc<str> = (*key).into();
            for _ in 0..callers {
                tasks.spawn(ask_on(limiter.clone(), key.clone(), pause, over.clone()));
            }
        }
        Self { callers: tasks, over }
    }

    /// Returns all responses, in the order of arrival.
    pub(crate) async fn finish(self) -> Vec<Heard> {
        self.over.store(true, Relaxed);
        let mut heard: Vec<Heard> = self.callers.join_all().await.into_iter().flatten().collect();
        heard.sort_by_key(|answer| answer.at);
        heard
    }
}

async fn ask_on(limiter: Arc<Limiter>, key: Arc<str>, pause: Duration, over: Arc<AtomicBool>) -> Vec<Heard> {
    let mut heard = Vec::new();
    while !over.load(Relaxed) {
        heard.push(ask_once(&limiter, &key).await);
        tokio::time::sleep(pause).await;
    }
    heard
}

pub(crate) async fn ask_once(limiter: &Limiter, key: &Arc<str>) -> Heard {
    let begun = now();
    let answer = limiter.check(&**key).await;
    let (at, key) = (now(), key.clone());
    let took = at.since(begun);
    match answer {
        Ok(answer) => Heard {
            key,
            at,
            took,
            allowed: answer.decision.allowed,
            guarantee: Some(answer.guarantee),
            error: answer.outage,
        },
        Err(error) => Heard { key, at, took, allowed: false, guarantee: None, error: Some(error) },
    }
}

pub(crate) fn admitted(heard: &[Heard]) -> u64 {
    heard.iter().filter(|answer| answer.allowed).count() as u64
}

/// Returns the time of the store's own first response after an instant.
pub(crate) fn exact_after(heard: &[Heard], after: Timestamp) -> Option<Timestamp> {
    let is_it = |answer: &&Heard| answer.at > after && answer.guarantee.is_some_and(is_own);
    heard.iter().find(is_it).map(|answer| answer.at)
}

/// Checks that every response is the store's own, or a refusal with a reason, and none is an error.
pub(crate) fn labelled(heard: &[Heard]) {
    for answer in heard {
        match answer.guarantee {
            Some(guarantee) if is_own(guarantee) => assert!(answer.error.is_none(), "{answer:?}"),
            Some(Guarantee::Closed) => {
                assert!(!answer.allowed, "{answer:?}");
                assert!(answer.error.as_ref().is_some_and(StoreError::is_outage), "{answer:?}");
            }
            _ => panic!("{answer:?}"),
        }
    }
}

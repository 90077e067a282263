//! Streams of denials to watchers.
//!
//! Each watcher has a short queue of its own. A slow reader loses the oldest denials and delays nobody.

use std::cell::LazyCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use throttlekit::internals::Mutex;
use tokio::sync::Notify;

use super::denials::Denial;
use crate::share::{TooManyWatchers, WATCHERS_MAX};

/// Maximum number of denials that a watcher receives in a second.
const PER_SECOND_MAX: u32 = 500;
/// Maximum number of denials in the queue of a watcher.
const QUEUE_MAX: usize = 256;

/// All watchers.
#[derive(Default)]
pub(super) struct Watchers {
    all: Mutex<Vec<Subscription>>,
    over: AtomicBool,
    dropped: AtomicU64,
}

type Wants = dyn Fn(&str) -> bool + Send + Sync;

/// A watcher, as the sender of denials sees it: the number sent is stored here, without a lock on the watcher.
struct Subscription {
    wants: Box<Wants>,
    second: u64,
    in_second: u32,
    watcher: Arc<Watcher>,
}

#[derive(Default)]
struct Watcher {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Arc<Denial>>,
    over: bool,
}

impl Watchers {
    pub(super) fn watch(self: &Arc<Self>, wants: Box<Wants>) -> Result<Watch, TooManyWatchers> {
        let mut all = self.all.lock();
        if all.len() == WATCHERS_MAX {
            return Err(TooManyWatchers);
        }
        // Set under the same lock, so that a later watcher does not miss the end.
        let state = State { over: self.over.load(Relaxed), ..State::default() };
        let watcher = Arc::new(Watcher { state: Mutex::new(state), news: Notify::new() });
        all.push(Subscription { wants, second: 0, in_second: 0, watcher: watcher.clone() });
        Ok(Watch { watcher, watchers: self.clone() })
    }

    /// Sends a denial to all interested watchers; `denial` is called once, and only if there is one.
    pub(super) fn tell(&self, policy: &str, second: u64, denial: impl FnOnce() -> Denial) {
        let denial = LazyCell::new(|| Arc::new(denial()));
        let mut dropped = 0;
        for subscription in self.all.lock().iter_mut().filter(|subscription| (subscription.wants)(policy)) {
            let told =
                subscription.may_hear(second) && subscription.watcher.tell(LazyCell::force(&denial).clone());
            dropped += u64::from(!told);
        }
        if dropped > 0 {
            self.dropped.fetch_add(dropped, Relaxed);
        }
    }

    /// Ends every watch: the server stops.
    pub(super) fn close(&self) {
        let all = self.all.lock();
        self.over.store(true, Relaxed);
        for Subscription { watcher, .. } in all.iter() {
            watcher.state.lock().over = true;
            watcher.news.notify_one();
        }
    }

    pub(super) fn count(&self) -> usize {
        self.all.lock().len()
    }

    /// Returns the number of denials that watchers missed: too many in a second, or slow readers.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

impl Subscription {
    /// Counts one more, unless the maximum of this second is reached.
    fn may_hear(&mut self, second: u64) -> bool {
        if self.second != second {
            (self.second, self.in_second) = (second, 0);
        }
        let may = self.in_second < PER_SECOND_MAX;
        self.in_second += u32::from(may);
        may
    }
}

impl Watcher {
    /// Queues a denial. Returns false if the queue was full and the oldest was dropped.
    fn tell(&self, denial: Arc<Denial>) -> bool {
        let mut state = self.state.lock();
        let full = state.waiting.len() == QUEUE_MAX;
        if full {
            state.waiting.pop_front();
        }
        state.waiting.push_back(denial);
        drop(state);
        self.news.notify_one();
        !full
    }
}

/// Denials as they happen. Dropping it ends the watch.
pub struct Watch {
    watcher: Arc<Watcher>,
    watchers: Arc<Watchers>,
}

impl Watch {
    /// Returns the next denial; `None` once the server stops.
    pub async fn next(&mut self) -> Option<Arc<Denial>> {
        loop {
            {
                let mut state = self.watcher.state.lock();
                if let Some(denial) = state.waiting.pop_front() {
                    return Some(denial);
                }
                if state.over {
                    return None;
                }
            }
            self.watcher.news.notified().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watchers.all.lock().retain(|subscription| !Arc::ptr_eq(&subscription.watcher, &self.watcher));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(at_ms: u64) -> Denial {
        Denial { at_ms, policy: "api".into(), ..Denial::default() }
    }

    #[tokio::test]
    async fn a_slow_reader_loses_the_oldest_and_the_loss_is_counted() {
        let watchers = Arc::new(Watchers::default());
        let mut watch = watchers.watch(Box::new(|_| true)).unwrap();
        let told = QUEUE_MAX as u64 + 10;
        (0..told).for_each(|at| watchers.tell("api", 1, || denial(at)));
        assert_eq!(watchers.dropped(), 10);
        let mut heard = Vec::new();
        watchers.close();
        while let Some(denial) = watch.next().await {
            heard.push(denial.at_ms);
        }
        assert_eq!(heard, (10..told).collect::<Vec<_>>());
        assert_eq!(watchers.watch(Box::new(|_| true)).unwrap().next().await, None);
    }

    #[tokio::test]
    async fn a_stream_is_told_500_in_a_second_and_of_its_policy_alone() {
        let watchers = Arc::new(Watchers::default());
        let mut watch = watchers.watch(Box::new(|policy| policy == "api")).unwrap();
        let mut heard = 0;
        for second in [7, 8] {
            for _ in 0..600 {
                watchers.tell("other", second, || denial(0));
                watchers.tell("api", second, || denial(second));
                // A fast reader loses only what exceeds the rate.
                while let Ok(Some(_)) = tokio::time::timeout(std::time::Duration::ZERO, watch.next()).await {
                    heard += 1;
                }
            }
        }
        assert_eq!((heard, watchers.dropped()), (1_000, 200));
    }

    #[test]
    fn one_more_than_the_most_is_refused_until_one_goes() {
        let watchers = Arc::new(Watchers::default());
        let watch = || watchers.watch(Box::new(|_| true));
        let mut all: Vec<_> = (0..WATCHERS_MAX).map(|_| watch().unwrap()).collect();
        assert_eq!(watch().err(), Some(TooManyWatchers));
        all.pop();
        assert!(watch().is_ok());
        drop(all);
        assert_eq!(watchers.count(), 0);
    }
}

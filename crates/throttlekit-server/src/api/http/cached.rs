//! A value that is computed at most once in a while.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// A condition that is evaluated at most once in [`HOLDS`], by one task at a time.
#[derive(Debug, Default)]
pub(super) struct Cached(Mutex<Option<(Instant, bool)>>);

/// Time for which a result is cached.
pub(super) const HOLDS: Duration = Duration::from_secs(1);

impl Cached {
    /// Returns the last result if it is recent; else evaluates `find`. Concurrent calls wait for that.
    pub(super) async fn get(&self, find: impl Future<Output = bool>) -> bool {
        let mut last = self.0.lock().await;
        if let Some((since, answer)) = *last
            && since.elapsed() < HOLDS
        {
            return answer;
        }
        let answer = find.await;
        *last = Some((Instant::now(), answer));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use tokio::task::JoinSet;
    use tokio::time::{advance, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_thousand_at_once_make_one_call_and_it_is_made_anew_when_it_is_old() {
        let (cached, calls) = (Arc::new(Cached::default()), Arc::new(AtomicU64::new(0)));
        let ask = |answer: bool| {
            let (cached, calls) = (cached.clone(), calls.clone());
            async move {
                let find = async {
                    calls.fetch_add(1, Relaxed);
                    sleep(Duration::from_millis(50)).await;
                    answer
                };
                cached.get(find).await
            }
        };
        let mut all = JoinSet::new();
        (0..1_000).for_each(|_| drop(all.spawn(ask(true))));
        assert!(all.join_all().await.into_iter().all(|answer| answer));
        assert_eq!(calls.load(Relaxed), 1);
        advance(HOLDS - Duration::from_millis(1)).await;
        assert!(ask(false).await, "the last answer holds");
        advance(Duration::from_millis(1)).await;
        assert!(!ask(false).await);
        assert_eq!(calls.load(Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_gives_up_holds_up_nobody() {
        let cached = Cached::default();
        let given_up = tokio::time::timeout(HOLDS, cached.get(std::future::pending())).await;
        assert!(given_up.is_err());
        assert!(cached.get(std::future::ready(true)).await);
    }
}

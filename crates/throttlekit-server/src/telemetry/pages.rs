//! Pages that are expensive to build: off the threads that serve, one at a time, each shared by all waiting calls.

use std::sync::Arc;

use axum::body::Bytes;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::background;

/// Builds pages, each from the state at the time of the call or later.
#[derive(Clone)]
pub struct Pages {
    build: Arc<dyn Fn() -> String + Send + Sync>,
    /// Time at which the last page was started, and the page.
    last: Arc<Mutex<Option<(Instant, Bytes)>>>,
}

impl Pages {
    /// Creates pages with this builder.
    pub fn of(build: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self { build: Arc::new(build), last: Arc::default() }
    }

    /// Returns a page whose build started after this call. Concurrent calls share one.
    pub async fn next(&self) -> Bytes {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((begun, page)) = &*last
            && *begun >= asked
        {
            return page.clone();
        }
        let (begun, build) = (Instant::now(), self.build.clone());
        // It fails only if the build panics: then there is no page, and the next call builds one.
        let page = Bytes::from(background::run(move || build()).await.unwrap_or_default());
        *last = Some((begun, page.clone()));
        page
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::Duration;

    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn pages_are_built_off_the_serving_thread_and_shared_by_all_who_wait() {
        let built = Arc::new(AtomicU64::new(0));
        let (count, serving) = (built.clone(), std::thread::current().id());
        let pages = Pages::of(move || {
            assert_ne!(std::thread::current().id(), serving);
            std::thread::sleep(Duration::from_millis(20));
            count.fetch_add(1, Relaxed).to_string()
        });
        let mut all = JoinSet::new();
        (0..1_000).for_each(|_| {
            let pages = pages.clone();
            all.spawn(async move { pages.next().await });
        });
        let waited = all.join_all().await;
        assert!(waited.iter().all(|page| !page.is_empty()));
        let so_far = built.load(Relaxed);
        assert!(so_far <= 2, "the first who came, and all others: {so_far}");
        assert_eq!(pages.next().await, so_far.to_string(), "a later call sees what is there now");
    }
}

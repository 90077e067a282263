//! Retries, and their budget.

use crate::sync::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Requests for each retry.
const REQUESTS_PER_RETRY: u64 = 10;
/// Retries that can be saved up.
const SAVED_MAX: u64 = 10;

/// Clones the body of a request, if that is possible. Cannot be named: a closure, or nothing.
pub trait CloneBody<B>: Send + Sync + 'static {
    /// Returns a copy. `None`: the request is not retried.
    fn clone_body(&self, body: &B) -> Option<B>;
}

/// No request is retried.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRetries;

impl<B> CloneBody<B> for NoRetries {
    fn clone_body(&self, _: &B) -> Option<B> {
        None
    }
}

impl<B, F: Fn(&B) -> Option<B> + Send + Sync + 'static> CloneBody<B> for F {
    fn clone_body(&self, body: &B) -> Option<B> {
        self(body)
    }
}

/// The retries of a layer: at most one in ten requests, and one more at the start.
pub(super) struct Retries<C> {
    pub(super) clone: C,
    pub(super) max: u32,
    /// Requests that were not used for a retry yet.
    saved: AtomicU64,
}

impl Retries<NoRetries> {
    pub(super) fn none() -> Self {
        Self { clone: NoRetries, max: 1, saved: AtomicU64::new(REQUESTS_PER_RETRY) }
    }
}

impl<C> Retries<C> {
    pub(super) fn with<D>(self, clone: D) -> Retries<D> {
        Retries { clone, max: self.max, saved: self.saved }
    }

    /// Counts a request.
    pub(super) fn request(&self) {
        let one_more = |saved| (saved < SAVED_MAX * REQUESTS_PER_RETRY).then_some(saved + 1);
        let _ = self.saved.fetch_update(Relaxed, Relaxed, one_more);
    }

    /// Takes a retry from the budget, if there is one.
    pub(super) fn take(&self) -> bool {
        let less = |saved: u64| saved.checked_sub(REQUESTS_PER_RETRY);
        self.saved.fetch_update(Relaxed, Relaxed, less).is_ok()
    }
}

debug_fields!([C] Retries<C>, |it| max = it.max);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn at_most_one_retry_in_ten_requests_and_one_at_the_start() {
        let retries = Retries::none();
        let taken = |requests: u64| {
            let take = |_| {
                retries.request();
                u64::from(retries.take())
            };
            (0..requests).map(take).sum::<u64>()
        };
        assert_eq!(taken(1), 1);
        assert_eq!(taken(1_000), 100);
        (0..10_000).for_each(|_| retries.request());
        let saved = std::iter::repeat_with(|| retries.take()).take_while(|taken| *taken).count() as u64;
        assert_eq!(saved, SAVED_MAX);
    }
}

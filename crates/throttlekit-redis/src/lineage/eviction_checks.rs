//! Checks for evictions after decisions, one for many: `lua/evictions.lua`.

use throttlekit::internals::Mutex;
use throttlekit::store::StoreError;

use super::Since;

/// The checks of one record on one connection.
///
/// A check covers every decision whose response had arrived when it began. Decisions that come while one is in flight
/// wait for it to end; then one of them makes the next check for all.
#[derive(Debug, Default)]
pub(crate) struct EvictionChecks {
    /// Number of checks that have begun. A lock and not an atomic: a reader of a number has seen its response before
    /// the next check is sent.
    begun: Mutex<u64>,
    last: tokio::sync::Mutex<Option<Ended>>,
}

#[derive(Debug)]
struct Ended {
    number: u64,
    result: Result<Since, StoreError>,
}

impl EvictionChecks {
    /// Returns the result of a check that began after this call: of another decision, or `check`.
    pub(crate) async fn join(
        &self,
        check: impl Future<Output = Result<Since, StoreError>>,
    ) -> Result<Since, StoreError> {
        let before = *self.begun.lock();
        let mut last = self.last.lock().await;
        if let Some(ended) = last.as_ref().filter(|ended| ended.number > before) {
            return ended.result.clone();
        }
        let number = {
            let mut begun = self.begun.lock();
            *begun += 1;
            *begun
        };
        let result = check.await;
        *last = Some(Ended { number, result: result.clone() });
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

    use tokio::sync::Notify;
    use tokio::task::{JoinHandle, yield_now};

    use super::*;

    /// Checks that end when the test lets them, and return their number.
    #[derive(Default)]
    struct Server {
        checks: EvictionChecks,
        begun: AtomicI64,
        ends: Notify,
    }

    impl Server {
        fn join(self: &Arc<Self>) -> JoinHandle<Result<Since, StoreError>> {
            let server = self.clone();
            tokio::spawn(async move {
                let check = async {
                    let number = server.begun.fetch_add(1, SeqCst) + 1;
                    server.ends.notified().await;
                    Ok(Since::Instant(number))
                };
                server.checks.join(check).await
            })
        }
    }

    async fn settled() {
        for _ in 0..20 {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_check_covers_only_decisions_that_came_before_it_and_the_next_all_others() {
        let server = Arc::new(Server::default());
        let first = server.join();
        settled().await;
        let late: Vec<_> = (0..5).map(|_| server.join()).collect();
        settled().await;
        assert_eq!(server.begun.load(SeqCst), 1, "the first is in flight");
        server.ends.notify_one();
        assert_eq!(first.await.unwrap(), Ok(Since::Instant(1)));
        settled().await;
        server.ends.notify_one();
        for late in late {
            assert_eq!(late.await.unwrap(), Ok(Since::Instant(2)));
        }
        assert_eq!(server.begun.load(SeqCst), 2);
    }

    #[tokio::test]
    async fn a_rejected_check_ends_the_decisions_that_it_covers_and_no_others() {
        let checks = EvictionChecks::default();
        let rejected = StoreError::unavailable("out of memory");
        assert_eq!(checks.join(async { Err(rejected.clone()) }).await, Err(rejected));
        assert_eq!(checks.join(async { Ok(Since::Instant(7)) }).await, Ok(Since::Instant(7)));
    }

    #[tokio::test]
    async fn an_abandoned_check_is_replaced() {
        let server = Arc::new(Server::default());
        let first = server.join();
        settled().await;
        let late = server.join();
        settled().await;
        first.abort();
        settled().await;
        server.ends.notify_one();
        assert_eq!(late.await.unwrap(), Ok(Since::Instant(2)));
    }
}

//! The notice that a connection closes gracefully.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;

/// Notifies the streams of a connection that it closes gracefully: those that stay open have to end on their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaving(Arc<watch::Sender<bool>>);

/// No two connections share a notice.
impl PartialEq for Leaving {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Leaving {}

impl Leaving {
    /// Notifies the streams.
    pub(super) fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Completes when the graceful close begins, or at once if it has begun.
    pub(crate) fn begun(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut notice = self.0.subscribe();
        async move {
            // Fails if the connection is gone: then there is nothing to end.
            if notice.wait_for(|begun| *begun).await.is_err() {
                pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn streams_are_notified_before_and_after_the_close_begins() {
        let leaving = Leaving::default();
        let mut before = Box::pin(leaving.begun());
        assert!(before.as_mut().now_or_never().is_none());
        leaving.begin();
        before.await;
        leaving.begun().await;
    }
}

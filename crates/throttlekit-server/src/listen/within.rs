//! Timeouts for work that is usually done at once.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

/// Error: the work was not done in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late;

pin_project! {
    /// Work with a deadline. Its timer is created when the work has to wait: most requests are answered at once, and a
    /// timer costs as much as a decision.
    pub(crate) struct Within<F, D> {
        #[pin]
        work: F,
        deadline: Option<D>,
        timer: Option<Pin<Box<Sleep>>>,
    }
}

/// Runs work until the deadline, which `deadline` returns if the work is not done at once.
pub(crate) fn within<F: Future, D: FnOnce() -> Instant>(deadline: D, work: F) -> Within<F, D> {
    Within { work, deadline: Some(deadline), timer: None }
}

impl<F: Future, D: FnOnce() -> Instant> Future for Within<F, D> {
    type Output = Result<F::Output, Late>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(done) = this.work.poll(cx) {
            return Poll::Ready(Ok(done));
        }
        if let Some(deadline) = this.deadline.take() {
            *this.timer = Some(Box::pin(sleep_until(deadline())));
        }
        let Some(timer) = this.timer else { return Poll::Pending };
        // Work that used up the budget of its task must not keep its timer from firing.
        Pin::new(&mut unconstrained(timer)).poll(cx).map(|()| Err(Late))
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_that_waits_beyond_its_deadline_is_late_and_nothing_else_is() {
        let begun = Instant::now();
        let second = || begun + Duration::from_secs(1);
        assert_eq!(within(second, pending::<()>()).await, Err(Late));
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
        assert_eq!(within(second, ready(5)).await, Ok(5), "done at once, whatever the time");
        assert_eq!(within(second, sleep(Duration::from_millis(1))).await, Err(Late));
        let later = || begun + Duration::from_secs(9);
        assert_eq!(within(later, sleep(Duration::from_secs(1))).await, Ok(()));
    }

    #[tokio::test]
    async fn work_that_is_always_ready_to_go_on_is_late_too() {
        let busy = async {
            loop {
                tokio::task::coop::consume_budget().await;
            }
        };
        let deadline = || Instant::now() + Duration::from_millis(20);
        let busy: Result<(), Late> = within(deadline, busy).await;
        assert_eq!(busy, Err(Late));
    }
}

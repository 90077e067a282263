//! A future that is dropped after a number of polls, unless it is done before.

use std::pin::Pin;
use std::task::{Context, Poll};

pub(super) struct Interrupt<F> {
    inner: Option<Pin<Box<F>>>,
    polls_left: u64,
}

impl<F: Future> Interrupt<F> {
    /// Polls `future` at most `polls` times. A dropped future has no output.
    pub(super) fn after(polls: u64, future: F) -> Self {
        Self { inner: Some(Box::pin(future)), polls_left: polls }
    }
}

impl<F: Future> Future for Interrupt<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        if self.polls_left == 0 {
            self.inner = None;
            return Poll::Ready(None);
        }
        self.polls_left -= 1;
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        match inner.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if self.polls_left == 0 => {
                self.inner = None;
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

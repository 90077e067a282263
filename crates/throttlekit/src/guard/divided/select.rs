//! The first of two futures, polled in order.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// The output of the future that completed.
pub(super) enum Either<A, B> {
    This(A),
    That(B),
}

/// Waits for the first future to complete; for `this` if both have. The other is dropped.
pub(super) async fn either<A: Future, B: Future>(this: A, that: B) -> Either<A::Output, B::Output> {
    let (mut this, mut that) = (pin!(this), pin!(that));
    poll_fn(|context| match this.as_mut().poll(context) {
        Poll::Ready(ended) => Poll::Ready(Either::This(ended)),
        Poll::Pending => that.as_mut().poll(context).map(Either::That),
    })
    .await
}

//! The end of a slot that others may hold by now.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// The slot is no longer held: its deadline passed, this process lost contact with the store, or the store gave the
/// slot to another. Work in progress was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced;

impl fmt::Display for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the slot is no longer held: stop the work and acquire another")
    }
}

impl std::error::Error for Fenced {}

/// Runs `work` until it is done or `fenced` completes, and then drops it. Calls `is_fenced` before every poll of the
/// work: a process that was paused may be woken for it before its timers are.
pub(crate) async fn run_unless_fenced<F: Future>(
    work: F,
    is_fenced: impl Fn() -> bool,
    fenced: impl Future<Output = ()>,
) -> Result<F::Output, Fenced> {
    let (mut work, mut fenced) = (pin!(work), pin!(fenced));
    poll_fn(|context| {
        if is_fenced() || fenced.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(Fenced));
        }
        work.as_mut().poll(context).map(Ok)
    })
    .await
}

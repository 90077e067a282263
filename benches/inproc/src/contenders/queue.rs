//! Calls that do not wait, through a queue and without one.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use throttlekit::wait::Queue;
use throttlekit::{Admit, Call, Limiter, Rate};

use super::{BURST, Check, UNIT_EVERY, consumed};
use crate::workloads::Stream;

struct Alone(Limiter);
struct Queued(Queue<Limiter>);

fn limiter() -> Limiter {
    Limiter::new(Rate::every(UNIT_EVERY).burst(u64::from(BURST))).expect("a limiter")
}

/// A limiter through the trait.
pub fn alone() -> impl Check + 'static {
    Alone(limiter())
}

/// The same limiter behind a queue.
pub fn queued() -> impl Check + 'static {
    Queued(Queue::new(limiter()))
}

impl Check for Alone {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        let admitted = self.0.admit(Call::by(stream.string(at))).now_or_later();
        matches!(consumed(admitted), Ok(Ok(admission)) if admission.allowed).into()
    }
}

impl Check for Queued {
    type Scratch = ();

    #[inline(always)]
    fn check(&self, stream: &Stream, at: usize, (): &mut ()) -> usize {
        let ready = pin!(self.0.until_ready(stream.string(at)));
        let ready = ready.poll(&mut Context::from_waker(Waker::noop()));
        matches!(consumed(ready), Poll::Ready(Ok(admission)) if admission.allowed).into()
    }
}

//! The production guard, as a subject of the scenarios.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use throttlekit::guard::{Denied, OwnedGuardPermit};
use throttlekit::internals::Mutex;
use throttlekit::{Call, Guard};

use super::{Caller, Goes, Holds, Seen, Setup, Told};

type Acquire = Pin<Box<dyn Future<Output = Result<OwnedGuardPermit, Denied>>>>;
type Woken = Arc<Mutex<BTreeSet<Caller>>>;

/// A fixed guard, with the permits and futures of all callers.
pub struct Shipped {
    guard: Guard,
    permits: BTreeMap<Caller, OwnedGuardPermit>,
    waits: BTreeMap<Caller, Acquire>,
    woken: Woken,
}

impl Shipped {
    /// Creates the guard of this configuration.
    pub fn new(setup: &Setup) -> Self {
        let builder = Guard::builder(setup.limit).queue_max(setup.queue_max);
        let builder = setup.kept.iter().fold(builder, |builder, &kept| builder.priority_below(kept));
        let (permits, waits) = (BTreeMap::new(), BTreeMap::new());
        Self { guard: builder.build().expect("a valid limit"), permits, waits, woken: Woken::default() }
    }

    fn poll_once(&mut self, who: Caller, mut wait: Acquire) -> Told {
        let waker = Waker::from(Arc::new(Bell { who, woken: Arc::clone(&self.woken) }));
        match wait.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => self.keep(who, answer),
            Poll::Pending => {
                self.waits.insert(who, wait);
                Told::Wait
            }
        }
    }

    fn keep(&mut self, who: Caller, answer: Result<OwnedGuardPermit, Denied>) -> Told {
        match answer {
            Ok(permit) => {
                self.permits.insert(who, permit);
                Told::Come
            }
            Err(_) => Told::Full,
        }
    }
}

struct Bell {
    who: Caller,
    woken: Woken,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.woken.lock().insert(self.who);
    }
}

fn call(place: usize) -> Call<'static> {
    Call::from(()).priority(place as u8)
}

impl Holds for Shipped {
    fn ask(&mut self, who: Caller, place: usize) -> Told {
        let answer = self.guard.try_acquire_owned(call(place));
        self.keep(who, answer)
    }

    fn wait(&mut self, who: Caller, place: usize) -> Told {
        let wait = Box::pin(self.guard.clone().acquire_owned(call(place)));
        self.poll_once(who, wait)
    }

    fn poll(&mut self, who: Caller) -> Told {
        let wait = self.waits.remove(&who).expect("one who waits");
        self.poll_once(who, wait)
    }

    fn give_up(&mut self, who: Caller) {
        self.waits.remove(&who);
    }

    fn go(&mut self, who: Caller, how: Goes) {
        let permit = self.permits.remove(&who).expect("one who holds a slot");
        match how {
            Goes::Success => permit.success(),
            Goes::Dropped => permit.dropped(),
            Goes::Ignored => permit.ignored(),
            Goes::Cancelled => drop(permit),
            Goes::Panicked => panic_with(permit),
        }
    }

    fn set_limit(&mut self, limit: u32) {
        self.guard.set_limit(limit);
    }

    fn see(&mut self) -> Seen {
        let stats = self.guard.stats();
        let woken = std::mem::take(&mut *self.woken.lock()).into_iter().collect();
        let (limit, in_flight, waiting) = (stats.limit, stats.in_flight, stats.waiting);
        Seen { limit, in_flight, waiting, dropped: stats.dropped, woken }
    }
}

/// Unwinds while something is held, without output on the console.
pub(crate) fn panic_with<T>(held: T) {
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _held = held;
        resume_unwind(Box::new(()));
    }));
    assert!(unwound.is_err());
}

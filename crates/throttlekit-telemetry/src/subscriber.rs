//! Subscribers to events.

use std::panic::{AssertUnwindSafe, catch_unwind};

use throttlekit::observe::Event;

use crate::counts::Counts;

/// Receives each event, on the thread of the [`Telemetry`](crate::Telemetry).
///
/// It may be slow: no decision waits for it. While it runs, events queue up, and those that find the queue full are
/// lost and counted. If it panics, it is dropped and not called again.
///
/// Any `FnMut(&Event<'_>) + Send` is one.
pub trait Subscriber: Send + 'static {
    /// Handles the event of a recent decision. At most [`KEY_BYTES`](crate::KEY_BYTES) of its key are included.
    fn event(&mut self, event: &Event<'_>);
}

impl<F: FnMut(&Event<'_>) + Send + 'static> Subscriber for F {
    fn event(&mut self, event: &Event<'_>) {
        self(event);
    }
}

/// All subscribers except those that panicked.
pub(crate) struct Subscribers(pub(crate) Vec<Box<dyn Subscriber>>);

impl Subscribers {
    pub(crate) fn show(&mut self, event: &Event<'_>, counts: &Counts) {
        let mut at = 0;
        while let Some(subscriber) = self.0.get_mut(at) {
            if quietly(|| subscriber.event(event)) {
                at += 1;
            } else {
                counts.strike_off();
                let struck = self.0.remove(at);
                quietly(|| drop(struck));
            }
        }
    }
}

impl Drop for Subscribers {
    fn drop(&mut self) {
        for subscriber in self.0.drain(..) {
            quietly(|| drop(subscriber));
        }
    }
}

/// Returns whether it ran without a panic, which is caught.
fn quietly(run: impl FnOnce()) -> bool {
    // A panic's payload may panic when it is dropped, so it is leaked.
    catch_unwind(AssertUnwindSafe(run)).map_err(std::mem::forget).is_ok()
}

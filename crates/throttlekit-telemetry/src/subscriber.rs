//! Who is shown events.

use std::panic::{AssertUnwindSafe, catch_unwind};

use throttlekit::admission::Event;

use crate::counts::Counts;

/// Is shown each event, on the thread of the [`Telemetry`](crate::Telemetry).
///
/// It may take its time: no decision waits for it. While it does, events queue up, and those that find the queue full are lost
/// and counted. If it panics it is dropped and asked no more.
///
/// Any `FnMut(&Event<'_>) + Send` is one.
pub trait Subscriber: Send + 'static {
    /// A decision was made a little while ago. Of its key no more than [`KEY_BYTES`](crate::KEY_BYTES) are shown.
    fn event(&mut self, event: &Event<'_>);
}

impl<F: FnMut(&Event<'_>) + Send + 'static> Subscriber for F {
    fn event(&mut self, event: &Event<'_>) {
        self(event);
    }
}

/// All of them, without those that panicked.
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

/// Whether it ran without a panic, which goes no further.
fn quietly(run: impl FnOnce()) -> bool {
    // What a panic carries may panic as it is dropped, so it is not.
    catch_unwind(AssertUnwindSafe(run)).map_err(std::mem::forget).is_ok()
}

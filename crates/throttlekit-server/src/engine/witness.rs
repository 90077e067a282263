//! Who is told of every decision.

use std::time::Duration;

use throttlekit::admission::Event;

/// Sees every decision after it is made, on the task that asked: it must be quick, and must not block.
pub trait Witness: Send + Sync + 'static {
    /// A decision was made in this time. Of a policy in shadow mode the event says what would have been decided.
    fn decided(&self, event: &Event<'_>, shadow: bool, took: Duration);
}

/// Nobody looks.
impl Witness for () {
    fn decided(&self, _event: &Event<'_>, _shadow: bool, _took: Duration) {}
}

//! The observer of every decision.

use std::time::Duration;

use throttlekit::admission::Event;

/// Observes every decision after it is made, on the task of its caller: it must be quick, and must not block.
pub trait DecisionObserver: Send + Sync + 'static {
    /// A decision was made in this time. Of a policy in shadow mode the event says what would have been decided.
    fn decided(&self, event: &Event<'_>, shadow: bool, took: Duration);
}

/// Observes nothing.
impl DecisionObserver for () {
    fn decided(&self, _event: &Event<'_>, _shadow: bool, _took: Duration) {}
}

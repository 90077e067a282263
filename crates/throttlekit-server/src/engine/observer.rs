//! The observer of every decision.

use std::time::Duration;

use throttlekit::observe::Event;

/// Observes every decision after it is made, on the task of its caller: it must be fast, and must not block.
pub trait DecisionObserver: Send + Sync + 'static {
    /// Called after a decision, with the time it took. In shadow mode the event holds the decision without shadow mode.
    fn decided(&self, event: &Event<'_>, shadow: bool, took: Duration);
}

/// Observes nothing.
impl DecisionObserver for () {
    fn decided(&self, _event: &Event<'_>, _shadow: bool, _took: Duration) {}
}

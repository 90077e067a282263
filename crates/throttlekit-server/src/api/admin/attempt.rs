//! Actions of operators that end without success, as events of the audit log.
//!
//! A successful action logs its own event, with its result. Together each action has exactly one event.

use std::future::Future;

use super::who;
use crate::access::Caller;
use crate::audit::{AUDIT, Action};
use crate::engine::Refusal;

/// The policy, keys and plan of an action. Empty fields are not logged.
#[derive(Debug, Default)]
pub(super) struct Subject {
    pub(super) policy: String,
    pub(super) key: String,
    pub(super) keys: Vec<String>,
    pub(super) plan: String,
}

impl Subject {
    pub(super) fn key(policy: &str, key: &str) -> Self {
        Self { policy: policy.into(), key: key.into(), ..Self::default() }
    }

    pub(super) fn plan(policy: &str, plan: &str) -> Self {
        Self { policy: policy.into(), plan: plan.into(), ..Self::default() }
    }
}

/// An action in progress. Dropped before it [ended](Self::ended), it logs that it was canceled.
pub(super) struct Attempt<'a> {
    caller: &'a Caller,
    action: Action,
    subject: Subject,
    has_ended: bool,
}

impl<'a> Attempt<'a> {
    pub(super) fn of(caller: &'a Caller, action: Action, subject: Subject) -> Self {
        Self { caller, action, subject, has_ended: false }
    }

    /// Performs the action. The future is dropped if the caller disconnects, and the action may be done by then.
    pub(super) async fn perform<T>(
        self,
        action: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let result = action.await;
        self.ended(result)
    }

    /// Logs a failure. The refusal of a caller without the right is no action: it is counted, and logged once a second
    /// at most, so that such a caller cannot fill the audit log.
    pub(super) fn ended<T>(mut self, result: Result<T, Refusal>) -> Result<T, Refusal> {
        self.has_ended = true;
        if let Err(refusal) = &result
            && !matches!(refusal, Refusal::Forbidden(_))
        {
            self.log("action failed", Some(refusal));
        }
        result
    }

    fn log(&self, event: &'static str, error: Option<&Refusal>) {
        let Subject { policy, key, keys, plan } = &self.subject;
        let set = |text: &String| (!text.is_empty()).then(|| text.clone());
        let (policy, key, plan) = (set(policy), set(key), set(plan));
        let keys = (!keys.is_empty()).then(|| tracing::field::debug(keys));
        let error = error.map(tracing::field::display);
        let (action, (principal, peer)) = (self.action.label(), who(self.caller));
        tracing::info!(target: AUDIT, principal, peer, action, policy, key, keys, plan, error, "{event}");
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.log("action canceled", None);
        }
    }
}

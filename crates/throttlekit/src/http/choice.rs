//! Handling of requests that no limit decides about.

use super::admit::AdmitError;

/// Action for a request without a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissing {
    /// Refuse it: 400 if the client left the key out, 500 if the server did.
    #[default]
    Refuse,
    /// Allow it uncounted. To count all such requests under one key, end the chain of
    /// [`KeyExtractor::or`](super::KeyExtractor::or) with a [`SharedKey`](super::SharedKey) instead.
    Skip,
}

/// Action for a request when no decision was possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Fail closed: refuse it with 503. The limit holds, and an outage of its store is an outage of the service.
    #[default]
    Closed,
    /// Fail open: allow it. The service stays up, and during the outage nothing is limited.
    Open,
}

/// Chooses the action when no decision was possible: an [`OnFailure`], or a closure that inspects the error.
pub trait ChooseOnFailure: Send + Sync + 'static {
    /// Returns the action for this error.
    fn choose(&self, error: &AdmitError) -> OnFailure;
}

impl ChooseOnFailure for OnFailure {
    fn choose(&self, _: &AdmitError) -> OnFailure {
        *self
    }
}

impl<F: Fn(&AdmitError) -> OnFailure + Send + Sync + 'static> ChooseOnFailure for F {
    fn choose(&self, error: &AdmitError) -> OnFailure {
        self(error)
    }
}

//! What happens to requests that no limit decides about.

use super::admit::AdmitError;

/// What to do with a request for which no key is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissing {
    /// Refuse it: 400 where the client left the key out, 500 where the server did.
    #[default]
    Refuse,
    /// Let it pass uncounted. To count all such requests together, end the chain of
    /// [`Identify::or`](super::Identify::or) with a [`SharedKey`](super::SharedKey) instead.
    Skip,
}

/// What to do with a request when nothing could be decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Refuse it with 503: the limit holds, and an outage of its store is an outage of the service.
    #[default]
    Closed,
    /// Let it pass: the service stays up, and during the outage nothing is limited.
    Open,
}

/// Chooses what to do when nothing could be decided: an [`OnFailure`], or a closure that looks at the error.
pub trait ChooseOnFailure: Send + Sync + 'static {
    /// The choice for this error.
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

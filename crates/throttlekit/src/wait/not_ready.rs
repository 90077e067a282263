//! Reasons why a wait ended without an admission.

use std::error::Error;
use std::fmt;

use crate::admit::{Denied, StoreError};

/// Reason why a wait ended without an admission.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotReady {
    /// Waiting does not help: the cost exceeds the whole limit, or the value is below the price. Reported at once.
    Never(Denied),
    /// The wait exceeds its maximum. Reported at once if the exact wait is known to exceed it. Has the last denial of
    /// this call, or that of the key if this call did not have its turn.
    Timeout(Denied),
    /// The queue is full. Has the last denial of this call, or that of the key if this call was not decided.
    Full(Denied),
    /// Nothing was decided: the store failed, or did not respond before the maximum wait was over.
    Store(StoreError),
}

impl NotReady {
    /// Returns the denial; `None` if nothing was decided.
    pub fn denied(&self) -> Option<Denied> {
        match self {
            Self::Never(denied) | Self::Timeout(denied) | Self::Full(denied) => Some(*denied),
            Self::Store(_) => None,
        }
    }
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never(_) => "the request can never pass: reduce its cost or raise its value",
            Self::Timeout(_) => "the wait exceeds its maximum: retry later or wait longer",
            Self::Full(_) => "the queue of waiters is full: retry later or raise `max_waiters`",
            Self::Store(_) => "nothing was decided",
        })
    }
}

impl Error for NotReady {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Never(denied) | Self::Timeout(denied) | Self::Full(denied) => Some(denied),
            Self::Store(error) => Some(error),
        }
    }
}

//! Proof of a charge to a fair limiter.

use throttlekit_core::Timestamp;
use throttlekit_core::fair::Weight;

/// Proof of a charge, by which it can be settled when the actual cost is known. Once: it cannot be copied. If dropped,
/// the charge stays.
#[derive(Debug, PartialEq, Eq)]
pub struct FairReceipt {
    pub(super) portion: Portion,
    pub(super) cost: u64,
}

/// A member that was charged, and the window of the charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Portion {
    pub(super) member: Charged,
    pub(super) reset_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Charged {
    Tenant {
        /// Fingerprint of its key.
        name: u64,
        weight: Weight,
    },
    /// The leaf at the end of this path.
    Leaf(Box<[Box<[u8]>]>),
}

impl Portion {
    /// Returns the portion of the same member in the window that ends at `reset_at`.
    #[cfg(feature = "store")]
    pub(crate) fn in_window(&self, reset_at: Timestamp) -> Self {
        Self { reset_at, ..self.clone() }
    }
}

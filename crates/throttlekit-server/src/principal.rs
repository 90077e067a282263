//! The identity of a caller.

use std::sync::Arc;

use throttlekit::store::Owner;

/// Who asks, as far as a door can tell: the subject of a client certificate, the name of a token, or nobody in particular.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    /// One of this name.
    pub fn named(name: &str) -> Self {
        Self(name.into())
    }

    /// Whoever reaches a door that asks for no identity.
    pub fn anyone() -> Self {
        Self::named("")
    }

    /// Its name; empty if it has none.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// As holders of leases are told apart.
    pub fn owner(&self) -> Owner {
        use sha2::{Digest, Sha256};
        let digest = Sha256::digest(self.0.as_bytes());
        let mut head = [0; 16];
        head.copy_from_slice(&digest[..16]);
        Owner(u128::from_be_bytes(head))
    }
}

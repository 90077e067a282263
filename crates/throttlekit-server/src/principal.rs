//! The identity of a caller.

use std::sync::Arc;

use throttlekit::store::Owner;

/// The identity of a caller: the subject of a client certificate, the name of a token, or anonymous.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal(Option<Arc<str>>);

impl Principal {
    /// Creates a principal with this name.
    pub fn named(name: &str) -> Self {
        Self((!name.is_empty()).then(|| name.into()))
    }

    /// Creates the anonymous principal, for an API that requires no identity. Its name is empty.
    pub const fn anyone() -> Self {
        Self(None)
    }

    /// Returns its name; empty if it has none.
    pub fn name(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }

    /// Returns the owner under which its leases are registered.
    pub fn owner(&self) -> Owner {
        use sha2::{Digest, Sha256};
        let digest = Sha256::digest(self.name().as_bytes());
        let mut head = [0; 16];
        head.copy_from_slice(&digest[..16]);
        Owner(u128::from_be_bytes(head))
    }
}

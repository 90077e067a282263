//! Key hashing: maps a key to a 64-bit fingerprint.

use std::hash::{BuildHasher, Hasher, RandomState};

use siphasher::sip::SipHasher13;

/// Hashes a key to a 64-bit fingerprint, with a secret of its own.
///
/// The fingerprint identifies the key. Two keys that collide share one budget, which can only deny earlier; no key ever
/// gets a second budget. At a million keys the chance that any two collide is 3·10⁻⁸.
pub trait KeyHash: Send + Sync {
    /// Creates a hasher with a new random secret.
    fn random() -> Self;

    /// Returns the fingerprint of a key.
    fn fingerprint(&self, key: &[u8]) -> u64;
}

/// SipHash-1-3 with a secret key: the default, for keys chosen by untrusted clients.
///
/// Without the secret, an attacker cannot construct colliding keys.
#[derive(Clone, Debug)]
pub struct SecretHash {
    secret: SipHasher13,
}

impl SecretHash {
    /// Creates a hasher with this secret, for nodes that must hash alike. Anyone who learns it can construct colliding
    /// keys.
    pub fn with_seed(seed: [u8; 16]) -> Self {
        Self { secret: SipHasher13::new_with_key(&seed) }
    }
}

impl KeyHash for SecretHash {
    fn random() -> Self {
        Self { secret: SipHasher13::new_with_keys(random_u64(), random_u64()) }
    }

    #[inline]
    fn fingerprint(&self, key: &[u8]) -> u64 {
        self.secret.hash(key)
    }
}

/// foldhash with a random seed: much faster, for keys the operator chooses.
///
/// It resists accidental collisions, not a targeted attack.
#[derive(Clone, Debug)]
pub struct TrustedHash {
    seed: foldhash::fast::FixedState,
}

impl KeyHash for TrustedHash {
    fn random() -> Self {
        Self { seed: foldhash::fast::FixedState::with_seed(random_u64()) }
    }

    #[inline(always)]
    fn fingerprint(&self, key: &[u8]) -> u64 {
        let mut hasher = self.seed.build_hasher();
        hasher.write(key);
        hasher.finish()
    }
}

/// Returns per-process randomness of the standard library; no two calls return the same.
pub(crate) fn random_u64() -> u64 {
    RandomState::new().hash_one(0)
}

/// Returns a random name that nothing else has.
#[cfg(feature = "store")]
pub(crate) fn random_u128() -> u128 {
    u128::from(random_u64()) << 64 | u128::from(random_u64())
}

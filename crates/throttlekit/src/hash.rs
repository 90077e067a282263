//! From a key to the 64 bits that stand for it.

use std::hash::{BuildHasher, Hasher, RandomState};

use siphasher::sip::SipHasher13;

/// Turns a key into a 64-bit fingerprint, with a secret of its own.
///
/// The fingerprint stands for the key. Two keys that collide share one budget, which can only deny earlier; no
/// key ever gets a second budget. At a million keys the chance that any two collide is 3·10⁻⁸.
pub trait KeyHash: Send + Sync {
    /// A hash with a new random secret.
    fn random() -> Self;

    /// The fingerprint of a key.
    fn fingerprint(&self, key: &[u8]) -> u64;
}

/// SipHash-1-3 with a secret key: the default, for keys that strangers choose.
///
/// Who does not know the secret cannot make keys collide.
#[derive(Clone, Debug)]
pub struct SecretHash {
    secret: SipHasher13,
}

impl SecretHash {
    /// The hash with this secret, for nodes that must hash alike. Who learns it can make keys collide.
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
/// It resists accidents, not a stranger who studies it.
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

/// The standard library's per-process randomness; no two calls give the same.
pub(crate) fn random_u64() -> u64 {
    RandomState::new().hash_one(0)
}

/// A name that nothing else has.
#[cfg(feature = "store")]
pub(crate) fn random_u128() -> u128 {
    u128::from(random_u64()) << 64 | u128::from(random_u64())
}

//! What a fleet saw of a key.

use throttlekit_core::overload::{LinearSketch, MergeError, Merged, Shape, SnapshotError};

use crate::hash::random_u64;
use crate::sync::Mutex;
use crate::{KeyHash, SecretHash};

/// Counts what comes, in fixed memory, and can be added to what other nodes counted.
///
/// For floods that stay below every node's limit: each node counts, sends its [`snapshot`](Self::snapshot) around now
/// and then, and adds up those of the others; the sum is the sketch of all traffic, counter for counter. It detects,
/// late by as long as snapshots take, and limits nothing. Snapshots are of everything since the last
/// [`take`](Self::take), so add each node's once.
///
/// All nodes need one seed. Keep it secret: who knows it can choose keys that are counted for others.
///
/// ```
/// use throttlekit::MergeableSketch;
/// use throttlekit::overload::Shape;
///
/// let shape = Shape::for_error(0.001, 0.001)?;
/// let (here, there) = (MergeableSketch::with_seed(shape, [7; 16]), MergeableSketch::with_seed(shape, [7; 16]));
/// here.observe("203.0.113.7", 60);
/// there.observe("203.0.113.7", 60);
///
/// let mut fleet = here.snapshot();
/// let _ = fleet.merge(&there.snapshot())?;
/// assert_eq!(here.estimate_in(&fleet, "203.0.113.7"), 120);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MergeableSketch {
    counts: Mutex<LinearSketch>,
    hash: SecretHash,
}

/// What stands for a seed: its hash of a text that is no key of yours.
const PRINTED: &[u8] = b"throttlekit: the seed of a mergeable sketch";

impl MergeableSketch {
    /// A sketch for this node alone, with a random seed.
    pub fn new(shape: Shape) -> Self {
        let mut seed = [0; 16];
        seed[..8].copy_from_slice(&random_u64().to_le_bytes());
        seed[8..].copy_from_slice(&random_u64().to_le_bytes());
        Self::with_seed(shape, seed)
    }

    /// A sketch that can be added to others with this seed and shape.
    pub fn with_seed(shape: Shape, seed: [u8; 16]) -> Self {
        let hash = SecretHash::with_seed(seed);
        Self { counts: Mutex::new(LinearSketch::new(shape, hash.fingerprint(PRINTED))), hash }
    }

    /// Counts units for a key, admitted or not.
    pub fn observe(&self, key: &(impl AsRef<[u8]> + ?Sized), units: u64) {
        let hash = self.hash.fingerprint(key.as_ref());
        self.counts.lock().observe(hash, units);
    }

    /// What was counted here for a key, or more.
    pub fn estimate(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> u32 {
        self.estimate_in(&self.counts.lock(), key)
    }

    /// What was counted for a key in a sketch of the same seed: a sum over the fleet, say.
    pub fn estimate_in(&self, sketch: &LinearSketch, key: &(impl AsRef<[u8]> + ?Sized)) -> u32 {
        sketch.estimate(self.hash.fingerprint(key.as_ref()))
    }

    /// All units counted here.
    pub fn total(&self) -> u64 {
        self.counts.lock().total()
    }

    /// What was counted so far; [`LinearSketch::to_bytes`] makes it ready to send.
    pub fn snapshot(&self) -> LinearSketch {
        self.counts.lock().clone()
    }

    /// What was counted so far, and begins anew.
    pub fn take(&self) -> LinearSketch {
        let mut counts = self.counts.lock();
        let taken = counts.clone();
        counts.clear();
        taken
    }

    /// Adds what another node counted to what was counted here.
    pub fn merge(&self, other: &LinearSketch) -> Result<Merged, MergeError> {
        self.counts.lock().merge(other)
    }

    /// The sketch that these bytes of another node say.
    pub fn read(bytes: &[u8]) -> Result<LinearSketch, SnapshotError> {
        LinearSketch::from_bytes(bytes)
    }
}

debug_fields!([] MergeableSketch, |it| shape = it.counts.lock().shape());

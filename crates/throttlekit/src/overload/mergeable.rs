//! Counts of a key over all nodes.

use throttlekit_core::overload::{LinearSketch, MergeError, Merged, Shape, SnapshotError};

use crate::hash::{KeyHash, SecretHash, random_u64};
use crate::sync::Mutex;

/// Counts units in fixed memory, and can be merged with the counts of other nodes.
///
/// For floods that stay below every node's limit: each node counts, sends its [`snapshot`](Self::snapshot)
/// periodically, and merges those of the others; the sum is the sketch of all traffic, counter for counter. It detects,
/// late by as long as snapshots take, and limits nothing. Snapshots are of everything since the last
/// [`take`](Self::take), so merge each node's once.
///
/// All nodes need one seed. Keep it secret: anyone who knows it can choose keys that are counted for others.
///
/// ```
/// use throttlekit::overload::{MergeableSketch, Shape};
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

/// Text whose hash identifies a seed; it is no key of yours.
const PRINTED: &[u8] = b"throttlekit: the seed of a mergeable sketch";

impl MergeableSketch {
    /// Creates a sketch for this node alone, with a random seed.
    pub fn new(shape: Shape) -> Self {
        let mut seed = [0; 16];
        seed[..8].copy_from_slice(&random_u64().to_le_bytes());
        seed[8..].copy_from_slice(&random_u64().to_le_bytes());
        Self::with_seed(shape, seed)
    }

    /// Creates a sketch that can be merged with others of this seed and shape.
    pub fn with_seed(shape: Shape, seed: [u8; 16]) -> Self {
        let hash = SecretHash::with_seed(seed);
        Self { counts: Mutex::new(LinearSketch::new(shape, hash.fingerprint(PRINTED))), hash }
    }

    /// Counts units for a key, admitted or not.
    pub fn observe(&self, key: &(impl AsRef<[u8]> + ?Sized), units: u64) {
        let hash = self.hash.fingerprint(key.as_ref());
        self.counts.lock().observe(hash, units);
    }

    /// Returns the count of a key on this node, or more.
    pub fn estimate(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> u32 {
        self.estimate_in(&self.counts.lock(), key)
    }

    /// Returns the count of a key in a sketch of the same seed, such as the sum over all nodes.
    pub fn estimate_in(&self, sketch: &LinearSketch, key: &(impl AsRef<[u8]> + ?Sized)) -> u32 {
        sketch.estimate(self.hash.fingerprint(key.as_ref()))
    }

    /// Returns all units counted here.
    pub fn total(&self) -> u64 {
        self.counts.lock().total()
    }

    /// Returns the counts so far; [`LinearSketch::to_bytes`] makes them ready to send.
    pub fn snapshot(&self) -> LinearSketch {
        self.counts.lock().clone()
    }

    /// Returns the counts so far, and resets them.
    pub fn take(&self) -> LinearSketch {
        let mut counts = self.counts.lock();
        let taken = counts.clone();
        counts.clear();
        taken
    }

    /// Adds the counts of another node to those of this one.
    pub fn merge(&self, other: &LinearSketch) -> Result<Merged, MergeError> {
        self.counts.lock().merge(other)
    }

    /// Decodes the sketch of another node from its bytes.
    pub fn read(bytes: &[u8]) -> Result<LinearSketch, SnapshotError> {
        LinearSketch::from_bytes(bytes)
    }
}

debug_fields!([] MergeableSketch, |it| shape = it.counts.lock().shape());

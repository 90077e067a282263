//! A linear sketch as bytes, and back.
//!
//! ```text
//! 0   4  magic "TKLS"
//! 4   4  version, 1
//! 8   4  width
//! 12  4  depth
//! 16  8  print of the seed
//! 24  8  total
//! 32  4  a counter, width × depth times, row by row
//! …   8  FNV-1a of all bytes before
//! ```
//!
//! Numbers are little-endian. The checksum detects accidental damage, not forgery: an attacker who can write a node's
//! bytes controls its sketch.

use alloc::vec::Vec;
use core::fmt;

use super::{LinearSketch, Shape, ShapeError};

const MAGIC: [u8; 4] = *b"TKLS";
const VERSION: u32 = 1;
const HEAD: usize = 32;
const CHECK: usize = 8;

/// Reason why bytes are not a valid sketch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SnapshotError {
    /// They do not begin as a sketch does.
    NotASketch,
    /// Their version is not supported by this build.
    Version(u32),
    /// Their size is invalid for a sketch.
    Shape(ShapeError),
    /// They are shorter or longer than their declared size requires.
    Length {
        /// Actual length in bytes.
        found: usize,
        /// Expected length in bytes.
        expected: usize,
    },
    /// The checksum does not match.
    Damaged,
}

impl LinearSketch {
    /// Encodes the sketch as bytes, of a length that its shape alone determines.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length(self.shape));
        bytes.extend(MAGIC);
        for number in [VERSION, self.shape.width(), self.shape.depth()] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.print.to_le_bytes());
        bytes.extend(self.total.to_le_bytes());
        self.counters.iter().for_each(|counter| bytes.extend(counter.to_le_bytes()));
        bytes.extend(fnv(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes a sketch. Allocates no more memory than there are bytes, whatever they contain.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let mut head = Reader(bytes);
        let [magic, version, width, depth] = [head.u32(), head.u32(), head.u32(), head.u32()];
        let (Some(version), Some(width), Some(depth)) = (version, width, depth) else {
            return Err(SnapshotError::NotASketch);
        };
        if magic != Some(u32::from_le_bytes(MAGIC)) {
            return Err(SnapshotError::NotASketch);
        }
        if version != VERSION {
            return Err(SnapshotError::Version(version));
        }
        let shape = Shape::new(width, depth).map_err(SnapshotError::Shape)?;
        let expected = length(shape);
        if bytes.len() != expected {
            return Err(SnapshotError::Length { found: bytes.len(), expected });
        }
        let (said, check) = bytes.split_at(expected - CHECK);
        if check != fnv(said).to_le_bytes() {
            return Err(SnapshotError::Damaged);
        }
        let (print, total) = (head.u64().unwrap_or_default(), head.u64().unwrap_or_default());
        let counters = (0..shape.cells()).map_while(|_| head.u32()).collect();
        Ok(Self { shape, print, total, counters })
    }
}

fn length(shape: Shape) -> usize {
    HEAD + shape.bytes() + CHECK
}

/// FNV-1a, 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3))
}

/// Takes numbers off the front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn u64(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotASketch => f.write_str("not a sketch: expected bytes from `to_bytes`"),
            Self::Version(version) => {
                write!(
                    f,
                    "sketch version {version} is not supported: expected {VERSION}; upgrade the older node"
                )
            }
            Self::Shape(error) => error.fmt(f),
            Self::Length { found, expected } => {
                write!(f, "the sketch has {found} bytes: expected {expected}; send it again")
            }
            Self::Damaged => f.write_str("checksum of the sketch does not match: send it again"),
        }
    }
}

impl core::error::Error for SnapshotError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sketch(width: u32, depth: u32) -> LinearSketch {
        let mut sketch = LinearSketch::new(Shape::new(width, depth).unwrap(), 0xFEED);
        (0..100).for_each(|key: u64| sketch.observe(key.wrapping_mul(0x9E37_79B9_7F4A_7C15), key));
        sketch
    }

    proptest! {
        #[test]
        fn bytes_come_back_as_the_sketch_they_were(width in 1_u32..50, depth in 1_u32..8) {
            let sketch = sketch(width, depth);
            prop_assert_eq!(LinearSketch::from_bytes(&sketch.to_bytes()), Ok(sketch));
        }

        #[test]
        fn any_bytes_are_a_sketch_or_an_error(mut bytes in proptest::collection::vec(any::<u8>(), 0..600), real: bool) {
            if real && bytes.len() >= 16 {
                bytes[..8].copy_from_slice(&[b'T', b'K', b'L', b'S', 1, 0, 0, 0]);
            }
            _ = LinearSketch::from_bytes(&bytes);
        }

        #[test]
        fn a_changed_bit_or_length_is_found(at in 0_usize..32 + 5 * 3 * 4 + 8, bit in 0_u32..8, cut in 0_usize..200) {
            let bytes = sketch(5, 3).to_bytes();
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            prop_assert!(LinearSketch::from_bytes(&changed).is_err());
            if cut < bytes.len() {
                prop_assert!(LinearSketch::from_bytes(&bytes[..cut]).is_err());
            }
        }
    }

    #[test]
    fn a_size_that_no_sketch_has_is_refused_before_memory_is_taken() {
        let mut bytes = sketch(5, 3).to_bytes();
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(LinearSketch::from_bytes(&bytes), Err(SnapshotError::Shape(_))));
        bytes[8..12].copy_from_slice(&1_000_000_u32.to_le_bytes());
        assert!(matches!(LinearSketch::from_bytes(&bytes), Err(SnapshotError::Length { .. })));
        bytes[4] = 9;
        assert_eq!(LinearSketch::from_bytes(&bytes), Err(SnapshotError::Version(9)));
    }
}

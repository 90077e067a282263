//! The sketch of another node, and a stored membership record.

use throttlekit_core::concurrency::division::Membership;
use throttlekit_core::overload::{LinearSketch, Merged};

const HEAD: usize = 32;
const CHECK: usize = 8;
/// The maximum size of a sketch that is built from bytes: larger ones find nothing new, more slowly.
const CELLS_MAX: usize = 1 << 10;

/// Reads bytes as they are, and as if their sender used the correct format. A parsed value is serialized
/// unchanged, and merging it into another never loses a count.
pub fn sketch(data: &[u8]) -> bool {
    if let Ok(membership) = Membership::from_bytes(data) {
        let written = membership.to_bytes();
        assert_eq!(Membership::from_bytes(&written).expect("a record decodes again"), membership);
    }
    if let Ok(sketch) = LinearSketch::from_bytes(data) {
        assert_eq!(sketch.to_bytes(), data, "it is not written as it was read");
    }
    let Some((one, other)) = pair(data) else { return false };
    let [one, other] = [one, other].map(|bytes| {
        let sketch = LinearSketch::from_bytes(&bytes).expect("all of it is as it should be");
        assert_eq!(sketch.to_bytes(), bytes, "it is not written as it was read");
        sketch
    });
    add(data, &one, &other);
    true
}

/// Returns two sketches of one shape and seed, whose numbers are these bytes.
fn pair(data: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (shape, rest) = data.split_at_checked(2)?;
    let (width, depth) = (1 + u32::from(shape[0]) % 64, 1 + u32::from(shape[1]) % 16);
    let cells = (width * depth) as usize;
    debug_assert!(cells <= CELLS_MAX);
    let (print, rest) = rest.split_at_checked(8)?;
    let (totals, rest) = rest.split_at_checked(16)?;
    let written = |total: &[u8], from: usize| {
        let mut bytes = Vec::with_capacity(HEAD + cells * 4 + CHECK);
        bytes.extend(b"TKLS");
        for number in [1, width, depth] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(print);
        bytes.extend(total);
        // Repeated as often as needed, since few inputs are as long as a sketch.
        let counters = rest.iter().copied().cycle().skip(from);
        bytes.extend(counters.chain(std::iter::repeat(0)).take(cells * 4));
        bytes.extend(fnv(&bytes).to_le_bytes());
        bytes
    };
    Some((written(&totals[..8], 0), written(&totals[8..], 4)))
}

/// FNV-1a, 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, add)
}

fn add(data: &[u8], one: &LinearSketch, other: &LinearSketch) {
    let mut sum = one.clone();
    let merged = sum.merge(other).expect("they have one shape and one seed");
    let mut swapped = other.clone();
    assert_eq!(swapped.merge(one), Ok(merged));
    assert_eq!(swapped, sum, "the order matters");
    assert_eq!(sum.total(), one.total().saturating_add(other.total()));
    let [a, b, c] = [one, other, &sum].map(counters);
    let (mut full, mut exact) = (0, true);
    for ((a, b), c) in a.into_iter().zip(b).zip(c) {
        assert_eq!(c, a.saturating_add(b), "a counter is not the sum");
        full += usize::from(c == u32::MAX);
        exact &= c != u32::MAX;
    }
    exact &= one.total().checked_add(other.total()).is_some();
    assert_eq!(merged, if exact { Merged::Exact } else { Merged::Saturated { counters: full } });
    for chunk in data.chunks_exact(8).take(8) {
        let hash = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        let before = one.estimate(hash).max(other.estimate(hash));
        assert!(sum.estimate(hash) >= before, "a count got lost");
        let seen = sum.estimate(hash);
        sum.observe(hash, hash >> 40);
        assert!(sum.estimate(hash) >= seen.saturating_add((hash >> 40) as u32), "an ask is not counted");
    }
}

fn counters(sketch: &LinearSketch) -> Vec<u32> {
    let bytes = sketch.to_bytes();
    let counters = bytes[HEAD..bytes.len() - CHECK].chunks_exact(4);
    counters.map(|four| u32::from_le_bytes(four.try_into().expect("four bytes"))).collect()
}

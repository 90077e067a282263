//! The seeds of inputs: valid ones, and meaningful words.

mod files;
mod messages;
mod responses;

pub use messages::messages;
use throttlekit::overload::{MergeableSketch, Shape};

use crate::random::Random;

/// The seeds of one target.
#[derive(Default)]
pub struct Seeds {
    /// Inputs that reach deep.
    pub inputs: Vec<Vec<u8>>,
    /// Words that may occur in one.
    pub words: Vec<&'static [u8]>,
}

/// Returns the seeds of a target; empty if there is no such target.
pub fn of(target: &str) -> Seeds {
    match target {
        "policy" => files::seeds(),
        "wire" => messages::seeds(),
        "descriptors" => descriptors(),
        "sketch" => sketches(),
        "responses" => responses::seeds(),
        _ => Seeds::default(),
    }
}

/// Rules and descriptors are drawn from any bytes: only length and repetition matter.
fn descriptors() -> Seeds {
    let inputs = (0..64_u64).map(|number| {
        let mut random = Random::of(0, number);
        (0..64 + 4 * number).map(|_| random.below(256) as u8).collect()
    });
    Seeds { inputs: inputs.collect(), words: vec![&[0; 16], &[1; 16], &[17, 17, 33, 33], &[255; 8]] }
}

fn sketches() -> Seeds {
    let mut inputs = Vec::new();
    for (width, depth) in [(1, 1), (5, 3), (8, 2), (20, 4), (3, 16)] {
        let shape = Shape::new(width, depth).expect("a small shape");
        let sketch = MergeableSketch::with_seed(shape, [7; 16]);
        inputs.push(sketch.snapshot().to_bytes());
        (0..50_u32).for_each(|key| sketch.observe(&key.to_le_bytes(), u64::from(key) << (key % 40)));
        inputs.push(sketch.snapshot().to_bytes());
        // In the format of the target: a shape, a seed, two totals, counters.
        inputs.push([&[width as u8, depth as u8][..], &[0x5A; 8], &[0x80; 16], &[0x7F; 64]].concat());
        inputs.push([&[width as u8, depth as u8][..], &[0; 24], &[1, 0, 0, 0, 255, 255, 255, 255]].concat());
    }
    // A membership record: its mark, three numbers, and members of 69 bytes.
    let head = [b"tkr\x01".as_slice(), &[9; 24]].concat();
    inputs.extend((0..3_u8).map(|members| {
        (0..members).fold(head.clone(), |membership, id| [membership, vec![id; 16], vec![1; 53]].concat())
    }));
    Seeds { inputs, words: vec![b"TKLS", &[1, 0, 0, 0], &[255; 4], &[255; 8], &[0; 8], b"tkr\x01"] }
}

#[cfg(test)]
mod tests {
    use crate::TARGETS;

    #[test]
    fn every_target_has_seeds_and_survives_them() {
        for (name, target) in TARGETS {
            let seeds = super::of(name);
            assert!(seeds.inputs.len() > 5 && !seeds.words.is_empty(), "{name}");
            seeds.inputs.iter().for_each(|input| _ = target(input));
        }
    }
}

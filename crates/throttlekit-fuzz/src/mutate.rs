//! New inputs from existing ones, without coverage.

pub use crate::random::Random;
use crate::seeds::Seeds;

/// The maximum number of changes to one seed.
const CHANGES_MAX: u64 = 8;
/// The maximum length of an input: longer ones are slower, and seldom find more.
pub const BYTES_MAX: usize = 1_024;
/// The maximum length that is copied, removed or inserted at once.
const PIECE_MAX: u64 = 32;

/// Returns an input near the seeds, or seldom one unrelated to them.
pub fn input(random: &mut Random, seeds: &Seeds) -> Vec<u8> {
    let mut bytes = if random.once_in(64) {
        (0..random.below(256)).map(|_| random.below(256) as u8).collect()
    } else {
        random.one(&seeds.inputs).cloned().unwrap_or_default()
    };
    for _ in 0..random.below(CHANGES_MAX + 1) {
        change(random, seeds, &mut bytes);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

/// Makes one change, some of them with a piece of the seeds.
pub fn change(random: &mut Random, seeds: &Seeds, bytes: &mut Vec<u8>) {
    let at = random.place(bytes.len() + 1);
    let piece = (at + 1 + random.below(PIECE_MAX) as usize).min(bytes.len()).max(at);
    match random.below(10) {
        0 => _ = bytes.get_mut(at).map(|byte| *byte ^= 1 << random.below(8)),
        1 => _ = bytes.get_mut(at).map(|byte| *byte = random.below(256) as u8),
        2 => bytes.insert(at, random.below(256) as u8),
        3 => drop(bytes.drain(at..piece)),
        4 => {
            let copied = bytes[at..piece].to_vec();
            let to = random.place(bytes.len() + 1);
            drop(bytes.splice(to..to, copied));
        }
        5 => {
            let other = random.one(&seeds.inputs).cloned().unwrap_or_default();
            let from = random.place(other.len() + 1);
            let end = (from + 1 + random.below(4 * PIECE_MAX) as usize).min(other.len()).max(from);
            drop(bytes.splice(at..piece, other[from..end].iter().copied()));
        }
        6 => bytes.truncate(at),
        7 => number(random, bytes, at),
        // Words twice as often: they carry the most meaning.
        _ => {
            let word = random.one(&seeds.words).copied().unwrap_or_default();
            let end = if random.below(2) == 0 { at } else { piece };
            drop(bytes.splice(at..end, word.iter().copied()));
        }
    }
}

/// Replaces a number: in digits, or in bytes.
fn number(random: &mut Random, bytes: &mut Vec<u8>, at: usize) {
    let number = random.edge();
    let digits = bytes[at..].iter().position(u8::is_ascii_digit).map(|first| at + first);
    match digits.filter(|_| random.below(4) > 0) {
        Some(first) => {
            let length = bytes[first..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            drop(bytes.splice(first..first + length, number.to_string().into_bytes()));
        }
        None => {
            let width = 1 << random.below(4);
            let end = (at + width).min(bytes.len());
            drop(bytes.splice(at..end, number.to_le_bytes().into_iter().take(width)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;

    #[test]
    fn a_seed_determines_its_input() {
        let seeds = seeds::of("policy");
        let inputs: Vec<_> = (0..100).map(|number| input(&mut Random::of(7, number), &seeds)).collect();
        let again: Vec<_> = (0..100).map(|number| input(&mut Random::of(7, number), &seeds)).collect();
        assert_eq!(inputs, again);
        let mut different = inputs.clone();
        different.sort();
        different.dedup();
        assert!(different.len() > 80, "{} of 100", different.len());
        assert!(inputs.iter().all(|bytes| bytes.len() <= BYTES_MAX));
    }
}

//! The trace of a run: a hash and, on request, text.

use core::fmt::Debug;
use core::hash::{Hash, Hasher};

use throttlekit_core::Timestamp;

/// A running hash of a run, and its lines if the run is replayed.
#[derive(Debug, Default)]
pub(super) struct Trace {
    hasher: TraceHasher,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(super) fn telling() -> Self {
        Self { lines: Some(Vec::new()), ..Self::default() }
    }

    pub(super) fn note(&mut self, at: Timestamp, what: &(impl Debug + Hash)) {
        (at, what).hash(&mut self.hasher);
        self.line(|| format!("{at} {what:?}"));
    }

    pub(super) fn line(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(line());
        }
    }

    pub(super) fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }

    pub(super) fn hash(&self) -> u64 {
        self.hasher.finish()
    }
}

/// A hasher with the same result in every process.
#[derive(Clone, Copy, Debug, Default)]
struct TraceHasher(u64);

impl TraceHasher {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for TraceHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.mix(u64::from(byte)));
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_u128(&mut self, word: u128) {
        self.mix(word as u64);
        self.mix((word >> 64) as u64);
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.mix(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

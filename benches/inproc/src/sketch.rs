//! Limits in a sketch: a whole check compared with counting in pingora's estimator.

use crate::thresholds::PINGORA;
use crate::timing::Section;
use crate::workloads::Stream;

/// A sketch is warm after more checks than it has lines.
const WARM: usize = 4_096;
/// Sketches do not need the number of keys.
const NO_KEYS: usize = 0;

/// One thread reads a clock that another thread updates; where two are measured the kernel updates it.
const ALONE: &[&str] = &[
    PINGORA,
    "pingora-rate",
    "ours-sketch-coarse",
    "ours-sketch-precise",
    "ours-sketch-trusted-coarse",
    "ours-sketch-default-coarse",
    "ours-flood-coarse",
    "ours-sketch-refused-coarse",
];
const TOGETHER: &[&str] = &[
    PINGORA,
    "ours-sketch-tick",
    "ours-sketch-precise",
    "ours-sketch-trusted-tick",
    "ours-sketch-default-tick",
    "ours-flood-tick",
    "ours-sketch-refused-tick",
];

const fn section(
    name: &'static str,
    title: &'static str,
    threads: usize,
    stream: fn() -> Stream,
    contenders: &'static [&'static str],
) -> Section {
    Section { name, title, threads, stream, keys: NO_KEYS, warm: WARM, places: 1, contenders }
}

/// One thread and two, few keys and many.
pub const SECTIONS: &[Section] = &[
    section("sketch-10k", "sketches, 10,000 keys, one thread", 1, Stream::even_10k, ALONE),
    section("sketch-1m", "sketches, a million keys, Zipf 0.99, one thread", 1, Stream::zipf_1m, ALONE),
    section("sketch-10k-2t", "sketches, 10,000 keys, two threads", 2, Stream::even_10k, TOGETHER),
    section("sketch-1m-2t", "sketches, a million keys, Zipf 0.99, two threads", 2, Stream::zipf_1m, TOGETHER),
];

/// The contenders whose instructions are counted.
pub const COUNTED: [&str; 3] = [PINGORA, "ours-sketch-precise", "ours-sketch-trusted-coarse"];

//! Admission in process: the cost of one call over three axes and its settlement, compared with the same axes
//! without a policy.

use crate::thresholds::AXES;
use crate::timing::Section;
use crate::workloads::Stream;

const KEYS: usize = 10_000;
/// Every key of the stream once, and then some.
const WARM: usize = 16_384;

/// Admitted calls, by one thread and by two, and denied calls. All in one section each, so that they run in
/// turn.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "admission",
        title: "three axes and their settlement, 10,000 keys, one thread",
        threads: 1,
        stream: Stream::even_10k,
        keys: KEYS,
        warm: WARM,
        places: 1,
        contenders: &[
            AXES,
            "axes-policies",
            "ours-admission",
            "ours-admission-watched",
            "axis-slot",
            "axis-rate",
            "axis-cost",
        ],
    },
    Section {
        name: "admission-2t",
        title: "three axes and their settlement, 10,000 keys, two threads",
        threads: 2,
        stream: Stream::even_10k,
        keys: KEYS,
        warm: WARM,
        places: 1,
        contenders: &[AXES, "axes-policies", "ours-admission", "ours-admission-watched"],
    },
    Section {
        name: "admission-rate-denies",
        title: "a slot is free and the rate denies, 10,000 keys, one thread",
        threads: 1,
        stream: Stream::even_10k,
        keys: KEYS,
        warm: WARM,
        places: 1,
        contenders: &["axes-rate-denies", "ours-admission-rate-denies"],
    },
    Section {
        name: "admission-full",
        title: "no slot is free, one thread",
        threads: 1,
        stream: Stream::even_10k,
        keys: 0,
        warm: WARM,
        places: 1,
        contenders: &["axes-full", "ours-admission-full"],
    },
    Section {
        name: "admission-queue",
        title: "a call that need not wait, through a queue, 10,000 keys, one thread",
        threads: 1,
        stream: Stream::even_10k,
        keys: KEYS,
        warm: WARM,
        places: 1,
        contenders: &["ours-limiter-admit", "ours-queue"],
    },
];

/// The contenders whose instructions are counted. Under callgrind a read of the wall clock is a system call,
/// whose kernel side is not counted: a policy reads it twice per call, the axes alone twice as well, and the
/// processor's counter once.
pub const COUNTED: [&str; 7] = [
    AXES,
    "axes-policies",
    "ours-admission",
    "ours-admission-watched",
    "axis-slot",
    "axis-rate",
    "axis-cost",
];

//! Leases in process: the cost of a spend compared with a bare subtraction and with a local limiter.

use crate::contenders::PLACES;
use crate::thresholds::{FETCH_SUB, GOVERNOR_DIRECT};
use crate::timing::{HOT_KEYS, HOT_WARM, Section};
use crate::workloads::Stream;

/// One thread, and two. The kernel updates the coarse clock, so that no thread does while two are measured.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "lease",
        title: "spends of a lease, one thread",
        threads: 1,
        stream: Stream::hot,
        keys: HOT_KEYS,
        warm: HOT_WARM,
        places: PLACES,
        contenders: &[
            GOVERNOR_DIRECT,
            FETCH_SUB,
            "ours-lease-tick",
            "ours-lease-precise",
            "ours-lease-boot",
            "ours-till-tick",
            "ours-till-precise",
            "ours-lease-key-tick",
            "ours-lease-key-precise",
            "ours-lease-check-tick",
        ],
    },
    Section {
        name: "lease-2t",
        title: "spends of one lease, two threads",
        threads: 2,
        stream: Stream::hot,
        keys: HOT_KEYS,
        warm: HOT_WARM,
        places: PLACES,
        contenders: &[
            GOVERNOR_DIRECT,
            FETCH_SUB,
            "ours-lease-tick",
            "ours-lease-precise",
            "ours-till-tick",
            "ours-till-precise",
        ],
    },
];

/// The contenders whose instructions are counted. Not those that read the kernel's clocks, which under
/// callgrind are system calls.
pub const COUNTED: [&str; 5] =
    [GOVERNOR_DIRECT, FETCH_SUB, "ours-lease-precise", "ours-till-precise", "ours-lease-key-precise"];

//! Token budgets in process: the cost of a debit compared with a limiter that takes several units at a time.

use crate::contenders::PLACES;
use crate::thresholds::{FETCH_SUB, GOVERNOR_DIRECT_N};
use crate::timing::{HOT_WARM, Section};
use crate::workloads::Stream;

/// One thread, and two. The kernel updates the tick clock, so that no thread does while two are measured.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "budget",
        title: "debits of one to eight tokens, one thread",
        threads: 1,
        stream: Stream::hot,
        keys: 0,
        warm: HOT_WARM,
        places: PLACES,
        contenders: &[
            GOVERNOR_DIRECT_N,
            FETCH_SUB,
            "ours-budget-precise",
            "ours-budget-coarse",
            "ours-budget-tick",
            "ours-budget-wall",
        ],
    },
    Section {
        name: "budget-2t",
        title: "debits of one to eight tokens, two threads",
        threads: 2,
        stream: Stream::hot,
        keys: 0,
        warm: HOT_WARM,
        places: PLACES,
        contenders: &[GOVERNOR_DIRECT_N, FETCH_SUB, "ours-budget-precise", "ours-budget-tick"],
    },
];

/// The contenders whose instructions are counted. Not those that read the kernel's clocks, which under
/// callgrind are system calls.
pub const COUNTED: [&str; 3] = [GOVERNOR_DIRECT_N, "ours-budget-precise", "ours-budget-coarse"];

//! Slots in process: the cost of acquiring and releasing one, compared with a semaphore and an adaptive
//! limiter.

use crate::contenders::PLACES;
use crate::thresholds::{GUARD, SEMAPHORE, THROTTLE_NET};
use crate::timing::{HOT_WARM, Section};
use crate::workloads::Stream;

/// A fixed and an adaptive ceiling, by one thread and by two. All in one section each, so that they run in turn.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "slots",
        title: "a slot taken and given back, one thread",
        threads: 1,
        stream: Stream::hot,
        keys: 0,
        warm: HOT_WARM,
        places: PLACES,
        contenders: CONTENDERS,
    },
    Section {
        name: "slots-2t",
        title: "a slot taken and given back, two threads",
        threads: 2,
        stream: Stream::hot,
        keys: 0,
        warm: HOT_WARM,
        places: PLACES,
        contenders: CONTENDERS,
    },
];

const CONTENDERS: &[&str] = &[
    SEMAPHORE,
    "floor-cas",
    GUARD,
    "ours-guard-fleet",
    "ours-guard-class",
    THROTTLE_NET,
    "congestion-limiter",
    "ours-guard-adaptive",
];

/// The contenders whose instructions are counted. Not those that read a clock, which under callgrind is a
/// system call.
pub const COUNTED: [&str; 3] = [SEMAPHORE, GUARD, "ours-guard-class"];

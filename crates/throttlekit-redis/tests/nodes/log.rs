//! The logs of nodes.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use throttlekit::clock::{Clock, WallClock};

/// One admission. It was decided at an instant between these two, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    /// The machine's time before the call, in microseconds.
    pub(crate) from: u64,
    /// The machine's time after it.
    pub(crate) to: u64,
    pub(crate) cost: u64,
}

const BYTES: usize = 24;

pub(crate) struct Log(File);

impl Log {
    pub(crate) fn open(path: &Path) -> Self {
        Self(OpenOptions::new().create(true).append(true).open(path).unwrap())
    }

    /// Writes with one system call: an admission is in the file or it is not.
    pub(crate) fn write(&self, admission: Admission) {
        let words = [admission.from, admission.to, admission.cost].map(u64::to_le_bytes);
        let written = (&self.0).write(words.as_flattened()).unwrap();
        assert_eq!(written, BYTES);
    }
}

/// Returns everything that a node and its predecessors have written. An incomplete line is not included.
pub(crate) fn read(path: &Path) -> Vec<Admission> {
    let bytes = fs::read(path).unwrap_or_default();
    let word = |part: &[u8]| u64::from_le_bytes(part.try_into().unwrap());
    bytes
        .chunks_exact(BYTES)
        .map(|part| Admission { from: word(&part[..8]), to: word(&part[8..16]), cost: word(&part[16..]) })
        .collect()
}

/// Returns the machine's time, which is also the server's.
pub(crate) fn micros() -> u64 {
    WallClock.now().as_nanos() / 1_000
}

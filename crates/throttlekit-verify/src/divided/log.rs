//! The log of a node: the time for which each slot was held, and periodic snapshots of its guard.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use throttlekit::guard::DivisionStats;
use throttlekit::rate::Timestamp;

/// Written line by line: a killed process has logged every slot that had ended.
pub(super) struct Log(File);

impl Log {
    pub(super) fn append(path: &Path) -> Self {
        Self(OpenOptions::new().create(true).append(true).open(path).expect("a file for the log"))
    }

    pub(super) fn held(&mut self, from: Timestamp, to: Timestamp) {
        let _ = self.0.write_all(format!("held {} {}\n", from.as_nanos(), to.as_nanos()).as_bytes());
    }

    pub(super) fn stats(&mut self, now: Timestamp, stats: &DivisionStats) {
        let grant = stats.grant.map_or([0; 3], |grant| [grant.ceiling, grant.share, grant.due]);
        let line = format!(
            "stats {} {} {} {} {} {} {} {} {}\n",
            now.as_nanos(),
            stats.heartbeats,
            stats.fences,
            stats.races,
            stats.failed,
            grant[0],
            grant[1],
            stats.wants,
            stats.inferred
        );
        let _ = self.0.write_all(line.as_bytes());
    }
}

/// A snapshot of a guard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) at: u64,
    pub(super) heartbeats: u64,
    pub(super) fences: u64,
    pub(super) races: u64,
    pub(super) failed: u64,
    pub(super) ceiling: u64,
    pub(super) share: u64,
    pub(super) wants: u64,
}

/// Reads the log of one node: the times for which slots were held, and the snapshots.
pub(super) fn read(path: &Path) -> (Vec<[u64; 2]>, Vec<Look>) {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let (mut held, mut looks) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split(' ');
        let kind = words.next();
        let n: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        match (kind, &n[..]) {
            (Some("held"), &[from, to]) => held.push([from, to]),
            (Some("stats"), &[at, heartbeats, fences, races, failed, ceiling, share, wants, _]) => {
                looks.push(Look { at, heartbeats, fences, races, failed, ceiling, share, wants });
            }
            _ => {}
        }
    }
    (held, looks)
}

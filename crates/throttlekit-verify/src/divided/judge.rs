//! Sums of the reports of the backend and the nodes.

use throttlekit::rate::Timestamp;

use super::Crew;

/// One line of the backend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    at: u64,
    max: u64,
    busy_nanos: u128,
    served: u64,
    refused: u64,
}

impl Told {
    pub(super) fn from(line: &str) -> Option<Self> {
        let mut words = line.split(' ').skip_while(|word| *word != "backend").skip(1);
        let mut next = || words.next()?.trim().parse::<u128>().ok();
        let (at, max, busy_nanos, served, refused) = (next()?, next()?, next()?, next()?, next()?);
        let [at, max, served, refused] = [at, max, served, refused].map(|n| n as u64);
        Some(Self { at, max, busy_nanos, served, refused })
    }
}

/// The measurements between two instants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// The maximum concurrency, as the backend counts.
    pub most: u64,
    /// The maximum concurrency, from the nodes' own records.
    pub decided: u64,
    /// The mean concurrency, as the backend counts.
    pub mean: f64,
    /// Requests that were served.
    pub served: u64,
    /// Requests that the backend refused because their deadline had passed.
    pub refused: u64,
    /// Heartbeats of all nodes per second.
    pub heartbeats_a_second: f64,
    /// Heartbeats that lost a race with another node's.
    pub races: u64,
    /// Heartbeats that failed.
    pub failed: u64,
    /// The number of grants that expired.
    pub fences: u64,
    /// The mean ceiling, as granted to nodes.
    pub ceiling: f64,
    /// The lowest and the highest ceiling.
    pub ceilings: [u64; 2],
    /// Seconds.
    pub seconds: f64,
}

/// Sums up the reports between these instants.
pub fn tally(crew: &Crew, from: Timestamp, to: Timestamp) -> Tally {
    let (from, to) = (from.as_nanos(), to.as_nanos());
    let told = crew.told.lock();
    let within: Vec<&Told> = told.iter().filter(|told| (from..to).contains(&told.at)).collect();
    let (Some(first), Some(last)) = (within.first(), within.last()) else { return Tally::default() };
    let nanos = (last.at - first.at).max(1);
    let logs = crew.read_logs();
    let seconds = (to - from) as f64 / 1e9;
    let mut tally = Tally {
        most: within.iter().map(|told| told.max).max().unwrap_or(0),
        decided: most_at_once(logs.iter().flat_map(|(held, _)| held), from, to),
        mean: (last.busy_nanos - first.busy_nanos) as f64 / nanos as f64,
        served: last.served - first.served,
        refused: last.refused - first.refused,
        seconds,
        ..Tally::default()
    };
    let (mut heartbeats, mut ceilings) = (0, Vec::new());
    for (_, looks) in &logs {
        let within: Vec<_> = looks.iter().filter(|look| (from..to).contains(&look.at)).collect();
        let (Some(first), Some(last)) = (within.first(), within.last()) else { continue };
        heartbeats += last.heartbeats - first.heartbeats;
        tally.races += last.races - first.races;
        tally.failed += last.failed - first.failed;
        tally.fences += last.fences - first.fences;
        ceilings.extend(within.iter().map(|look| look.ceiling).filter(|&ceiling| ceiling > 0));
    }
    tally.heartbeats_a_second = heartbeats as f64 / seconds;
    tally.ceiling = ceilings.iter().sum::<u64>() as f64 / ceilings.len().max(1) as f64;
    tally.ceilings = [ceilings.iter().min(), ceilings.iter().max()].map(|edge| edge.copied().unwrap_or(0));
    tally
}

impl Crew {
    /// Returns the share and the demand of each node in its last report.
    pub fn shares(&self) -> Vec<(u64, u64)> {
        let last =
            |(_, looks): &(_, Vec<super::log::Look>)| looks.last().map(|look| (look.share, look.wants));
        self.read_logs().iter().filter_map(last).collect()
    }
}

/// Returns the maximum number of overlapping intervals. Where one ends as another starts, the end comes
/// first.
pub fn most_at_once<'a>(held: impl Iterator<Item = &'a [u64; 2]>, from: u64, to: u64) -> u64 {
    let mut edges: Vec<(u64, i64)> = held
        .filter(|[begins, ends]| *ends > from && *begins < to)
        .flat_map(|[begins, ends]| [(*begins, 1), (*ends, -1)])
        .collect();
    edges.sort_unstable();
    let mut count = 0;
    edges
        .iter()
        .map(|(_, step)| {
            count += step;
            count
        })
        .max()
        .unwrap_or(0) as u64
}

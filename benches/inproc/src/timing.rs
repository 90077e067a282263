//! The timed sections: their contenders and workloads, and the ratios with thresholds.

use crate::contenders::{Contender, PLACES, build_at};
use crate::harness::{Sample, View, alone};
use crate::pair::together;
use crate::report::{Report, progress};
use crate::thresholds::{
    GOVERNOR, GOVERNOR_DENIED, GOVERNOR_DIRECT, GOVERNOR_DIRECT_COARSE, GOVERNOR_FAST, GOVERNOR_FAST_COARSE,
    GOVERNOR_FAST_DENIED, THRESHOLDS, Threshold, runs,
};
use crate::workloads::{MANY, Stream};

/// One table of the output.
pub struct Section {
    /// Its name in thresholds and figures.
    pub name: &'static str,
    /// A description for readers.
    pub title: &'static str,
    /// One, or two in parallel.
    pub threads: usize,
    /// The requested keys.
    pub stream: fn() -> Stream,
    /// The number of keys that are known before the first check.
    pub keys: usize,
    /// The number of checks that bring a contender's lines back into the cache.
    pub warm: usize,
    /// The number of positions at which each contender is set up.
    pub places: usize,
    /// The contenders; the anchor first.
    pub contenders: &'static [&'static str],
}

/// The one key of the hot stream is among the first eight.
pub const HOT_KEYS: usize = 8;
/// The number of checks that warm a contender whose one line is hot.
pub const HOT_WARM: usize = 2_048;
const MANY_WARM: usize = 32_768;

/// In-process limiters compared with their peers.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "hot",
        title: "one hot key, one thread",
        threads: 1,
        stream: Stream::hot,
        keys: HOT_KEYS,
        places: 1,
        warm: HOT_WARM,
        contenders: &[
            GOVERNOR,
            GOVERNOR_FAST,
            GOVERNOR_FAST_COARSE,
            "governor-best",
            "governor-state",
            "rate-net",
            "gcra",
            "throttlecrab",
            "floor-precise",
            "floor-coarse",
            "ours-secret-precise",
            "ours-secret-coarse",
            "ours-trusted-precise",
            "ours-trusted-coarse",
        ],
    },
    Section {
        name: "1m",
        title: "a million keys, Zipf 0.99, one thread",
        threads: 1,
        stream: Stream::zipf_1m,
        keys: MANY,
        places: 1,
        warm: MANY_WARM,
        contenders: &[
            GOVERNOR,
            GOVERNOR_FAST,
            "governor-best",
            "rate-net",
            "gcra",
            "throttlecrab",
            "floor-precise",
            "floor-by-16",
            "ours-secret-precise",
            "ours-trusted-precise",
            "ours-trusted-coarse",
            "ours-by-16",
        ],
    },
    Section {
        name: "keyless",
        title: "no key, one thread",
        threads: 1,
        stream: Stream::hot,
        keys: 0,
        places: PLACES,
        warm: HOT_WARM,
        contenders: &[
            GOVERNOR_DIRECT,
            GOVERNOR_DIRECT_COARSE,
            "governor-direct-state",
            "rate-net-direct",
            "ratelimit",
            "leaky-bucket",
            "floor-direct-precise",
            "floor-direct-coarse",
            "ours-keyless-precise",
            "ours-keyless-coarse",
        ],
    },
    Section {
        name: "denied",
        title: "one hot key without units: denials, one thread",
        threads: 1,
        stream: Stream::hot,
        keys: HOT_KEYS,
        places: 1,
        warm: HOT_WARM,
        contenders: &[GOVERNOR_DENIED, GOVERNOR_FAST_DENIED, "ours-secret-denied", "ours-trusted-denied"],
    },
    // No coarse clocks below: the thread that updates one would interrupt one of the two.
    Section {
        name: "hot-2t",
        title: "one hot key, two threads",
        threads: 2,
        stream: Stream::hot,
        keys: HOT_KEYS,
        places: 1,
        warm: HOT_WARM,
        contenders: &[
            GOVERNOR,
            GOVERNOR_FAST,
            "governor-best",
            "rate-net",
            "floor-precise",
            "ours-secret-precise",
            "ours-trusted-precise",
        ],
    },
    Section {
        name: "1m-2t",
        title: "a million keys, Zipf 0.99, two threads",
        threads: 2,
        stream: Stream::zipf_1m,
        keys: MANY,
        places: 1,
        warm: MANY_WARM,
        contenders: &[
            GOVERNOR,
            GOVERNOR_FAST,
            "governor-best",
            "rate-net",
            "floor-precise",
            "ours-secret-precise",
            "ours-trusted-precise",
            "ours-by-16",
        ],
    },
    Section {
        name: "keyless-2t",
        title: "no key, two threads",
        threads: 2,
        stream: Stream::hot,
        keys: 0,
        places: PLACES,
        warm: HOT_WARM,
        contenders: &[GOVERNOR_DIRECT, "rate-net-direct", "floor-direct-precise", "ours-keyless-precise"],
    },
];

/// One contender's numbers in one run of a section.
pub struct Row {
    /// The contender.
    pub name: &'static str,
    /// Its samples in each view of the section.
    pub views: Vec<(View, Sample)>,
}

/// Runs all sections, or the named one.
pub fn run(report: &mut Report, sections: &[Section], rounds: usize, only: Option<&str>) {
    for section in sections.iter().filter(|section| only.is_none_or(|name| name == section.name)) {
        section.judge(report, rounds);
    }
}

impl Section {
    /// Measures, and checks every ratio of the section by the median of its runs.
    fn judge(&self, report: &mut Report, rounds: usize) {
        let stream = (self.stream)();
        let thresholds: Vec<&Threshold> =
            THRESHOLDS.iter().filter(|threshold| threshold.section == self.name).collect();
        let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); thresholds.len()];
        runs(|run| {
            progress(&format!("{}: run {run}, {rounds} rounds", self.title));
            let rows = self.measure(&self.prepare(), &stream, rounds);
            report.section(self.name, self.title, &rows);
            let now: Vec<f64> = thresholds.iter().map(|threshold| ratio(&rows, threshold)).collect();
            ratios.iter_mut().zip(&now).for_each(|(seen, ratio)| seen.push(*ratio));
        });
        thresholds
            .iter()
            .zip(&ratios)
            .for_each(|(threshold, seen)| report.ratio(&threshold.name(), seen, threshold.max));
    }

    /// Sets the contenders up again: the position of a million keys in memory is part of the variation.
    fn prepare(&self) -> Vec<Contender> {
        let at_place = |place| self.contenders.iter().map(move |name| build_at(name, place));
        let contenders: Vec<Contender> = (0..self.places).flat_map(at_place).collect();
        contenders.iter().for_each(|contender| contender.seed(self.keys));
        contenders
    }

    fn measure(&self, contenders: &[Contender], stream: &Stream, rounds: usize) -> Vec<Row> {
        let (views, samples): (&[View], Vec<Vec<Sample>>) = if self.threads == 1 {
            let samples = alone(contenders, stream, self.warm, rounds);
            (&View::ALONE, samples.into_iter().map(Vec::from).collect())
        } else {
            let samples = together(contenders, stream, self.warm, rounds);
            (&[View::Together], samples.into_iter().map(|sample| vec![sample]).collect())
        };
        self.contenders.iter().map(|name| Row::pooled(name, views, contenders, &samples)).collect()
    }
}

impl Row {
    /// Returns all batches of the contenders with this name, at all positions.
    fn pooled(name: &'static str, views: &[View], contenders: &[Contender], samples: &[Vec<Sample>]) -> Self {
        let mine = || contenders.iter().zip(samples).filter(|(contender, _)| contender.name == name);
        let pool = |view: usize| mine().map(|(_, samples)| &samples[view]).collect();
        Self { name, views: views.iter().enumerate().map(|(at, view)| (*view, pool(at))).collect() }
    }
}

fn ratio(rows: &[Row], threshold: &Threshold) -> f64 {
    median_of(rows, threshold.ours, threshold.view) / median_of(rows, threshold.peer, threshold.view)
}

/// Returns a contender's median in a view; NaN if it was not measured.
pub fn median_of(rows: &[Row], name: &str, view: View) -> f64 {
    let row = rows.iter().find(|row| row.name == name);
    let sample = row.and_then(|row| row.views.iter().find(|(seen, _)| *seen == view));
    sample.map_or(f64::NAN, |(_, sample)| sample.median())
}

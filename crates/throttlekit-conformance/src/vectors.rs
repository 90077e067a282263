//! Our own vectors: made by the core, kept as text, compared by every store and in every review.
//!
//! `cargo xtask vectors` writes them, `cargo xtask vectors --check` finds drift.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use throttlekit_core::{Cost, Retry, Timestamp};

use crate::text::nanos;
use crate::timeline::Line;
use crate::{CoreSubject, Spec, Subject, Timeline};

const SUFFIX: &str = "timeline";

/// Where the files are.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors")
}

/// All timelines on disk with their names, in order. None is an error: a suite that found nothing to play
/// would pass everything.
pub fn read() -> io::Result<Vec<(String, Timeline)>> {
    let wrong = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == SUFFIX) {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path)?;
            let timeline = text.parse().map_err(|error| wrong(format!("{}: {error}", path.display())))?;
            found.push((name, timeline));
        }
    }
    if found.is_empty() {
        return Err(wrong(format!("{}: no timelines; run cargo xtask vectors", folder().display())));
    }
    found.sort_by(|a: &(String, Timeline), b| a.0.cmp(&b.0));
    Ok(found)
}

/// Every vector as the core answers it now: file name and text.
pub fn generate() -> Vec<(String, String)> {
    SCRIPTS.iter().map(|script| (format!("{}.{SUFFIX}", script.name), script.play().to_string())).collect()
}

/// What a vector asks.
struct Script {
    name: &'static str,
    about: &'static str,
    spec: &'static str,
    start: &'static str,
    steps: &'static [Step],
}

/// One step of a script. `Ask` is by key `a` unless it says who.
#[derive(Clone, Copy)]
enum Step {
    Ask(Cost),
    By(&'static str, Cost),
    Times(u32, Cost),
    /// Asks, and if denied asks again one nanosecond before the promised time and at it.
    Edge(Cost),
    Wait(Duration),
    Back(Duration),
}

use Step::{Ask, Back, By, Edge, Times, Wait};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn ns(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// Fill, edge, other key, nothing, too much, a clock that steps back: what every rule is asked.
const COMMON: [Step; 12] = [
    Times(3, 1),
    Edge(1),
    Edge(2),
    By("b", 3),
    Ask(0),
    Ask(10_000_000_000),
    Back(ms(1)),
    Ask(1),
    Back(s(86_400)),
    Edge(1),
    Wait(s(86_400 * 70)),
    Times(2, 3),
];

const SCRIPTS: [Script; 22] = [
    Script {
        name: "gcra-3-per-second",
        about: "a third of a second is no whole number of nanoseconds and does not drift",
        spec: "gcra 3 per 1s burst 3",
        start: "1700000000.000000000s",
        steps: &COMMON,
    },
    Script {
        name: "gcra-7-per-minute",
        about: "60/7 seconds a unit, a burst of its own",
        spec: "gcra 7 per 60s burst 4",
        start: "1700000000.000000001s",
        steps: &COMMON,
    },
    Script {
        name: "gcra-1000001-per-second",
        about: "just under a microsecond a unit, a large burst spent at once",
        spec: "gcra 1000001 per 1s burst 1000001",
        start: "1700000000.000000000s",
        steps: &[Ask(1_000_001), Edge(1), Edge(1), Edge(1_000_001), Wait(ns(999)), Edge(7), Ask(1_000_002)],
    },
    Script {
        name: "gcra-1000000000-per-second",
        about: "one unit a nanosecond",
        spec: "gcra 1000000000 per 1s burst 5",
        start: "1700000000.000000000s",
        steps: &[Ask(5), Edge(1), Edge(1), Edge(5), Wait(ns(3)), Edge(4), Back(ns(2)), Edge(1), Ask(6)],
    },
    Script {
        name: "gcra-faster-than-time",
        about: "three units a nanosecond: several come back at once",
        spec: "gcra 3000000000 per 1s burst 10",
        start: "1700000000.000000000s",
        steps: &[Ask(10), Edge(1), Edge(1), Edge(4), Edge(10), Wait(ns(1)), Ask(3), Ask(1)],
    },
    Script {
        name: "gcra-large-epoch",
        about: "the year 2446, where a double counts in quarters of a microsecond",
        spec: "gcra 60 per 60s burst 10",
        start: "15000000000.123456789s",
        steps: &COMMON,
    },
    Script {
        name: "gcra-epoch",
        about: "the epoch itself: no instant is special, and a clock cannot step back beyond it",
        spec: "gcra 10 per 1s burst 2",
        start: "0.000000000s",
        steps: &[Ask(2), Edge(1), Edge(2), Back(s(10)), Edge(1), Ask(3)],
    },
    Script {
        name: "token-bucket",
        about: "ten units, refilled five a second",
        spec: "token-bucket 10 refill 5 per 1s",
        start: "1700000000.250000000s",
        steps: &[
            Ask(4),
            Ask(6),
            Edge(1),
            Wait(ms(800)),
            Edge(5),
            Ask(11),
            Back(s(1)),
            Edge(3),
            Wait(s(9)),
            Ask(10),
        ],
    },
    Script {
        name: "leaky-bucket",
        about: "work leaves ten a second and waits at most a quarter of a second; an allowed answer says how long",
        spec: "leaky-bucket 10 per 1s wait 250ms",
        start: "1700000000.000000000s",
        steps: &[
            Times(3, 1),
            Edge(1),
            Edge(2),
            Ask(0),
            Ask(4),
            Back(ms(70)),
            Edge(1),
            Wait(s(1)),
            Edge(3),
            Edge(3),
        ],
    },
    Script {
        name: "window-fixed",
        about: "five in each second; a boundary in between lets ten pass within a nanosecond",
        spec: "window 5 every 1s anchor 0.000000000s",
        start: "1700000000.999999999s",
        steps: &[Times(5, 1), Edge(1), Ask(4), Edge(2), Ask(6), Back(s(2)), Edge(1), Back(ms(300)), Edge(5)],
    },
    Script {
        name: "window-anchored",
        about: "windows of seven seconds counted from an anchor that lies ahead",
        spec: "window 3 every 7s anchor 1800000000.500000000s",
        start: "1700000000.000000000s",
        steps: &COMMON,
    },
    Script {
        name: "window-day-leap",
        about: "the leap day of 2024 begins and ends at midnight two hours east of Greenwich",
        spec: "window 3 day offset 120",
        start: "1709157599.999999999s",
        steps: &[Ask(3), Edge(1), Ask(2), Edge(3), Edge(3), Back(s(86_400)), Edge(1)],
    },
    Script {
        name: "window-week-new-year",
        about: "weeks that begin on Sunday, over the end of 2024, five hours west",
        spec: "window 2 week sunday offset -300",
        start: "1735448399.999999999s",
        steps: &[Ask(2), Edge(1), Ask(1), Edge(2), Ask(3), Wait(s(3 * 86_400)), Edge(1)],
    },
    Script {
        name: "window-month-leap-february",
        about: "January, February with its 29 days, March 2024",
        spec: "window 4 month offset 0",
        start: "1706745599.999999999s",
        steps: &[Ask(4), Edge(1), Ask(3), Edge(4), Edge(1), Back(s(40 * 86_400)), Edge(2), Ask(5)],
    },
    Script {
        name: "window-month-common-february",
        about: "February 2023 has 28 days, at 5:45 east",
        spec: "window 1 month offset 345",
        start: "1677500000.000000000s",
        steps: &[Ask(1), Edge(1), Edge(1), Ask(2)],
    },
    Script {
        name: "window-month-year-end",
        about: "December to January, at the furthest west a clock may be set",
        spec: "window 2 month offset -840",
        start: "1704067199.999999999s",
        steps: &[Ask(2), Edge(2), Edge(1), Wait(s(366 * 86_400)), Edge(2)],
    },
    Script {
        name: "budget",
        about: "a hundred tokens a minute: the debit that crosses the edge passes and counts in full",
        spec: "budget 100 every 60s anchor 0.000000000s",
        start: "1700000000.000000000s",
        steps: &[
            Ask(80),
            Ask(50),
            Edge(1),
            Ask(0),
            Ask(1_000_000),
            Edge(1),
            Back(s(90)),
            Edge(8),
            By("b", 100),
        ],
    },
    Script {
        name: "budget-month",
        about: "three tokens in February 2024 by ones, then one debit of more than the budget",
        spec: "budget 3 month offset 0",
        start: "1706745599.999999999s",
        steps: &[Times(3, 1), Edge(1), Ask(2), Ask(2), Edge(5), Edge(1)],
    },
    Script {
        name: "sliding-window",
        about: "ten in a second that slides in tenths, with exact waits",
        spec: "sliding-window 10 in 1s buckets 10 retry exact",
        start: "1700000000.000000000s",
        steps: &[
            Ask(6),
            Wait(ms(500)),
            Ask(4),
            Edge(1),
            Edge(5),
            Edge(10),
            Ask(11),
            Back(ms(350)),
            Edge(3),
            Ask(0),
        ],
    },
    Script {
        name: "sliding-window-odd-buckets",
        about: "seven buckets do not divide a second: bucket edges lie between nanoseconds",
        spec: "sliding-window 5 in 1s buckets 7 retry exact",
        start: "1700000000.123456789s",
        steps: &COMMON,
    },
    Script {
        name: "sliding-window-hint",
        about: "the wait as version 1 of the wire reports it: the next bucket, even where that is too early",
        spec: "sliding-window 10 in 1s buckets 10 retry next-bucket",
        start: "1700000000.000000000s",
        steps: &[
            Ask(6),
            Wait(ms(500)),
            Ask(4),
            Ask(1),
            Wait(ms(100)),
            Ask(1),
            Wait(ms(400)),
            Ask(5),
            Wait(ms(500)),
            Ask(5),
        ],
    },
    Script {
        name: "sliding-log",
        about: "five in any second, exactly, with costs above one",
        spec: "sliding-log 5 in 1s",
        start: "1700000000.000000000s",
        steps: &[
            Ask(2),
            Wait(ms(100)),
            Ask(2),
            Wait(ms(100)),
            Edge(3),
            Edge(5),
            Ask(6),
            Ask(0),
            Back(ms(450)),
            Edge(1),
            Edge(2),
        ],
    },
];

impl Script {
    fn play(&self) -> Timeline {
        let spec: Spec = self.spec.parse().expect("a script names a limit");
        let start = crate::text::parse_instant(self.start).expect("a script names an instant");
        let subject = CoreSubject::new(spec.limit().expect("parsed limits are valid"));
        let mut played = Played { subject, now: start, lines: Vec::new() };
        self.steps.iter().for_each(|step| played.step(*step));
        Timeline { about: vec![self.about.into()], spec, lines: played.lines }
    }
}

struct Played {
    subject: CoreSubject,
    now: Timestamp,
    lines: Vec<Line>,
}

impl Played {
    fn step(&mut self, step: Step) {
        match step {
            Ask(cost) => self.times(1, "a", cost),
            By(key, cost) => self.times(1, key, cost),
            Times(count, cost) => self.times(count, "a", cost),
            Wait(by) => self.now = self.now + by,
            Back(by) => self.now = Timestamp::from_nanos(self.now.as_nanos().saturating_sub(nanos(by))),
            Edge(cost) => self.edge(cost),
        }
    }

    fn times(&mut self, count: u32, key: &str, cost: Cost) {
        for _ in 0..count {
            let _ = self.ask(key, cost);
        }
    }

    fn edge(&mut self, cost: Cost) {
        if let Retry::After(wait) = self.ask("a", cost) {
            let promised = self.now + wait;
            self.now = Timestamp::from_nanos(promised.as_nanos() - 1);
            let _ = self.ask("a", cost);
            self.now = promised;
            let _ = self.ask("a", cost);
        }
    }

    /// How long a denied ask must wait; `Now` for an allowed one.
    fn ask(&mut self, key: &str, cost: Cost) -> Retry {
        let answer = self.subject.check(key, cost, self.now);
        self.lines.push(Line { now: self.now, key: key.into(), cost, answer });
        if answer.allowed { Retry::Now } else { answer.retry_after }
    }
}

//! Tenants that share one budget: the cost of a check with a hundred of them and with a hundred thousand.

use std::hint::black_box;
use std::time::Duration;

use throttlekit::clock::{Clock, ManualClock, WallClock};
use throttlekit::rate::Timestamp;
use throttlekit::{Budget, Call, FairLimiter};

use crate::alloc;
use crate::harness::{Sample, median};
use crate::os;
use crate::report::{Report, progress};
use crate::thresholds::{FAIR_ALLOCATIONS_MAX, FAIR_GROWTH_MAX, runs};
use crate::workloads::{KEY_BYTES, Random, key, text, zipf};

/// The number of tenants that share a budget, and of their different weights.
struct Mix {
    weights: u64,
    tenants: &'static [usize],
}

const FEW_WEIGHTS: Mix = Mix { weights: 8, tenants: &[100, 1_000, 10_000, 100_000] };
const MANY_WEIGHTS: Mix = Mix { weights: 1_000, tenants: &[1_000, 10_000, 100_000] };
/// Tenants and weights for which the first borrowing is measured, which visits each different weight. At
/// worst no two weights are equal.
const FIRST_BORROWINGS: [(usize, u64); 4] =
    [(100_000, 8), (100_000, 1_000), (1_000, 1_000), (10_000, 10_000)];
const TENANTS_MAX: usize = 100_000;
/// The number of new tenants for which the first request after a join is measured.
const NEWCOMERS: usize = 200;
/// Longer than a run, so that windows begin only where the benchmark moves to the next.
const WINDOW: Duration = Duration::from_secs(86_400);
const UNITS_PER_TENANT: u64 = 1_000;
const COST_MAX: usize = 50;
/// The minimum number of requests of a round for each size, over as many windows as needed.
const ASKS_MIN: usize = 40_000;
/// The number of requests whose names are brought into the cache at a time.
const TOUCHED: usize = 2_048;

/// The phase of a window while checks are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A window begins: every other request is some tenant's first in it.
    Joining,
    /// All have joined, and most requests are within their guarantees.
    Spending,
    /// All have used their guarantees: every request tries to borrow.
    Denied,
    /// The same for all tenants alike: every request is by one that was idle for long, and waits for memory.
    Scattered,
}

const PHASES: [Phase; 4] = [Phase::Joining, Phase::Spending, Phase::Denied, Phase::Scattered];
/// A number for each phase.
type Phases<T> = [T; PHASES.len()];

/// Measures all sizes in turn, and checks how the cost grows with tenants.
pub fn judge(report: &mut Report, rounds: usize) {
    judge_growth(report, &FEW_WEIGHTS, rounds);
    judge_growth(report, &MANY_WEIGHTS, rounds);
    report.at_most("fair escrow: allocations per check", allocations(), FAIR_ALLOCATIONS_MAX);
    report.note("fair escrow: longest check while 100000 join, µs", longest_us());
    for (tenants, weights) in FIRST_BORROWINGS {
        let mut crowd = Crowd::new(tenants, weights);
        let [joining, ..] = crowd.window();
        let name = format!("fair escrow, {tenants} tenants of {weights} weights");
        report.note(&format!("{name}, joining: ns per check"), joining.round());
        report.note(
            &format!("{name}: first ask beyond a guarantee after a join, µs"),
            crowd.first_borrowing_us(),
        );
    }
}

fn judge_growth(report: &mut Report, mix: &Mix, rounds: usize) {
    let Mix { weights, tenants } = *mix;
    let (least, most) = (tenants[0], tenants[tenants.len() - 1]);
    let mut seen: Phases<Vec<f64>> = Default::default();
    runs(|run| {
        progress(&format!("fair escrow, {weights} weights: run {run}, {rounds} rounds"));
        let rows = measure(mix, rounds);
        tell(report, mix, &rows);
        let growth = PHASES
            .map(|phase| rows[tenants.len() - 1][phase as usize].median() / rows[0][phase as usize].median());
        seen.iter_mut().zip(growth).for_each(|(seen, growth)| seen.push(growth));
    });
    for (phase, seen) in PHASES.iter().zip(&seen) {
        let name = format!("fair escrow, {weights} weights, {}: {most} tenants / {least}", phase.name());
        if phase.is_judged() {
            report.ratio(&name, seen, FAIR_GROWTH_MAX);
        } else {
            report.note(&name, (median(seen) * 1_000.0).round() / 1_000.0);
        }
    }
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Spending => "spending",
            Self::Denied => "denied",
            Self::Scattered => "scattered",
        }
    }

    /// Returns `false` where memory dominates, for which there is no threshold.
    fn is_judged(self) -> bool {
        self != Self::Scattered
    }
}

fn tell(report: &mut Report, mix: &Mix, rows: &[Phases<Sample>]) {
    let weights = mix.weights;
    println!(
        "\nweighted fair escrow, weights 1 to {weights}, costs 1 to {COST_MAX}: ns per check, median (least)"
    );
    for (tenants, row) in mix.tenants.iter().zip(rows) {
        print!("  {tenants:>7} tenants");
        for phase in PHASES {
            let sample = &row[phase as usize];
            print!("{:>12} {:>7.1} ({:>6.1})", phase.name(), sample.median(), sample.min());
            report.keep_ns(&format!("fair/{weights} weights/{tenants}/{}", phase.name()), sample.median());
        }
        println!();
    }
}

fn measure(mix: &Mix, rounds: usize) -> Vec<Phases<Sample>> {
    let mut crowds: Vec<Crowd> =
        mix.tenants.iter().map(|&tenants| Crowd::new(tenants, mix.weights)).collect();
    let mut samples: Vec<Phases<Sample>> = vec![Default::default(); crowds.len()];
    for round in 0..rounds {
        for turn in 0..crowds.len() {
            let who = (round + turn) % crowds.len();
            let ns = crowds[who].round();
            samples[who].iter_mut().zip(ns).for_each(|(sample, ns)| sample.push(ns));
        }
    }
    samples
}

/// Returns the allocations per check in a window like the one before it.
fn allocations() -> f64 {
    let mut crowd = Crowd::new(10_000, FEW_WEIGHTS.weights);
    crowd.window();
    let before = alloc::calls();
    crowd.window();
    (alloc::calls() - before) as f64
        / (2 * crowd.names.len() + 2 * crowd.busy.len() + crowd.even.len()) as f64
}

/// Returns the longest single check while all tenants join a window like the one before it, among those that
/// walk over all tenants.
fn longest_us() -> f64 {
    let mut crowd = Crowd::new(TENANTS_MAX, FEW_WEIGHTS.weights);
    crowd.window();
    crowd.ahead.advance(WINDOW);
    let longest = (0..crowd.names.len() as u32).map(|newcomer| {
        let start = os::thread_cpu_ns();
        crowd.check(newcomer, 1);
        os::thread_cpu_ns() - start
    });
    longest.max().unwrap_or(0) as f64 / 1_000.0
}

/// Civil time, the default of limiters, moved ahead by whole windows.
struct Ahead(ManualClock);

impl Clock for Ahead {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        WallClock.now() + self.0.now().since(Timestamp::EPOCH)
    }
}

/// A limiter and its tenants.
struct Crowd {
    limiter: FairLimiter<Ahead>,
    /// The offset of the limiter's clock from the wall clock.
    ahead: ManualClock,
    names: Vec<[u8; KEY_BYTES]>,
    /// The tenants and costs of requests, generated beforehand: skewed, and uniform.
    busy: Vec<(u32, u64)>,
    even: Vec<(u32, u64)>,
}

impl Crowd {
    fn new(tenants: usize, weights: u64) -> Self {
        let ahead = ManualClock::at(Timestamp::EPOCH);
        let limiter = FairLimiter::builder(Budget::per(UNITS_PER_TENANT * tenants as u64, WINDOW))
            .weights(move |name| 1 + number(name) % weights)
            .tenants_max(tenants)
            .clock(Ahead(ahead.clone()))
            .build()
            .expect("a budget");
        let (mut who, mut costs) = (Random(5), Random(6));
        let mut ask = |tenant: usize| (tenant as u32, 1 + costs.below(COST_MAX) as u64);
        let busy = zipf(tenants).take(4 * tenants).map(&mut ask).collect();
        let even = (0..4 * tenants).map(|_| ask(who.below(tenants))).collect();
        Self { limiter, ahead, names: (0..tenants as u64).map(key).collect(), busy, even }
    }

    /// Returns the nanoseconds per check of each phase, over enough windows.
    fn round(&mut self) -> Phases<f64> {
        let windows = ASKS_MIN.div_ceil(self.names.len()).max(1);
        let mut sum = [0.0; PHASES.len()];
        for _ in 0..windows {
            let ns = self.window();
            sum.iter_mut().zip(ns).for_each(|(sum, ns)| *sum += ns);
        }
        sum.map(|sum| sum / windows as f64)
    }

    /// Runs a whole window. Returns the nanoseconds per check of each phase.
    fn window(&mut self) -> Phases<f64> {
        self.ahead.advance(WINDOW);
        let start = os::thread_cpu_ns();
        for newcomer in 0..self.names.len() {
            self.check(newcomer as u32, self.even[newcomer].1);
            let (other, cost) = self.even[newcomer + self.names.len()];
            self.check(other % (newcomer as u32 + 1), cost);
        }
        let joining = (os::thread_cpu_ns() - start) as f64 / (2 * self.names.len()) as f64;
        let spending = self.timed(&self.busy);
        for tenant in 0..self.names.len() as u32 {
            while let left @ 1.. = self.check(tenant, 0) {
                self.check(tenant, left);
            }
        }
        [joining, spending, self.timed(&self.busy), self.timed(&self.even)]
    }

    /// Returns the microseconds of a request beyond a guarantee by a new tenant, where another has just left:
    /// it visits each different weight.
    fn first_borrowing_us(&self) -> f64 {
        let ns = (0..NEWCOMERS as u32).map(|newcomer| {
            let [comes, goes] = [2 * newcomer, 2 * newcomer + 1];
            [comes, goes].iter().for_each(|&tenant| self.limiter.reset(text(&self.names[tenant as usize])));
            let start = os::thread_cpu_ns();
            self.check(comes, UNITS_PER_TENANT * self.names.len() as u64);
            os::thread_cpu_ns() - start
        });
        (ns.sum::<u64>() as f64 / NEWCOMERS as f64 / 10.0).round() / 100.0
    }

    /// Returns the nanoseconds per request. Names are brought into the cache beforehand, where a request's
    /// name is when a server has just read it.
    fn timed(&self, asks: &[(u32, u64)]) -> f64 {
        let (mut ns, count) = (0, asks.len());
        for asks in asks.chunks(TOUCHED) {
            asks.iter().for_each(|&(tenant, _)| _ = black_box(self.names[tenant as usize][0]));
            let start = os::thread_cpu_ns();
            for &(tenant, cost) in asks {
                self.check(tenant, cost);
            }
            ns += os::thread_cpu_ns() - start;
        }
        ns as f64 / count as f64
    }

    #[inline(always)]
    fn check(&self, tenant: u32, cost: u64) -> u64 {
        let decision = self.limiter.check(Call::by(text(&self.names[tenant as usize])).cost(cost));
        black_box(&decision).remaining
    }
}

/// Returns the number of a name, from its last four digits.
fn number(name: &[u8]) -> u64 {
    let digit = |byte: &u8| u64::from(byte & 15) + if byte.is_ascii_digit() { 0 } else { 9 };
    name[KEY_BYTES - 4..].iter().fold(0, |sum, byte| 16 * sum + digit(byte))
}

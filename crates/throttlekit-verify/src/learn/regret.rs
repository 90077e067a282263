//! The cost of a sizer beyond the best fixed batch in hindsight.

use throttlekit_core::lease::{SizerOptions, eoq_cost, eoq_optimum};

use super::{Check, Demand, Family, Sizes, ensure};

/// A sizer's account over the first windows of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// The number of windows.
    pub windows: u64,
    /// The cost of the chosen batches.
    pub paid: f64,
    /// The cost of the best whole batch, the same for all windows.
    pub best: f64,
    /// The regret of its aim divided by its bound; at most 1.
    pub envelope_ratio: f64,
}

impl Account {
    /// Returns the cost of each window beyond the best fixed batch.
    pub fn regret_per_window(&self) -> f64 {
        (self.paid - self.best) / self.windows as f64
    }
}

/// Runs a sequence on a sizer. Returns its account after each of these ascending numbers of windows.
pub fn accounts(
    sizer: &mut impl Sizes,
    options: SizerOptions,
    family: Family,
    seed: u64,
    horizons: &[u64],
) -> Vec<Account> {
    let most = horizons.last().copied().unwrap_or(0);
    let mut demand = Demand::new(family, seed, most);
    let mut book = Book::new(options);
    let mut accounts = Vec::new();
    for window in 1..=most {
        let (batch, aim) = (sizer.batch(), sizer.aim());
        let units = demand.next(batch);
        book.enter(batch, aim, units);
        sizer.observe(units);
        if horizons.contains(&window) {
            accounts.push(book.close(sizer.restarts()));
        }
    }
    accounts
}

/// Regret per window falls from each horizon to the next, or is below this part of the best's cost.
const REGRET_FLOOR: f64 = 0.002;

/// Checks that the aim stays below its envelope, and that regret per window falls. Takes the accounts of
/// several seeds; the first holds for each, the second on average.
pub fn check_regret(runs: &[Vec<Account>]) -> Check {
    for account in runs.iter().flatten() {
        let Account { windows, envelope_ratio, .. } = account;
        ensure(*envelope_ratio <= 1.0, || {
            format!("{envelope_ratio:.3} of the envelope after {windows} windows")
        })?;
    }
    let curve = average(runs);
    for pair in curve.windows(2) {
        let ((_, before, _), (windows, after, best)) = (pair[0], pair[1]);
        let told = || format!("regret per window went from {before:.3} to {after:.3} at {windows} windows");
        ensure(after <= before.max(0.0) * 0.9 || after <= REGRET_FLOOR * best, told)?;
    }
    Ok(())
}

/// Returns for each horizon: windows, regret per window, the best's cost per window, over all seeds.
pub fn average(runs: &[Vec<Account>]) -> Vec<(u64, f64, f64)> {
    let at = |i: usize, of: fn(&Account) -> f64| {
        runs.iter().map(|run| of(&run[i])).sum::<f64>() / runs.len() as f64
    };
    let horizons = runs.first().map_or(0, Vec::len);
    (0..horizons)
        .map(|i| {
            (runs[0][i].windows, at(i, Account::regret_per_window), at(i, |a| a.best / a.windows as f64))
        })
        .collect()
}

/// Checks that a sizer pays less than the best fixed batch, where no fixed batch is good.
pub fn check_drift(account: &Account) -> Check {
    let ratio = account.paid / account.best;
    ensure(ratio < 1.0, || format!("paid {ratio:.3} of what the best fixed batch costs"))
}

/// The sums so far.
struct Book {
    options: SizerOptions,
    windows: u64,
    demand: f64,
    paid: f64,
    paid_by_aim: f64,
    /// The sum over the costs by aim.
    squares: f64,
    /// The range of its aims.
    low: f64,
    high: f64,
}

impl Book {
    fn new(options: SizerOptions) -> Self {
        let (low, high) = (f64::INFINITY, f64::NEG_INFINITY);
        Self { options, windows: 0, demand: 0.0, paid: 0.0, paid_by_aim: 0.0, squares: 0.0, low, high }
    }

    fn cost(&self, batch: f64, demand: f64) -> f64 {
        eoq_cost(batch, demand, self.options.order_cost, self.options.strand_penalty)
    }

    fn enter(&mut self, batch: u64, aim: f64, demand: u64) {
        let by_aim = self.cost(aim.exp(), demand as f64);
        self.windows += 1;
        self.demand += demand as f64;
        self.paid += self.cost(batch as f64, demand as f64);
        self.paid_by_aim += by_aim;
        self.squares += by_aim * by_aim;
        self.low = self.low.min(aim);
        self.high = self.high.max(aim);
    }

    /// Closes the account. The summed cost of a fixed batch is that of the mean demand, so the best one has a
    /// closed form; the best whole one is a neighbor of it.
    fn close(&self, restarts: u64) -> Account {
        let windows = self.windows as f64;
        let (min, max) = (self.options.batch_min as f64, self.options.batch_max as f64);
        let mean = self.demand / windows;
        let best = eoq_optimum(mean, self.options.order_cost, self.options.strand_penalty).clamp(min, max);
        let fixed = |batch: f64| windows * self.cost(batch.clamp(min, max), mean);
        let regret_of_aim = self.paid_by_aim - fixed(best);
        Account {
            windows: self.windows,
            paid: self.paid,
            best: fixed(best.floor()).min(fixed(best.ceil())),
            envelope_ratio: regret_of_aim / self.envelope(best.ln(), restarts),
        }
    }

    /// Returns the envelope that `Sizer` documents.
    fn envelope(&self, best: f64, restarts: u64) -> f64 {
        let farthest = (self.high - best).abs().max((best - self.low).abs());
        let rounds = (restarts + 1) as f64;
        (farthest * farthest / 2.0 + 1.0) * (rounds * (self.squares + rounds * 1e-8)).sqrt()
    }
}

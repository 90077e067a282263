//! Counts of one run, by windows.

use throttlekit::rate::Timestamp;

use super::workload::WINDOW;

/// The tokens of each window.
#[derive(Debug, Default)]
pub(super) struct Books {
    windows: Vec<Counts>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Tokens that were generated, by the window that they were charged to.
    charged: u64,
    /// Tokens that were generated while the window lasted.
    delivered: u64,
    cut_short: u64,
}

/// The result of one run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Part of the budget that was used, over all whole windows and in the one with the least.
    pub(super) used: f64,
    pub(super) used_min: f64,
    /// Most tokens beyond the budget that were charged to a window, and that were generated in one.
    pub(super) over: u64,
    pub(super) over_delivered: u64,
    /// Streams that were denied in the middle, per window.
    pub(super) cut_short: f64,
    /// Mean of what calls reserved.
    pub(super) reserved: f64,
    /// True if the server's count differed from these.
    pub(super) miscounted: bool,
}

impl Books {
    fn of(&mut self, window: usize) -> &mut Counts {
        if self.windows.len() <= window {
            self.windows.resize(window + 1, Counts::default());
        }
        &mut self.windows[window]
    }

    /// Records a debit: the tokens that were reserved in `reserved_in`, and those beyond.
    pub(super) fn debited(&mut self, reserved_in: usize, covered: u64, beyond: u64, now: usize) {
        self.of(reserved_in).charged += covered;
        self.of(now).charged += beyond;
        self.of(now).delivered += covered + beyond;
    }

    pub(super) fn cut_short(&mut self, now: usize) {
        self.of(now).cut_short += 1;
    }

    /// Returns the tokens that were generated at the expense of a window.
    pub(super) fn charged(&self, window: usize) -> u64 {
        self.windows.get(window).map_or(0, |counts| counts.charged)
    }

    /// Adds up the first windows.
    pub(super) fn seen(&self, budget: u64, windows: usize) -> Seen {
        let whole = &self.windows[..windows.min(self.windows.len())];
        let part = |tokens: u64| tokens as f64 / budget as f64;
        let over = |tokens: fn(&Counts) -> u64| {
            whole.iter().map(|counts| tokens(counts).saturating_sub(budget)).max().unwrap_or(0)
        };
        let all = windows as u64;
        Seen {
            used: part(whole.iter().map(|counts| counts.charged).sum()) / all as f64,
            used_min: whole.iter().map(|counts| part(counts.charged)).fold(f64::INFINITY, f64::min),
            over: over(|counts| counts.charged),
            over_delivered: over(|counts| counts.delivered),
            cut_short: whole.iter().map(|counts| counts.cut_short).sum::<u64>() as f64 / all as f64,
            ..Seen::default()
        }
    }
}

/// Returns the number of the window.
pub(super) fn window(begins: Timestamp, now: Timestamp) -> usize {
    (now.since(begins).as_nanos() / WINDOW.as_nanos()) as usize
}

//! Latencies in groups: the fastest of a few calls, and their mean.

/// Calls in a group. The fastest of eight is near the first tenth of all latencies, whatever their tail.
pub(super) const GROUP: u32 = 8;
/// The calls of a group end within this many endings. Of calls that were admitted in one moment the long ones end last:
/// a group of stragglers alone would be slow without a queue.
const SPAN: u32 = 32;

/// Fills a group with calls that met about the same load.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filling {
    calls: u32,
    /// Number of the ending at which it began.
    from: u32,
    fastest: f64,
    sum: f64,
}

/// One group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// The least latency.
    pub(super) fastest: f64,
    /// The mean latency.
    pub(super) mean: f64,
}

impl Filling {
    /// Adds a call that ended as number `at`. No latency counts for more than `cap`.
    pub(super) fn add(&mut self, latency: f64, cap: f64, at: u32) -> Option<Group> {
        let latency = latency.min(cap);
        if self.calls == 0 || at.wrapping_sub(self.from) > SPAN {
            *self = Self { calls: 0, from: at, fastest: latency, sum: 0.0 };
        }
        self.calls += 1;
        self.sum += latency;
        self.fastest = self.fastest.min(latency);
        if self.calls < GROUP {
            return None;
        }
        self.calls = 0;
        Some(Group { fastest: self.fastest, mean: self.sum / f64::from(GROUP) })
    }
}

/// Groups that met about the same load.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Groups {
    /// Of the fastest of each group.
    pub(super) fastest: Moments,
    /// Of the mean of each group.
    pub(super) mean: Moments,
}

impl Groups {
    pub(super) fn add(&mut self, group: Group) {
        self.fastest.add(group.fastest, f64::INFINITY);
        self.mean.add(group.mean, f64::INFINITY);
    }

    pub(super) fn count(&self) -> f64 {
        self.fastest.count
    }
}

/// Mean and variance of what was added, one by one (Welford's method).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moments {
    pub(super) count: f64,
    pub(super) mean: f64,
    squares: f64,
}

impl Moments {
    /// Adds a value, and forgets as much as makes `most` values the weight of all.
    pub(super) fn add(&mut self, value: f64, most: f64) {
        if self.count < most {
            self.count += 1.0;
        } else {
            self.squares -= self.squares / most;
        }
        let apart = value - self.mean;
        self.mean += apart / self.count;
        self.squares += apart * (value - self.mean);
    }

    /// The variance of one value; of fewer than two nothing is known.
    pub(super) fn variance(&self) -> f64 {
        if self.count < 2.0 { f64::INFINITY } else { self.squares.max(0.0) / (self.count - 1.0) }
    }
}

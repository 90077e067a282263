//! How much of what matters was seen.

/// How much was seen of what matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// Scenarios played.
    pub scenarios: u64,
    /// Answers compared.
    pub answers: u64,
    /// Keys that were looked at before and after a change.
    pub changes: u64,
    /// Of these, keys that had used something.
    pub carried: u64,
    /// Keys in a window in flight that is none of the new version's.
    pub off_grid: u64,
    /// Loans to keys, after a change.
    pub lent: u64,
    /// Debits that came again after a change.
    pub repeated: u64,
    /// Answers that the oracle judged.
    pub judged: u64,
    /// Of these, to a bucket that was last charged at another pace.
    pub at_other_pace: u64,
    /// Waits of denials at another pace, each tried when it is over and a microsecond before.
    pub waits: u64,
}

impl ReloadReport {
    /// Adds what another examination came to.
    pub fn add(&mut self, other: &Self) {
        self.scenarios += other.scenarios;
        self.answers += other.answers;
        self.changes += other.changes;
        self.carried += other.carried;
        self.off_grid += other.off_grid;
        self.lent += other.lent;
        self.repeated += other.repeated;
        self.judged += other.judged;
        self.at_other_pace += other.at_other_pace;
        self.waits += other.waits;
    }
}

//! Coverage of the scenarios.

/// The number of times each relevant situation occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// Scenarios run.
    pub scenarios: u64,
    /// Responses compared.
    pub answers: u64,
    /// Keys that were probed before and after a change.
    pub changes: u64,
    /// Keys among these with use.
    pub carried: u64,
    /// Keys in a running window that does not exist in the new version.
    pub off_grid: u64,
    /// Loans to keys, after a change.
    pub lent: u64,
    /// Debits that were repeated after a change.
    pub repeated: u64,
    /// Responses that the oracle checked.
    pub judged: u64,
    /// Responses among these of a bucket that was last charged at another pace.
    pub at_other_pace: u64,
    /// Waits of denials at another pace, each tried when it is over and a microsecond before.
    pub waits: u64,
}

impl ReloadReport {
    /// Adds the counts of another examination.
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

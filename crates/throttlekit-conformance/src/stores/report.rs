//! Counts of comparisons, by feature.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Features that must occur in some of the scenarios of a verification.
pub const FEATURES: [&str; 67] = [
    "a flight of debits",
    "a flight of leases",
    "a flight of none",
    "a flight of several",
    "a key twice in one flight",
    "a limit that does not lend",
    "a limit without debits",
    "all of several",
    "any of several",
    "any where some deny",
    "asked a microsecond before retry",
    "asked at retry",
    "behind the clock",
    "budget",
    "budget of a month",
    "cost above the limit",
    "cost max",
    "cost of all",
    "cost zero",
    "debit",
    "debit across the edge",
    "debit again",
    "debit again in another window",
    "debit again when forgotten",
    "debit denied",
    "debit too late",
    "debt denies",
    "denied",
    "denied among several",
    "denied debit again",
    "five limits or more",
    "forecast",
    "gcra",
    "give back",
    "give back again",
    "give back into a window that is over",
    "give back more than was lent",
    "home by key",
    "leaky-bucket",
    "lease for a time",
    "lease for a window",
    "lease for ever",
    "lease across the edge",
    "lease of a share",
    "lease of what is left",
    "lease refused",
    "left out beyond exact",
    "local calendar",
    "looked after a denial",
    "month",
    "never",
    "peek",
    "reset",
    "settle as charged",
    "settle at once",
    "settle for less",
    "settle for more",
    "settle later",
    "sliding-log",
    "sliding-window",
    "step back",
    "straight to the store",
    "through a limiter",
    "token-bucket",
    "wait for reset",
    "window",
    "window edge",
];

/// Counts of comparisons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreReport {
    /// Golden suites, traces and scenarios.
    pub traces: u64,
    /// Responses in them, compared field by field.
    pub answers: u64,
    /// States of keys, compared in full.
    pub states: u64,
    /// Number of scenarios in which each feature occurred.
    pub features: BTreeMap<&'static str, u64>,
    /// Golden suites and vectors that no shared store can play, each with its reason.
    pub left_out: Vec<String>,
}

impl StoreReport {
    /// Returns the features that occurred in no scenario and thus were not checked.
    pub fn unseen(&self) -> Vec<&'static str> {
        FEATURES.into_iter().filter(|feature| !self.features.contains_key(feature)).collect()
    }

    /// Adds the counts of another check.
    pub fn add(&mut self, other: Self) {
        self.traces += other.traces;
        self.answers += other.answers;
        self.states += other.states;
        other
            .features
            .into_iter()
            .for_each(|(name, scenarios)| *self.features.entry(name).or_default() += scenarios);
        self.left_out.extend(other.left_out);
    }

    pub(super) fn of_scenario(notes: Notes) -> Self {
        let features = notes.features.into_iter().map(|feature| (feature, 1)).collect();
        Self { traces: 1, answers: notes.answers, states: notes.states, features, left_out: Vec::new() }
    }
}

impl fmt::Display for StoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { traces, answers, states, features, .. } = self;
        writeln!(f, "{traces} traces, {answers} responses, {states} states; by feature of the scenario")?;
        features.iter().try_for_each(|(name, scenarios)| writeln!(f, "{scenarios:>9}  {name}"))
    }
}

/// Events in one scenario.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    pub(super) answers: u64,
    pub(super) states: u64,
    features: BTreeSet<&'static str>,
}

impl Notes {
    pub(super) fn see(&mut self, feature: &'static str) {
        debug_assert!(FEATURES.contains(&feature), "{feature} is on no list");
        self.features.insert(feature);
    }

    pub(super) fn see_if(&mut self, holds: bool, feature: &'static str) {
        if holds {
            self.see(feature);
        }
    }
}

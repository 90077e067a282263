//! The units that clients got, and those that the store counted.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use throttlekit::internals::Mutex;

use super::{Bug, SHOWN};

/// A kind of client. Each has a key of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Calls servers that are ready, each call once.
    Unary,
    /// The same on a policy whose units servers lease.
    Leased,
    /// Does not watch readiness, and sends again what a server reported as not processed.
    Reconnecting,
    /// The Rust client with three endpoints, which decides over session streams.
    Session,
    /// Debits the tokens of streams, and sends a debit again under its number.
    Debits,
    /// The Rust client with three endpoints, which debits the tokens of streams.
    Streams,
    /// Holds permits.
    Permits,
}

impl Kind {
    pub(super) const ALL: [Self; 7] = [
        Self::Unary,
        Self::Leased,
        Self::Reconnecting,
        Self::Session,
        Self::Debits,
        Self::Streams,
        Self::Permits,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::Leased => "leased",
            Self::Reconnecting => "reconnecting",
            Self::Session => "session",
            Self::Debits => "debits",
            Self::Streams => "streams",
            Self::Permits => "permits",
        }
    }

    pub(super) fn policy(self) -> &'static str {
        match self {
            Self::Unary | Self::Reconnecting | Self::Session => "strict",
            Self::Leased => "leased",
            Self::Debits | Self::Streams => "tokens",
            Self::Permits => "permits",
        }
    }
}

/// The units that clients of one kind got.
#[derive(Clone, Debug, Default)]
struct Account {
    calls: u64,
    /// Units that clients got.
    units: u64,
    failed: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Accounts {
    accounts: Mutex<BTreeMap<Kind, Account>>,
    /// Permits that are held, and the most that were.
    held: Mutex<(u64, u64)>,
}

impl Accounts {
    /// Counts a call with its units, or its failure.
    pub(super) fn add(&self, kind: Kind, result: Result<u64, String>) {
        let mut accounts = self.accounts.lock();
        let account = accounts.entry(kind).or_default();
        account.calls += 1;
        match result {
            Ok(units) => account.units += units,
            Err(failure) => account.failed.push(failure),
        }
    }

    /// Counts a permit that is held from now on.
    pub(super) fn hold(&self) {
        let mut held = self.held.lock();
        held.0 += 1;
        held.1 = held.1.max(held.0);
    }

    /// Counts a permit that is about to be released.
    pub(super) fn release(&self) {
        self.held.lock().0 -= 1;
    }

    pub(super) fn outcome(&self, counted: Counted) -> Outcome {
        Outcome { accounts: self.accounts.lock().clone(), counted, held_max: self.held.lock().1 }
    }
}

/// The units that the store counted, once every server has returned what it leased.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) units: BTreeMap<Kind, u64>,
    /// Slots that are free.
    pub(super) slots_free: u64,
    pub(super) slots: u64,
}

#[derive(Debug)]
pub(super) struct Outcome {
    accounts: BTreeMap<Kind, Account>,
    counted: Counted,
    held_max: u64,
}

impl Outcome {
    pub(super) fn calls(&self) -> u64 {
        self.accounts.values().map(|account| account.calls).sum()
    }

    fn failed(&self) -> usize {
        self.accounts.values().map(|account| account.failed.len()).sum()
    }

    /// Returns the units that were charged and that no client got, and those that clients got and nobody charged.
    fn difference(&self) -> (u64, u64) {
        let each = self.counted.units.iter().map(|(kind, &counted)| {
            let got = self.accounts.get(kind).map_or(0, |account| account.units);
            (counted.saturating_sub(got), got.saturating_sub(counted))
        });
        each.fold((0, 0), |(lost, free), (more, less)| (lost + more, free + less))
    }

    pub(super) fn violations(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (kind, account) in &self.accounts {
            let shown = &account.failed[..account.failed.len().min(SHOWN)];
            if !shown.is_empty() {
                let (name, count) = (kind.name(), account.failed.len());
                all.push(format!("{name}: {count} of {} calls failed: {}", account.calls, shown.join("; ")));
            }
        }
        let (lost, free) = self.difference();
        if lost + free > 0 {
            all.push(format!(
                "{lost} units were charged that no client got, {free} were got and not charged"
            ));
        }
        let Counted { slots_free, slots, .. } = self.counted;
        if slots_free != slots {
            all.push(format!("{slots_free} of {slots} slots are free after all permits were released"));
        }
        if self.held_max > slots {
            all.push(format!("{} permits were held at once, of {slots}", self.held_max));
        }
        if Kind::ALL.iter().any(|kind| self.accounts.get(kind).is_none_or(|account| account.units == 0)) {
            all.push("clients of some kind got nothing".into());
        }
        all
    }

    /// Returns `true` if it has the violation that this bug causes.
    pub(super) fn shows(&self, bug: Bug) -> bool {
        let (lost, free) = self.difference();
        match bug {
            Bug::Killed | Bug::NoDelay => self.failed() > 0,
            Bug::AnotherStore => free > 0,
            Bug::SentTwice => lost > 0,
            Bug::HeldTooLong => self.counted.slots_free < self.counted.slots,
        }
    }

    pub(super) fn print(&self) {
        println!("{:<14}{:>10}{:>10}{:>10}{:>10}  policy", "clients", "calls", "failed", "got", "charged");
        for (kind, account) in &self.accounts {
            let charged = self.counted.units.get(kind).map_or("-".into(), ToString::to_string);
            println!(
                "{:<14}{:>10}{:>10}{:>10}{charged:>10}  {}",
                kind.name(),
                account.calls,
                account.failed.len(),
                account.units,
                kind.policy()
            );
        }
        let Counted { slots_free, slots, .. } = self.counted;
        println!("permits: at most {} held of {slots}, {slots_free} free in the end", self.held_max);
    }

    pub(super) fn figure(&self) -> Value {
        let (lost, free) = self.difference();
        json!({
            "calls": self.calls(),
            "failed": self.failed(),
            "units_lost": lost,
            "units_doubled": free,
            "permits_held_max": self.held_max,
            "slots_free": self.counted.slots_free,
            "slots": self.counted.slots,
        })
    }
}

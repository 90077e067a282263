//! State of the dashboard: the last snapshot, and the change of counts between snapshots.

use std::collections::{BTreeMap, VecDeque};

use throttlekit::clock::{Clock, WallClock};
use throttlekit::rate::Timestamp;
use throttlekit_proto::v1::{PolicySummary, Snapshot};

/// Maximum number of points of a curve.
pub(super) const HISTORY: usize = 240;

/// Input of the dashboard.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Input {
    /// The server responded.
    Seen(Box<Snapshot>),
    /// The server did not respond, with the cause.
    Away(String),
    /// A key was pressed.
    Press(Press),
    /// The size of the terminal changed.
    Resized,
}

/// Action of a key press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Press {
    Quit,
    /// Closes the help, or else exits.
    Back,
    Pause,
    Help,
    /// Moves the selection by `n` lines.
    Move(isize),
}

/// Rate of decisions of a policy, between the last two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    /// Decisions per second that allowed.
    pub(super) allowed: f64,
    /// Decisions per second that denied.
    pub(super) denied: f64,
}

/// All state that is drawn.
pub(super) struct Board {
    pub(super) target: String,
    pub(super) now: Snapshot,
    /// Time since when the server does not respond, and the cause.
    pub(super) away: Option<(Timestamp, String)>,
    /// True once the server has responded.
    pub(super) seen: bool,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// The selected line: 0 for all policies.
    pub(super) line: usize,
    pub(super) paces: BTreeMap<String, Pace>,
    /// Decisions per second, by policy; the total under the empty name.
    curves: BTreeMap<String, VecDeque<u64>>,
    over: bool,
}

impl Board {
    pub(super) fn new(target: &str) -> Self {
        Self {
            target: target.into(),
            now: Snapshot::default(),
            away: None,
            seen: false,
            paused: false,
            help: false,
            line: 0,
            paces: BTreeMap::new(),
            curves: BTreeMap::new(),
            over: false,
        }
    }

    pub(super) fn over(&self) -> bool {
        self.over
    }

    /// Handles an input.
    pub(super) fn take(&mut self, input: Input) {
        match input {
            Input::Seen(snapshot) => {
                self.away = None;
                if !self.paused {
                    self.see(*snapshot);
                }
            }
            Input::Away(why) => match &mut self.away {
                Some((_, last)) => *last = why,
                None => self.away = Some((WallClock.now(), why)),
            },
            Input::Press(press) => self.press(press),
            Input::Resized => {}
        }
    }

    fn press(&mut self, press: Press) {
        match press {
            Press::Back if self.help => self.help = false,
            Press::Quit | Press::Back => self.over = true,
            Press::Pause => self.paused = !self.paused,
            Press::Help => self.help = !self.help,
            Press::Move(by) => {
                self.line = self.line.saturating_add_signed(by).min(self.now.policies.len());
            }
        }
    }

    fn see(&mut self, snapshot: Snapshot) {
        let chosen = self.chosen().map(|policy| policy.name.clone());
        let elapsed_ms = at(&snapshot) - at(&self.now);
        if self.seen && elapsed_ms > 0 {
            self.measure(&snapshot, elapsed_ms as f64 / 1_000.0);
        }
        self.now = snapshot;
        self.seen = true;
        // The selected policy stays selected, on whatever line it is now.
        let place = |name: &String| self.now.policies.iter().position(|policy| policy.name == *name);
        self.line = chosen.as_ref().and_then(place).map_or(0, |place| place + 1);
    }

    /// Computes the rates since the last snapshot. A server that restarted counts from zero, so all its counts are new.
    fn measure(&mut self, next: &Snapshot, seconds: f64) {
        let before: BTreeMap<_, _> = self
            .now
            .policies
            .iter()
            .map(|policy| (policy.name.as_str(), (policy.allowed, policy.denied)))
            .collect();
        let came = |now: i64, then: i64| (if now >= then { now - then } else { now }) as f64 / seconds;
        let pace = |policy: &PolicySummary| {
            let (allowed, denied) = before.get(policy.name.as_str()).copied().unwrap_or_default();
            Pace { allowed: came(policy.allowed, allowed), denied: came(policy.denied, denied) }
        };
        self.paces = next.policies.iter().map(|policy| (policy.name.clone(), pace(policy))).collect();
        let sum = self.total();
        self.curves.retain(|name, _| name.is_empty() || self.paces.contains_key(name));
        for (name, pace) in self.paces.iter().map(|(name, pace)| (name.as_str(), pace)).chain([("", &sum)]) {
            let curve = self.curves.entry(name.to_owned()).or_default();
            if curve.len() == HISTORY {
                curve.pop_front();
            }
            curve.push_back((pace.allowed + pace.denied).round() as u64);
        }
    }

    /// Returns the selected policy; `None` for all.
    pub(super) fn chosen(&self) -> Option<&PolicySummary> {
        self.now.policies.get(self.line.checked_sub(1)?)
    }

    /// Returns the rate of decisions of all policies.
    pub(super) fn total(&self) -> Pace {
        self.paces.values().fold(Pace::default(), |sum, pace| Pace {
            allowed: sum.allowed + pace.allowed,
            denied: sum.denied + pace.denied,
        })
    }

    /// Returns the rate of decisions of the selection.
    pub(super) fn pace(&self) -> Pace {
        self.chosen().map_or_else(|| self.total(), |policy| self.pace_of(policy))
    }

    pub(super) fn pace_of(&self, policy: &PolicySummary) -> Pace {
        self.paces.get(&policy.name).copied().unwrap_or_default()
    }

    /// Returns the decisions per second of the selection, the last `width` points.
    pub(super) fn curve(&self, width: usize) -> Vec<u64> {
        let name = self.chosen().map_or("", |policy| &policy.name);
        let curve = self.curves.get(name);
        let skip = curve.map_or(0, |curve| curve.len().saturating_sub(width));
        curve.into_iter().flatten().skip(skip).copied().collect()
    }

    /// Returns the selection: one policy, or all.
    pub(super) fn of_chosen(&self) -> Vec<&PolicySummary> {
        self.chosen().map_or_else(|| self.now.policies.iter().collect(), |policy| vec![policy])
    }
}

fn at(snapshot: &Snapshot) -> i64 {
    snapshot.meta.as_ref().map_or(0, |meta| meta.generated_at)
}

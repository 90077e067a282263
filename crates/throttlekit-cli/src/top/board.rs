//! What the dashboard knows: the last snapshot, and how counts moved between snapshots.

use std::collections::{BTreeMap, VecDeque};

use throttlekit::{Clock, Timestamp, WallClock};
use throttlekit_proto::v1::{PolicySummary, Snapshot};

/// How many points of a curve are kept.
pub(super) const HISTORY: usize = 240;

/// What can happen to it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Input {
    /// The server answered.
    Seen(Box<Snapshot>),
    /// It did not, and why.
    Away(String),
    /// Somebody pressed something.
    Press(Press),
    /// The terminal has another size.
    Resized,
}

/// What somebody pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Press {
    Quit,
    /// Closes the help, or else ends.
    Back,
    Pause,
    Help,
    /// Chooses the policy so many lines further.
    Move(isize),
}

/// How fast a policy decides, between the last two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    /// Decisions a second that let pass.
    pub(super) allowed: f64,
    /// And that did not.
    pub(super) denied: f64,
}

/// Everything that is drawn.
pub(super) struct Board {
    pub(super) target: String,
    pub(super) now: Snapshot,
    /// Since when the server does not answer, and why.
    pub(super) away: Option<(Timestamp, String)>,
    /// Whether it ever answered.
    pub(super) seen: bool,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// The line that is chosen: 0 for all policies.
    pub(super) line: usize,
    pub(super) paces: BTreeMap<String, Pace>,
    /// Decisions a second, by policy; all of them under the empty name.
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

    /// What happens next.
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
        // Whoever was chosen stays so, on whatever line it stands now.
        let place = |name: &String| self.now.policies.iter().position(|policy| policy.name == *name);
        self.line = chosen.as_ref().and_then(place).map_or(0, |place| place + 1);
    }

    /// What came since the last snapshot. A server that began anew counts from zero: then all it has counted came.
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

    /// The policy that is chosen; nothing for all.
    pub(super) fn chosen(&self) -> Option<&PolicySummary> {
        self.now.policies.get(self.line.checked_sub(1)?)
    }

    /// How fast all policies decide together.
    pub(super) fn total(&self) -> Pace {
        self.paces.values().fold(Pace::default(), |sum, pace| Pace {
            allowed: sum.allowed + pace.allowed,
            denied: sum.denied + pace.denied,
        })
    }

    /// How fast what is chosen decides.
    pub(super) fn pace(&self) -> Pace {
        self.chosen().map_or_else(|| self.total(), |policy| self.pace_of(policy))
    }

    pub(super) fn pace_of(&self, policy: &PolicySummary) -> Pace {
        self.paces.get(&policy.name).copied().unwrap_or_default()
    }

    /// Decisions a second of what is chosen, the last `width` points.
    pub(super) fn curve(&self, width: usize) -> Vec<u64> {
        let name = self.chosen().map_or("", |policy| &policy.name);
        let curve = self.curves.get(name);
        let skip = curve.map_or(0, |curve| curve.len().saturating_sub(width));
        curve.into_iter().flatten().skip(skip).copied().collect()
    }

    /// What is chosen: one policy, or all.
    pub(super) fn of_chosen(&self) -> Vec<&PolicySummary> {
        self.chosen().map_or_else(|| self.now.policies.iter().collect(), |policy| vec![policy])
    }
}

fn at(snapshot: &Snapshot) -> i64 {
    snapshot.meta.as_ref().map_or(0, |meta| meta.generated_at)
}

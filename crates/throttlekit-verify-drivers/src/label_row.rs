//! The rounds of one scenario, and their results.

use serde_json::json;

/// The result of one round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Round {
    pub(crate) limit: u64,
    /// Units admitted in the window of the fault.
    pub(crate) admitted: u64,
    /// Units of these labeled `exact`.
    pub(crate) exact: u64,
    /// Units admitted before the fault, on a healthy engine, and those of them labeled `exact`.
    pub(crate) healthy: u64,
    pub(crate) healthy_exact: u64,
    /// True if the label is `exact` once the longest window has passed, and is not a moment before.
    pub(crate) came_back: bool,
    /// True if more was admitted beyond the limit than any label of the window allows.
    pub(crate) understated: bool,
    /// True if the engine changed its primary before the fault, of its own: then it was not healthy.
    pub(crate) disturbed: bool,
    /// Decisions on new keys before the fault whose check for evictions should be shared, and calls of `INFO` meanwhile.
    pub(crate) new_keys: u64,
    pub(crate) info_calls: u64,
}

/// The rounds of one scenario.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) engine: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) fault: &'static str,
    /// The bug that was seeded, if one was.
    pub(crate) seeded: Option<&'static str>,
    /// True if the mode guarantees the limit itself, whatever happens.
    pub(crate) keeps_limit: bool,
    /// True if the fault must take rounds beyond the limit: if it never does, the rounds show nothing.
    pub(crate) must_lose: bool,
    /// True if the seeded bug is found only by decisions beyond the limit that are labeled `exact`.
    pub(crate) shown_by_exact: bool,
    pub(crate) rounds: u64,
    /// Rounds beyond the limit.
    pub(crate) over: u64,
    /// Rounds in which decisions beyond the limit were labeled `exact`.
    pub(crate) exact_beyond: u64,
    /// Rounds after which the label did not recover in time.
    pub(crate) not_back: u64,
    /// Rounds that went further beyond the limit than their labels allow.
    pub(crate) understated: u64,
    pub(crate) healthy: u64,
    pub(crate) healthy_exact: u64,
    /// Rounds whose engine changed its primary before the fault. Their labels count, and not as those of a healthy engine.
    pub(crate) disturbed: u64,
    /// The same, of rounds that were repeated and are in no other number of rounds.
    pub(crate) repeated: u64,
    pub(crate) new_keys: u64,
    pub(crate) info_calls: u64,
}

/// The number of rounds below which none may lose anything by chance.
const ROUNDS_TELLING: u64 = 20;
/// The fewest decisions on new keys for each call of `INFO`, if they share checks. It is one if they do not.
const NEW_KEYS_PER_INFO_MIN: u64 = 2;

impl Row {
    pub(crate) fn new(engine: &'static str, mode: &'static str, fault: &'static str) -> Self {
        Self {
            engine,
            mode,
            fault,
            seeded: None,
            keeps_limit: false,
            must_lose: false,
            shown_by_exact: false,
            rounds: 0,
            over: 0,
            exact_beyond: 0,
            not_back: 0,
            understated: 0,
            healthy: 0,
            healthy_exact: 0,
            disturbed: 0,
            repeated: 0,
            new_keys: 0,
            info_calls: 0,
        }
    }

    pub(crate) fn add(&mut self, round: Round) {
        self.rounds += 1;
        self.over += u64::from(round.admitted > round.limit);
        self.exact_beyond += u64::from(round.exact > round.limit);
        self.not_back += u64::from(!round.came_back);
        self.understated += u64::from(round.understated);
        self.disturbed += u64::from(round.disturbed);
        self.new_keys += round.new_keys;
        self.info_calls += round.info_calls;
        if !round.disturbed {
            self.healthy += round.healthy;
            self.healthy_exact += round.healthy_exact;
        }
    }

    /// Adds a disturbed round that is repeated: its labels count, and it shows nothing else.
    pub(crate) fn add_repeated(&mut self, round: Round) {
        self.add(round);
        (self.rounds, self.disturbed, self.repeated) =
            (self.rounds - 1, self.disturbed - 1, self.repeated + 1);
    }

    /// Returns the share of a healthy engine's admissions that are labeled `exact`.
    pub(crate) fn healthy_share(&self) -> f64 {
        if self.healthy == 0 { 1.0 } else { self.healthy_exact as f64 / self.healthy as f64 }
    }

    /// Returns the violation of these rounds: a label that is not true, a limit that is broken, or a label
    /// that is too weak.
    fn violation(&self) -> Option<String> {
        if self.exact_beyond > 0 {
            return Some(format!(
                "{} rounds have decisions beyond the limit labelled exact",
                self.exact_beyond
            ));
        }
        if self.keeps_limit && self.over > 0 {
            return Some(format!("{} rounds are beyond the limit", self.over));
        }
        if self.understated > 0 {
            return Some(format!(
                "{} rounds are further beyond the limit than their labels allow",
                self.understated
            ));
        }
        if self.healthy_exact < self.healthy {
            return Some(format!("{} of {} healthy decisions are exact", self.healthy_exact, self.healthy));
        }
        (self.not_back > 0).then(|| format!("after {} rounds the label did not come back", self.not_back))
    }

    pub(crate) fn is_found(&self) -> bool {
        let is_shown = if self.shown_by_exact { self.exact_beyond > 0 } else { self.violation().is_some() };
        self.seeded.is_some() && is_shown
    }

    /// Returns the violation of a scenario without a seeded bug, or of its verification.
    pub(crate) fn problem(&self) -> Option<String> {
        let idle = self.must_lose && self.over == 0 && self.rounds >= ROUNDS_TELLING;
        let idle = idle.then(|| "no round went beyond the limit, so labels were not put to the test".into());
        let hollow = 2 * self.disturbed > self.rounds;
        let hollow = hollow
            .then(|| format!("in {} of {} rounds the engine was not healthy", self.disturbed, self.rounds));
        let alone = self.new_keys < NEW_KEYS_PER_INFO_MIN * self.info_calls;
        let alone = alone.then(|| {
            format!("{} decisions on new keys took {} calls of INFO", self.new_keys, self.info_calls)
        });
        let what = self.violation().or(idle).or(hollow).or(alone)?;
        Some(format!("{} {} {}: {what}", self.engine, self.mode, self.fault))
    }

    pub(crate) fn print(&self) {
        let Self { engine, mode, fault, rounds, over, exact_beyond, not_back, .. } = self;
        let seeded = self.seeded.map_or(String::new(), |bug| {
            format!("{}: {bug}", if self.is_found() { "found" } else { "NOT FOUND" })
        });
        let share = self.healthy_share();
        println!(
            "{engine:<10}{mode:<8}{fault:<18}{rounds:>7}{over:>8}{exact_beyond:>14}{not_back:>10}{share:>14.3}  {seeded}"
        );
    }

    pub(crate) fn figure(&self) -> serde_json::Value {
        let mut figure = json!({
            "engine": self.engine, "mode": self.mode, "fault": self.fault, "seeded": self.seeded,
            "found": self.is_found(), "rounds": self.rounds, "over": self.over,
            "exact_beyond": self.exact_beyond, "understated": self.understated, "not_back": self.not_back,
            "healthy_exact": self.healthy_share(), "disturbed": self.disturbed, "repeated": self.repeated,
        });
        if self.new_keys > 0 {
            figure["new_keys"] = self.new_keys.into();
            figure["info_calls"] = self.info_calls.into();
        }
        figure
    }
}

pub(crate) fn print_head() {
    println!(
        "{:<10}{:<8}{:<18}{:>7}{:>8}{:>14}{:>10}{:>14}  seeded bug",
        "engine", "mode", "fault", "rounds", "over L", "exact over L", "not back", "healthy exact"
    );
}

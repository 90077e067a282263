//! Checks of safety under any traffic, against exact counts.

use std::collections::HashMap;

use throttlekit::rate::Timestamp;
use throttlekit::{Decision, Retry};

use super::traffic::{Asked, Traffic};
use super::{Check, Config, Shield, ensure};
use throttlekit_conformance::Dice;

/// The requests and their outcomes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Requests.
    pub asks: u64,
    /// Units requested where the limit is at most [`Tally::ORDINARY`]. Those of requests that can never pass
    /// count as one.
    pub offered: u64,
    /// Units admitted there.
    pub admitted: u64,
    /// Windows that began.
    pub windows: u64,
    /// Denials that an exact count would have allowed.
    pub early: u64,
}

impl Tally {
    /// Above it a request may cost millions, and units are no measure of the load.
    pub const ORDINARY: u64 = 1_000;

    /// Adds another tally.
    pub fn add(&mut self, more: Self) {
        self.asks += more.asks;
        self.offered += more.offered;
        self.admitted += more.admitted;
        self.windows += more.windows;
        self.early += more.early;
    }
}

/// The exact counts: the admissions of each key in the limiter's current window.
struct Truth {
    limit: u64,
    ends_at: Timestamp,
    admitted: HashMap<u64, u64>,
    tally: Tally,
}

/// Runs random traffic and checks that no key is admitted more than the limit in a window, that windows
/// follow each other in time, and that the response never shows more units than are left.
pub fn check_scenario(
    config: &Config,
    shield: &mut dyn Shield,
    dice: &mut Dice,
    asks: u64,
) -> Result<Tally, String> {
    let mut traffic = Traffic::new(config, dice);
    let mut truth = Truth {
        limit: u64::from(config.limit.units()),
        ends_at: Timestamp::EPOCH,
        admitted: HashMap::new(),
        tally: Tally::default(),
    };
    for _ in 0..asks {
        let asked = traffic.next();
        let answer = shield.check(asked.key, asked.cost, asked.now);
        truth
            .judge(asked, answer)
            .map_err(|counterexample| format!("{counterexample}: {asked:?}, {answer:?}, {config:?}"))?;
    }
    Ok(truth.tally)
}

impl Truth {
    fn judge(&mut self, asked: Asked, answer: Decision) -> Check {
        let Asked { key, cost, now } = asked;
        self.enter(answer.reset_at, now)?;
        let used = self.admitted.get(&key).copied().unwrap_or(0);
        let fits = cost <= self.limit - used;
        ensure(!answer.allowed || fits, || format!("admitted beyond the limit, after {used}"))?;
        let used = if answer.allowed { used + cost } else { used };
        ensure(answer.remaining <= self.limit - used, || format!("shows more than {}", self.limit - used))?;
        let wait = match answer.allowed {
            true => Retry::Now,
            false if cost > self.limit => Retry::Never,
            false => Retry::after(answer.reset_at.since(now)),
        };
        ensure(answer.retry_after == wait, || format!("a wait that should be {wait:?}"))?;
        if answer.allowed && cost > 0 {
            self.admitted.insert(key, used);
        }
        self.tally.asks += 1;
        if self.limit <= Tally::ORDINARY {
            self.tally.offered += if cost > self.limit { 1 } else { cost };
            self.tally.admitted += if answer.allowed { cost } else { 0 };
        }
        self.tally.early += u64::from(fits && !answer.allowed);
        Ok(())
    }

    /// Enters the window that the response names: the same, or the one that contains `now` once the last is
    /// over.
    fn enter(&mut self, ends_at: Timestamp, now: Timestamp) -> Check {
        if ends_at == self.ends_at {
            return ensure(now < ends_at, || "a window that is over goes on".into());
        }
        ensure(ends_at > self.ends_at, || format!("back to a window before {}", self.ends_at))?;
        ensure(now >= self.ends_at && now < ends_at, || format!("left a window before {}", self.ends_at))?;
        self.ends_at = ends_at;
        self.admitted.clear();
        self.tally.windows += 1;
        Ok(())
    }
}

/// Checks that a key that is alone in a sketch gets the responses of an exact count: denials are not counted,
/// and a window starts empty.
pub fn check_alone(config: &Config, shield: &mut dyn Shield, dice: &mut Dice) -> Check {
    let limit = u64::from(config.limit.units());
    let (mut used, mut now) = (0, Timestamp::from_millis(1_800_000_000_000));
    for _ in 0..100 {
        if dice.once_in(20) {
            now = config.limit.ends_at(now);
            used = 0;
        }
        let most = limit.div_ceil(dice.between(1, 4));
        let cost = dice.between(0, most);
        let answer = shield.check(7, cost, now);
        let fits = used + cost <= limit;
        used += if fits { cost } else { 0 };
        let holds = (answer.allowed, answer.remaining) == (fits, limit - used);
        ensure(holds, || format!("alone, after {used} of {limit}, cost {cost}: {answer:?}"))?;
    }
    Ok(())
}

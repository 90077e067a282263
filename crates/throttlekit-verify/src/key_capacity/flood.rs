//! The flood, and its checks.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::rate::Limit;

use super::Subject;

/// Keys that exhaust their limit before the flood, and as many that do so when most of it has passed.
const ABUSERS: u64 = 100;
/// The duration of the flood, half a minute: no rule refills a unit before it ends.
const SPAN: Duration = Duration::from_secs(30);
/// A Wednesday noon, in the middle of windows, weeks and months.
const NOON: Timestamp = Timestamp::from_millis(1_794_398_400_000 + 120_000);
/// Long enough for every rule to forget.
const LATER: Duration = Duration::from_secs(33 * 86_400);

/// The size of a flood, and its guarantees.
#[derive(Clone, Copy, Debug)]
pub struct Flood {
    /// Keys with one request each.
    pub keys: u64,
    /// The keys among these that are sent first and must fit the budget: each response is exact.
    pub fitting: u64,
    /// Bytes.
    pub budget: usize,
    /// The maximum number of denied keys, in millionths. `None` where nothing is guaranteed.
    pub denied_ppm_max: Option<u64>,
    /// The maximum duration of one check, in nanoseconds of the thread's processor time.
    pub check_nanos_max: u64,
}

/// The results of a flood.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Keys that were denied on their first request.
    pub denied: u64,
    /// Keys that were reported less than their limit, including denied ones.
    pub short: u64,
    /// The first of those.
    pub first_short: Option<u64>,
    /// The maximum memory of keys in bytes, as the subject counts it.
    pub used_bytes: usize,
    /// The longest check, in nanoseconds of the thread's processor time; zero where it was not measured.
    pub longest_nanos: u64,
    /// Guarantees that were broken.
    pub violations: Vec<String>,
}

impl Flood {
    /// Returns the start time.
    pub fn begins(&self) -> Timestamp {
        NOON
    }

    fn shown(&self, key: u64) -> Timestamp {
        NOON + Duration::from_nanos((u128::from(key) * SPAN.as_nanos() / u128::from(self.keys.max(1))) as u64)
    }
}

/// Sends a flood. `cpu` reads the thread's processor time in nanoseconds.
pub fn judge(flood: &Flood, limit: &Limit, subject: &mut impl Subject, cpu: impl Fn() -> u64) -> Found {
    let mut run = Run { flood, limit, subject, cpu, found: Found::default() };
    let before = run.abusers("before the flood", 1 << 62);
    run.fill(0..flood.fitting);
    run.fill(flood.fitting..flood.keys * 9 / 10);
    let within = run.abusers("in the flood", 1 << 61);
    run.fill(flood.keys * 9 / 10..flood.keys);
    run.still_denied("before the flood", 1 << 62, &before);
    run.still_denied("in the flood", 1 << 61, &within);
    run.memory();
    run.expired();
    run.promised();
    run.found
}

struct Run<'a, S, C> {
    flood: &'a Flood,
    limit: &'a Limit,
    subject: &'a mut S,
    cpu: C,
    found: Found,
}

impl<S: Subject, C: Fn() -> u64> Run<'_, S, C> {
    fn violated(&mut self, what: String) {
        self.found.violations.push(what);
    }

    /// Lets each key take everything it can get, at most its limit. Returns the number of admissions of each.
    fn abusers(&mut self, when: &str, first: u64) -> Vec<u64> {
        let units = self.limit.units();
        let mut admitted =
            |abuser| (0..=units).filter(|_| self.subject.check(abuser).decision.allowed).count() as u64;
        let admitted: Vec<u64> = (first..first + ABUSERS).map(&mut admitted).collect();
        if let Some(most) = admitted.iter().max().filter(|most| **most > units) {
            self.violated(format!("an abuser {when} was admitted {most} times"));
        }
        admitted
    }

    /// Checks that they are still denied. A key that was short before, because it is estimated, may get the
    /// missing units, and no more.
    fn still_denied(&mut self, when: &str, first: u64, before: &[u64]) {
        let units = self.limit.units();
        let again =
            |(abuser, before): (u64, &u64)| self.subject.check(abuser).decision.allowed && *before >= units;
        let free = (first..).zip(before).map(again).filter(|free| *free).count();
        if free > 0 {
            self.violated(format!("{free} of {ABUSERS} abusers {when} were admitted again after it"));
        }
    }

    fn fill(&mut self, keys: std::ops::Range<u64>) {
        let fits = keys.end <= self.flood.fitting;
        for key in keys {
            self.subject.set(self.flood.shown(key));
            let begun = (self.cpu)();
            let reply = self.subject.check(key);
            self.found.longest_nanos = self.found.longest_nanos.max((self.cpu)().saturating_sub(begun));
            let short = !reply.decision.allowed || reply.decision.remaining + 1 < self.limit.units();
            self.found.denied += u64::from(!reply.decision.allowed);
            if !short {
                continue;
            }
            self.found.short += 1;
            if self.found.first_short.is_none() {
                self.found.first_short = Some(key);
                if fits {
                    self.violated(format!("key {key} was short, though {} fit", self.flood.fitting));
                }
            }
            if reply.exact == Some(true) && self.found.violations.len() < 3 {
                self.violated(format!("key {key} was short, and its answer labelled exact"));
            }
        }
    }

    fn memory(&mut self) {
        self.found.used_bytes = self.subject.memory().used_bytes;
        if self.found.used_bytes > self.flood.budget {
            self.violated(format!("{} bytes of {}", self.found.used_bytes, self.flood.budget));
        }
    }

    /// Checks that after all states have expired the same number of keys fit as at first, within one in a
    /// thousand: small tables keep the size that the earlier keys caused.
    fn expired(&mut self) {
        let fitting = self.flood.fitting;
        self.subject.set(NOON + LATER);
        let exact =
            |reply: super::Reply, units| reply.decision.remaining + 1 == units && reply.exact != Some(false);
        let first = 1 << 60;
        let wrong = (first..first + fitting)
            .filter(|key| !exact(self.subject.check(*key), self.limit.units()))
            .count();
        if wrong as u64 * 1_000 > fitting {
            self.violated(format!("{wrong} of {fitting} keys were short when all others were over"));
        }
    }

    fn promised(&mut self) {
        let ppm = self.found.denied * 1_000_000 / self.flood.keys.max(1);
        if self.flood.denied_ppm_max.is_some_and(|most| ppm > most) {
            self.violated(format!("{ppm} of a million keys were denied at their first request"));
        }
        let longest = self.found.longest_nanos;
        if longest > self.flood.check_nanos_max {
            self.violated(format!("one check took {longest} ns"));
        }
    }
}

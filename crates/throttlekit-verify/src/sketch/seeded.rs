//! Limiters with a seeded bug, to show that each check can fail.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use throttlekit::Decision;
use throttlekit::clock::{Clock, ManualClock};
use throttlekit::hash::{KeyHash, SecretHash};
use throttlekit::rate::Timestamp;
use throttlekit_core::overload::SketchLimit;
use throttlekit_core::overload::{CountMin, LinearSketch, Plain, Shape};

use super::subject::SharedShield;
use super::{Config, Kind, Shield};

throttlekit_conformance::bugs! {
    /// A bug of a limiter.
    pub enum SketchBug {
        CountersWrap: "A counter at its maximum starts again at zero.",
        RaisesOneRow: "A charge raises the first row only.",
        RaisesOneTooFew: "A charge raises the counters by one too few.",
        CountsBeforeItDecides: "A request is counted before it is decided.",
        CountsDenied: "Denied requests are counted.",
        AllowsOneMore: "The limit is one unit higher.",
        WindowKept: "A new window keeps the counts of the sketch.",
        WindowEndsEarly: "A window ends a nanosecond early.",
        WindowsGoBack: "A clock that steps back starts an earlier window.",
        RowsShareAHash: "All rows use the same hash.",
        ReadsTheGreatest: "The estimate is the greatest count of the rows.",
        PromotionForgets: "A key that gets an exact counter loses its count.",
        DemotionForgets: "A key that loses its exact counter loses its count.",
        NewWindowForgetsOnlyTheSketch: "A new window keeps the exact counters.",
    }
}

/// Merges one sketch into another. Returns false if it refuses.
pub type Merge = fn(&mut LinearSketch, &LinearSketch) -> bool;

throttlekit_conformance::bugs! {
    /// A bug of merging sketches.
    pub enum MergeBug {
        MergeByTheGreater: "The greater of two counters is taken for their sum.",
        MergeByReplacing: "The sketch that is merged in replaces the other.",
        MergeTwice: "A sketch is merged twice.",
        MergeOfAnything: "Sketches of different shapes are merged.",
    }
}

impl MergeBug {
    /// Returns a merge with this bug.
    pub fn merge(self) -> Merge {
        match self {
            Self::MergeByTheGreater => merge_by_the_greater,
            Self::MergeByReplacing => |into, from| {
                into.clear();
                into.merge(from).is_ok()
            },
            Self::MergeTwice => |into, from| into.merge(from).is_ok() && into.merge(from).is_ok(),
            Self::MergeOfAnything => |into, from| {
                if into.merge(from).is_err() {
                    *into = from.clone();
                }
                true
            },
        }
    }
}

/// Takes the greater of two counters as their sum, in the bytes: the total at 24, counters from 32 on, a
/// check at the end.
fn merge_by_the_greater(into: &mut LinearSketch, from: &LinearSketch) -> bool {
    let total = into.total() + from.total();
    if into.clone().merge(from).is_err() {
        return false;
    }
    let (mut bytes, other) = (into.to_bytes(), from.to_bytes());
    let end = bytes.len() - 8;
    bytes[24..32].copy_from_slice(&total.to_le_bytes());
    for (mine, theirs) in bytes[32..end].chunks_exact_mut(4).zip(other[32..end].chunks_exact(4)) {
        let number = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let greater = number(mine).max(number(theirs));
        mine.copy_from_slice(&greater.to_le_bytes());
    }
    let check = bytes[..end].iter().fold(0xCBF2_9CE4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    bytes[end..].copy_from_slice(&check.to_le_bytes());
    LinearSketch::from_bytes(&bytes).map(|merged| *into = merged).is_ok()
}

impl SketchBug {
    /// Returns the limiter that it is a bug of.
    pub fn kind(self) -> Kind {
        match self {
            Self::PromotionForgets | Self::DemotionForgets | Self::NewWindowForgetsOnlyTheSketch => {
                Kind::Flood
            }
            _ => Kind::Sketch,
        }
    }
}

/// Creates a limiter with one bug.
pub(super) fn shield(bug: SketchBug, config: &Config) -> Box<dyn Shield> {
    Box::new(Seeded::new(bug, config))
}

/// An independent sketch, row by row, so that each step can be wrong. Its table of busy keys has one bucket.
struct Seeded {
    bug: SketchBug,
    limit: SketchLimit,
    rows: Vec<CountMin<Plain>>,
    hot: HashMap<u64, u64>,
    hot_max: usize,
    hash: SecretHash,
    ends_at: Timestamp,
}

impl Seeded {
    fn new(bug: SketchBug, config: &Config) -> Self {
        // A row finds its column by the same rule as the first row of any sketch, from a hash of its own.
        let row = Shape::new(config.shape.width(), 1).expect("a row");
        Self {
            bug,
            limit: config.limit,
            rows: (0..config.shape.depth()).map(|_| CountMin::new(row)).collect(),
            hot: HashMap::new(),
            hot_max: config.hot_keys,
            hash: config.hash(),
            ends_at: Timestamp::EPOCH,
        }
    }

    fn is(&self, bug: SketchBug) -> bool {
        self.bug == bug
    }

    fn hash_in(&self, row: usize, hash: u64) -> u64 {
        let row = if self.is(SketchBug::RowsShareAHash) { 0 } else { row as u64 };
        self.hash.fingerprint(&(hash.wrapping_add(row)).to_le_bytes())
    }

    fn estimate(&self, hash: u64) -> u64 {
        let counts =
            self.rows.iter().enumerate().map(|(row, counts)| counts.estimate_of(self.hash_in(row, hash)));
        let count = if self.is(SketchBug::ReadsTheGreatest) { counts.max() } else { counts.min() };
        u64::from(count.unwrap_or(0))
    }

    fn raise(&self, hash: u64, count: u64) {
        let count = if self.is(SketchBug::RaisesOneTooFew) { count - 1 } else { count };
        let rows = if self.is(SketchBug::RaisesOneRow) { 1 } else { self.rows.len() };
        for (row, counts) in self.rows.iter().enumerate().take(rows) {
            let at = self.hash_in(row, hash);
            let was = counts.estimate_of(at);
            if self.is(SketchBug::CountersWrap) && count >= u64::from(SketchLimit::UNITS_MAX) {
                counts.clear();
            } else if u64::from(was) < count {
                counts.raise_of(at, count as u32);
            }
        }
    }

    fn used(&self, hash: u64) -> u64 {
        self.hot.get(&hash).copied().unwrap_or_else(|| self.estimate(hash))
    }

    fn charge(&mut self, hash: u64, cost: u64, next: u64) {
        if let Some(used) = self.hot.get_mut(&hash) {
            *used = next;
        } else if self.hot.len() < self.hot_max {
            self.promote(hash, cost, next);
        } else if let Some((coldest, used)) = self.coldest().filter(|(_, used)| *used < next) {
            self.hot.remove(&coldest);
            if !self.is(SketchBug::DemotionForgets) {
                self.raise(coldest, used);
            }
            self.promote(hash, cost, next);
        } else {
            self.raise(hash, next);
        }
    }

    fn promote(&mut self, hash: u64, cost: u64, next: u64) {
        self.hot.insert(hash, if self.is(SketchBug::PromotionForgets) { cost } else { next });
    }

    fn coldest(&self) -> Option<(u64, u64)> {
        self.hot.iter().map(|(hash, used)| (*hash, *used)).min_by_key(|(hash, used)| (*used, *hash))
    }

    fn pass_time(&mut self, now: Timestamp) {
        let early = u64::from(self.is(SketchBug::WindowEndsEarly));
        let back = self.is(SketchBug::WindowsGoBack) && self.limit.ends_at(now) != self.ends_at;
        if now.as_nanos() + early < self.ends_at.as_nanos() && !back {
            return;
        }
        self.ends_at = self.limit.ends_at(Timestamp::from_nanos(now.as_nanos() + early));
        if !self.is(SketchBug::WindowKept) {
            self.rows.iter().for_each(CountMin::clear);
        }
        if !self.is(SketchBug::NewWindowForgetsOnlyTheSketch) {
            self.hot.clear();
        }
    }
}

impl Shield for Seeded {
    fn check(&mut self, key: u64, cost: u64, now: Timestamp) -> Decision {
        self.pass_time(now);
        let hash = self.hash.fingerprint(&key.to_le_bytes());
        let limit = u64::from(self.limit.units()) + u64::from(self.is(SketchBug::AllowsOneMore));
        let used = self.used(hash);
        let next = used.saturating_add(cost);
        let allowed = next <= limit;
        let counts_all = self.is(SketchBug::CountsDenied) || self.is(SketchBug::CountsBeforeItDecides);
        if cost > 0 && (allowed || (counts_all && next <= u64::from(SketchLimit::UNITS_MAX))) {
            self.charge(hash, cost, next);
        }
        // One that counts first decides on what it has just counted.
        let before = self.is(SketchBug::CountsBeforeItDecides);
        let allowed = if before { self.used(hash).saturating_add(cost) <= limit } else { allowed };
        if allowed {
            self.limit.allowed(next.min(u64::from(SketchLimit::UNITS_MAX)) as u32, self.ends_at)
        } else {
            self.limit.denied(used.min(u64::from(SketchLimit::UNITS_MAX)) as u32, cost, self.ends_at, now)
        }
    }
}

/// The name of the bug of `racy`.
pub const RACY: &str = "two_decide_on_one_count";

/// Creates a limiter that reads, yields, and then counts: with one counter for each key.
pub(super) fn racy(config: &Config) -> Box<dyn SharedShield> {
    Box::new(Racy {
        limit: config.limit,
        clock: ManualClock::default(),
        ends_at: AtomicU64::new(0),
        used: (0..64).map(|_| AtomicU64::new(0)).collect(),
    })
}

struct Racy {
    limit: SketchLimit,
    clock: ManualClock,
    ends_at: AtomicU64,
    used: Vec<AtomicU64>,
}

impl SharedShield for Racy {
    fn check(&self, key: u64, cost: u64) -> Decision {
        let now = self.clock.now();
        let ends_at = self.limit.ends_at(now);
        if self.ends_at.swap(ends_at.as_nanos(), SeqCst) != ends_at.as_nanos() {
            self.used.iter().for_each(|used| used.store(0, SeqCst));
        }
        let used = self.used[key as usize].load(SeqCst);
        thread::yield_now();
        match self.limit.next(used as u32, cost) {
            Some(next) => {
                self.used[key as usize].store(u64::from(next), SeqCst);
                self.limit.allowed(next, ends_at)
            }
            None => self.limit.denied(used as u32, cost, ends_at, now),
        }
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

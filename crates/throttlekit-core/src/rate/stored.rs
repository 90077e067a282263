//! Stored state of a key, independent of the parameters of its limit.
//!
//! A [`State`] is encoded for one limit: ticks of its pace, windows of its grid. A store that outlives its limits keeps
//! instants instead, as scripts and tables do, and reads them as the current limit would. So a key's use continues to
//! count when another limit of the same kind replaces its limit.

use alloc::borrow::Cow;

use super::shared::{NANOS, Numbers, ScriptEncoding};
use super::{Bucket, Count, Limit, Mark, Rule, Settle, State, UNITS_MAX, Window};
use crate::{Cost, Timestamp};

/// Stored state of one key. The default is a key that was never seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// A bucket, at the pace of the limit that charged it last.
    Bucket(Bucket),
    /// A window, of the limit that began it.
    Window {
        /// In microseconds.
        end: u64,
        /// Units used in it.
        used: u64,
    },
    /// A state that reads the same under every limit of its kind and shape; or none.
    Plain(State),
}

impl Default for Stored {
    fn default() -> Self {
        Self::Plain(State::Fresh)
    }
}

impl Stored {
    /// Returns the state, as `form` reads it at `now`. A window that is over has no effect.
    pub fn state(&self, form: &ScriptEncoding, now: Timestamp) -> Cow<'_, State> {
        match (self, form.limit()) {
            (Self::Bucket(bucket), Limit::Gcra(_)) => Cow::Owned(form.bucket(*bucket).unwrap_or_default()),
            (&Self::Window { end, used }, Limit::Window(rule)) if now < instant(end) => {
                let last = Timestamp::from_nanos(instant(end).as_nanos().saturating_sub(1));
                Cow::Owned(State::Count(Count { window: rule.grid.index(last), used }))
            }
            (Self::Plain(state), _) => Cow::Borrowed(state),
            _ => Cow::Owned(State::Fresh),
        }
    }

    /// Encodes a bucket, or a window that is not over, as a script returns it. Others have no numbers.
    pub fn numbers(&self, form: &ScriptEncoding, now: Timestamp) -> Numbers {
        match *self {
            Self::Bucket(Bucket { full, rest, pace, .. }) if pace == form.pace() => {
                Numbers::of([full, rest].map(|number| number as i64))
            }
            Self::Bucket(Bucket { full, rest, since, pace }) => {
                Numbers::of([full, rest, since, pace.unit, pace.base].map(|number| number as i64))
            }
            Self::Window { end, used } if now < instant(end) => {
                Numbers::of([end, used].map(|number| number as i64))
            }
            _ => Numbers::of([]),
        }
    }

    /// Returns the end of the stored window, if it is not over.
    pub fn end(&self, now: Timestamp) -> Option<Timestamp> {
        match *self {
            Self::Window { end, .. } => Some(instant(end)).filter(|end| now < *end),
            _ => None,
        }
    }

    /// Charges the cost of a request that the limit allowed at the same instant.
    pub fn charge(&mut self, form: &ScriptEncoding, cost: Cost, now: Timestamp) {
        match form.limit() {
            _ if cost == 0 => {}
            Limit::Window(rule) => self.count(rule, cost, now),
            limit => self.change(form, now, |state| limit.charge(state, cost, now)),
        }
    }

    /// Replaces the charge at position `mark` by what was used.
    pub fn settle(&mut self, form: &ScriptEncoding, mark: Mark, charged: Cost, actual: Cost, now: Timestamp) {
        match form.limit() {
            Limit::Window(rule) if actual > charged => self.count(rule, actual - charged, now),
            Limit::Window(_) => self.take_back(form, mark, charged - actual),
            limit => self.change(form, now, |state| limit.settle(state, mark, charged, actual, now)),
        }
    }

    /// Takes units back into the window they came from, if it is the stored one.
    pub fn take_back(&mut self, form: &ScriptEncoding, mark: Mark, units: Cost) {
        let (Self::Window { end, used }, Limit::Window(rule)) = (self, form.limit()) else { return };
        if mark != Mark::NONE && rule.grid.end(mark.0) == instant(*end) {
            *used = used.saturating_sub(units);
        }
    }

    /// Returns when it becomes equivalent to no state, under `form`.
    pub fn idle_at(&self, form: &ScriptEncoding) -> Timestamp {
        match *self {
            Self::Bucket(ref bucket) => bucket.idle_at(),
            Self::Window { used: 0, .. } => Timestamp::EPOCH,
            Self::Window { end, .. } => instant(end),
            Self::Plain(ref state) => form.limit().idle_at(state),
        }
    }

    /// Heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Bucket { .. } | Self::Window { .. } => 0,
            Self::Plain(state) => state.heap_bytes(),
        }
    }

    /// Becomes at least as much as both, so that no key that starts from it has more than either.
    pub fn join(&mut self, other: &Self, form: &ScriptEncoding, now: Timestamp) {
        match (&mut *self, other) {
            (Self::Bucket(bucket), Self::Bucket(other)) => bucket.join(other, now.as_micros()),
            (Self::Window { end, used }, &Self::Window { end: other_end, used: other_used }) => {
                let (soon, soon_used) = (*end, *used).min((other_end, other_used));
                let (late, late_used) = (*end, *used).max((other_end, other_used));
                // Two that are in progress are of different grids: no key of either may be better off.
                let both = now < instant(soon);
                (*end, *used) = (late, if both { late_used.max(soon_used) } else { late_used });
            }
            (Self::Plain(State::Fresh), _) => self.clone_from(other),
            (Self::Plain(state), Self::Plain(other)) => form.limit().join(state, other),
            _ => {}
        }
    }

    /// Counts units in the stored window, or, if that is over, in that of the current limit.
    fn count(&mut self, rule: &Window, units: Cost, now: Timestamp) {
        match self {
            Self::Window { end, used } if now < instant(*end) => {
                *used = used.saturating_add(units).min(UNITS_MAX);
            }
            _ => {
                let end = rule.grid.end(rule.grid.index(now)).as_nanos() / NANOS;
                *self = Self::Window { end, used: units.min(UNITS_MAX) };
            }
        }
    }

    fn change(&mut self, form: &ScriptEncoding, now: Timestamp, by: impl FnOnce(&mut State)) {
        if let (Self::Plain(state), Limit::SlidingWindow(_) | Limit::SlidingLog(_)) =
            (&mut *self, form.limit())
        {
            return by(state);
        }
        let before = self.state(form, now).into_owned();
        let mut after = before.clone();
        by(&mut after);
        if after != before {
            *self = self.after(form, after, now);
        }
    }

    /// Creates the stored form of a state under `form`, first seen at `now`.
    pub fn of(form: &ScriptEncoding, state: State, now: Timestamp) -> Self {
        Self::default().after(form, state, now)
    }

    /// Returns the stored form after a change to `state`. A bucket is never written before its last write.
    fn after(&self, form: &ScriptEncoding, state: State, now: Timestamp) -> Self {
        match (form.limit(), state) {
            (Limit::Window(rule), State::Count(Count { window, used })) => {
                Self::Window { end: rule.grid.end(window).as_nanos() / NANOS, used }
            }
            (Limit::Gcra(rule), State::Tat(tat)) => {
                let (full, rest) = rule.split(form.pace(), tat.0);
                let before = if let Self::Bucket(bucket) = self { bucket.since } else { 0 };
                let since = now.as_micros().max(before).min(full);
                Self::Bucket(Bucket { full, rest, since, pace: form.pace() })
            }
            (_, state) => Self::Plain(state),
        }
    }
}

fn instant(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::super::Rate;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH + SECOND * seconds as u32
    }

    fn window(limit: u64, seconds: u32) -> ScriptEncoding {
        ScriptEncoding::of(&Limit::fixed_window(limit, SECOND * seconds).unwrap()).unwrap()
    }

    fn left(stored: &Stored, form: &ScriptEncoding, now: Timestamp) -> u64 {
        form.limit().decide(&stored.state(form, now), 0, now).remaining
    }

    #[test]
    fn use_of_a_window_counts_until_its_end() {
        let mut stored = Stored::default();
        stored.charge(&window(100, 10), 70, at(605));
        // More units, fewer units, longer windows, shorter ones, and some on another grid.
        for (limit, seconds, want) in [(200, 10, 130), (50, 10, 0), (100, 60, 30), (100, 5, 30), (100, 7, 30)]
        {
            assert_eq!(left(&stored, &window(limit, seconds), at(609)), want, "{limit} in {seconds} s");
            assert_eq!(left(&stored, &window(limit, seconds), at(610)), limit, "{limit} in {seconds} s");
        }
        stored.charge(&window(200, 60), 10, at(609));
        assert_eq!(stored, Stored::Window { end: 610_000_000, used: 80 }, "the current window continues");
        stored.charge(&window(200, 60), 10, at(610));
        assert_eq!(stored, Stored::Window { end: 660_000_000, used: 10 });
    }

    #[test]
    fn units_of_a_window_from_before_go_back_to_no_other() {
        let (ten, sixty) = (window(100, 10), window(100, 60));
        let mut stored = Stored::default();
        stored.charge(&ten, 70, at(605));
        let mark = ten.limit().mark(&stored.state(&ten, at(605)), at(605));
        stored.charge(&sixty, 5, at(609));
        assert!(!sixty.ends_a_window(stored.end(at(609)).unwrap()));
        stored.settle(&sixty, Mark::NONE, 5, 0, at(609));
        stored.settle(&ten, mark, 70, 60, at(609));
        assert_eq!(stored, Stored::Window { end: 610_000_000, used: 65 });
    }

    fn bucket(rate: Rate) -> ScriptEncoding {
        ScriptEncoding::of(&Limit::gcra(rate).unwrap()).unwrap()
    }

    fn spent(form: &ScriptEncoding, units: Cost, now: Timestamp) -> Stored {
        let mut stored = Stored::default();
        stored.charge(form, units, now);
        stored
    }

    #[test]
    fn a_raised_limit_applies_at_once_minus_use() {
        let stored = spent(&bucket(Rate::per_hour(5)), 5, at(100));
        assert_eq!(left(&stored, &bucket(Rate::per_hour(5)), at(100)), 0);
        assert_eq!(left(&stored, &bucket(Rate::per_hour(1_000)), at(100)), 995);
        assert_eq!(left(&stored, &bucket(Rate::per_second(1_000)), at(100)), 995);
        // The same pace with a larger burst.
        assert_eq!(left(&stored, &bucket(Rate::per_hour(5).burst(50)), at(100)), 45);
        // A faster pace with the same burst: the next unit comes at the new pace.
        let faster = bucket(Rate::per_second(1).burst(5));
        assert_eq!([100, 101, 105].map(|now| left(&stored, &faster, at(now))), [0, 1, 5]);
    }

    #[test]
    fn a_lowered_limit_denies_until_use_fits() {
        let (many, few) = (bucket(Rate::per_hour(1_000)), bucket(Rate::per_hour(5)));
        let stored = spent(&many, 6, at(100));
        let denied = few.limit().decide(&stored.state(&few, at(100)), 1, at(100));
        // Two units of the old pace have to come back until four are used.
        assert!(!denied.allowed);
        assert_eq!(denied.retry_after.wait_ms(), Some(7_200));
        let passes = Timestamp::from_millis(107_200);
        let before = Timestamp::from_micros(passes.as_micros() - 1);
        for (now, allowed) in [(before, false), (passes, true)] {
            assert_eq!(few.limit().decide(&stored.state(&few, now), 1, now).allowed, allowed, "at {now}");
        }
        // From the first charge on it is at the new pace.
        let mut after = stored.clone();
        after.charge(&few, 1, passes);
        let next = few.limit().decide(&after.state(&few, passes), 1, passes);
        assert_eq!((next.allowed, next.retry_after.wait_ms()), (false, Some(720_000)));
    }

    #[test]
    fn numbers_that_go_back_and_forth_give_nothing_and_take_a_microsecond_each() {
        let (slow, fast) = (bucket(Rate::per_second(3).burst(30)), bucket(Rate::per_second(7).burst(50)));
        let mut stored = spent(&slow, 10, at(100));
        for turn in 0..10 {
            let form = if turn % 2 == 0 { &fast } else { &slow };
            stored.charge(form, 1, at(100));
        }
        assert_eq!([left(&stored, &slow, at(100)), left(&stored, &fast, at(100))], [9, 29]);
        let full = slow.limit().decide(&stored.state(&slow, at(100)), 0, at(100)).reset_at;
        let late = full.since(at(100) + SECOND * 20 / 3);
        assert!(late <= Duration::from_micros(30), "{late:?}");
    }

    #[test]
    fn a_clock_that_steps_back_gives_a_changed_limit_nothing() {
        let (slow, fast) = (bucket(Rate::per_hour(5)), bucket(Rate::per_hour(60).burst(5)));
        let stored = spent(&slow, 5, at(1_000));
        for now in [0, 400, 1_000, 1_059] {
            assert_eq!(left(&stored, &fast, at(now)), 0, "at {now} s");
        }
        assert_eq!(left(&stored, &fast, at(1_060)), 1);
    }

    #[test]
    fn a_full_bucket_is_reported_at_any_pace() {
        let (slow, fast) = (bucket(Rate::per_second(1)), bucket(Rate::per_second(7).burst(3)));
        let stored = spent(&slow, 1, at(100));
        let seen = fast.limit().decide(&stored.state(&fast, at(200)), 0, at(200));
        assert_eq!((seen.remaining, seen.reset_at), (3, at(200)));
    }

    #[test]
    fn joined_buckets_of_two_paces_owe_at_least_as_much_as_either() {
        let (slow, fast) = (bucket(Rate::per_hour(60)), bucket(Rate::per_second(1).burst(60)));
        let (few, many) = (spent(&slow, 10, at(100)), spent(&fast, 50, at(100)));
        for (one, other) in [(&few, &many), (&many, &few)] {
            let mut joined = one.clone();
            joined.join(other, &slow, at(110));
            for now in [110, 120, 160, 700, 2_000, 5_000].map(at) {
                for form in [&slow, &fast] {
                    let least = left(&few, form, now).min(left(&many, form, now));
                    assert!(left(&joined, form, now) <= least, "at {now}");
                }
            }
        }
    }

    #[test]
    fn a_merged_state_is_never_less_than_either() {
        let (hour, day) = (window(100, 3_600), window(100, 86_400));
        let (mut few, mut many) = (Stored::default(), Stored::default());
        few.charge(&day, 1, at(10));
        many.charge(&hour, 100, at(10));
        for (one, other) in [(&few, &many), (&many, &few)] {
            let mut lost = one.clone();
            lost.join(other, &hour, at(20));
            assert_eq!(lost, Stored::Window { end: 86_400_000_000, used: 100 });
        }
        few.join(&many, &hour, at(3_600));
        assert_eq!(few, Stored::Window { end: 86_400_000_000, used: 1 }, "what is over says nothing");
    }
}

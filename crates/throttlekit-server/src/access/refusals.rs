//! Refused callers, counted and logged.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::{BootClock, Clock, Timestamp};

/// At most one line of the log for each reason within this time.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// The reason why a caller was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    WrongToken,
    ExpiredToken,
    NoToken,
    /// The monitor or Reserve without the secret that they need, where the file lists nobody.
    NoSecret,
    /// A known caller, for what it is not allowed.
    Forbidden,
}

/// The label of each reason, in the order of the reasons.
const LABELS: [&str; 5] = ["wrong_token", "expired_token", "no_token", "no_secret", "forbidden"];

/// Counts refusals by reason, and logs some of them.
#[derive(Debug, Default)]
pub(crate) struct Refusals([Count; LABELS.len()]);

#[derive(Debug, Default)]
struct Count {
    all: AtomicU64,
    /// When a line was logged last, in nanoseconds of [`BootClock`]; zero if none was.
    logged_at: AtomicU64,
    /// How many were counted since, and not logged.
    suppressed: AtomicU64,
}

impl Refusals {
    /// Counts a refusal. Logs it, unless one for the same reason was logged within the last second.
    pub(crate) fn note(&self, reason: Reason, peer: Option<SocketAddr>, principal: &str, what: &str) {
        let Some(suppressed) = self.0[reason as usize].add(BootClock.now()) else { return };
        let reason = LABELS[reason as usize];
        let peer = peer.map(tracing::field::display);
        let what: String = what.chars().take(WHAT_CHARS_MAX).collect();
        tracing::info!(reason, peer, principal, what, suppressed, "caller refused");
    }

    /// All counts so far, by label.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        LABELS.into_iter().zip(&self.0).map(|(label, count)| (label, count.all.load(Relaxed))).collect()
    }
}

/// A path is the caller's choice, and up to 16 KiB long.
const WHAT_CHARS_MAX: usize = 128;

impl Count {
    /// How many were not logged before this one, if it is to be logged.
    fn add(&self, now: Timestamp) -> Option<u64> {
        self.all.fetch_add(1, Relaxed);
        let last = self.logged_at.load(Relaxed);
        let due = last == 0 || now.since(Timestamp::from_nanos(last)) >= LOG_EVERY;
        // Of several threads that find it due, one logs.
        if due && self.logged_at.compare_exchange(last, now.as_nanos(), Relaxed, Relaxed).is_ok() {
            return Some(self.suppressed.swap(0, Relaxed));
        }
        self.suppressed.fetch_add(1, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_says_how_many_were_left_out() {
        let (count, at) = (Count::default(), Timestamp::from_millis);
        assert_eq!(count.add(at(5_000)), Some(0));
        assert_eq!([count.add(at(5_000)), count.add(at(5_999))], [None, None]);
        assert_eq!(count.add(at(6_000)), Some(2));
        assert_eq!(count.add(at(9_000)), Some(0));
        assert_eq!(count.all.load(Relaxed), 5);
    }

    #[test]
    fn each_reason_is_counted_under_its_label() {
        let refusals = Refusals::default();
        for (index, reason) in
            [Reason::WrongToken, Reason::ExpiredToken, Reason::NoToken, Reason::NoSecret, Reason::Forbidden]
                .into_iter()
                .enumerate()
        {
            (0..=index).for_each(|_| refusals.note(reason, None, "", "/x"));
        }
        let counts = refusals.counts();
        assert_eq!(counts, LABELS.into_iter().zip(1..).collect::<Vec<_>>());
    }
}

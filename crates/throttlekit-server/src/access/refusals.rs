//! Counts and logs of refused callers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};
use throttlekit::rate::Timestamp;

/// Interval in which at most one line is logged for each reason.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// The reason why a caller was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    WrongToken,
    ExpiredToken,
    NoToken,
    /// The monitor or Reserve without the required secret, where the file lists nobody.
    NoSecret,
    /// A known caller that lacks the right.
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
    /// Time of the last log line, in nanoseconds of [`BootClock`]; zero if there was none.
    logged_at: AtomicU64,
    /// Number of refusals since then that were counted and not logged.
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

    /// Returns all counts so far, by label.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        LABELS.into_iter().zip(&self.0).map(|(label, count)| (label, count.all.load(Relaxed))).collect()
    }
}

/// Maximum number of characters logged: the caller chooses the path, up to 16 KiB long.
const WHAT_CHARS_MAX: usize = 128;

impl Count {
    /// Returns the number of refusals that were not logged before this one, if it is to be logged.
    fn add(&self, now: Timestamp) -> Option<u64> {
        self.all.fetch_add(1, Relaxed);
        let last = self.logged_at.load(Relaxed);
        let due = last == 0 || now.since(Timestamp::from_nanos(last)) >= LOG_EVERY;
        // If several threads find it due, one logs.
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

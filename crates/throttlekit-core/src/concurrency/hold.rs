//! One held slot, seen by its holder.

use core::time::Duration;

use crate::Timestamp;
use crate::lease::Margin;

/// Heartbeats in the time for which work may run without one: two may be lost before it has to stop.
const HEARTBEATS: u32 = 3;
/// Jitter of heartbeats, as a divisor of their interval: a fifth early to a fifth late.
const SCATTER: u32 = 5;

/// Stop deadline of a slot holder, by its own clock, and its heartbeat schedule.
///
/// The store counts a lease from when it handled the request; the holder from when it *sent* it, less what the clocks
/// may drift. So the holder stops before the store can give the slot to another, whatever the network did. Once its
/// deadline has passed it is fenced forever: a later response cannot revive it.
///
/// ```text
/// Held => Held    a heartbeat was answered, before the deadline: the deadline moves to that of the heartbeat
/// Held => Fenced  the deadline passed, or the store said that the lease is lost
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    margin: Margin,
    /// Time for which work may run without a heartbeat.
    works: Duration,
    deadline: Timestamp,
    heartbeats_at: Timestamp,
    fenced: bool,
}

impl Hold {
    /// Creates the hold of a slot requested at `sent` and granted just now, for `lives` after the store's response.
    ///
    /// Fenced from the start where the response took longer than the slot lives. `scatter` is drawn by the caller, any
    /// number; see [`poll_heartbeat`](Self::poll_heartbeat).
    pub fn begin(margin: Margin, sent: Timestamp, lives: Duration, scatter: u32, now: Timestamp) -> Self {
        let deadline = margin.deadline(sent, lives);
        let works = deadline.since(sent);
        let heartbeats_at = sent + scattered(works, scatter);
        Self { margin, works, deadline, heartbeats_at, fenced: now >= deadline }
    }

    /// Returns the instant until which work may run.
    pub fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Checks whether work has to stop. Once it has, it always has.
    pub fn is_fenced(&mut self, now: Timestamp) -> bool {
        self.fenced |= now >= self.deadline;
        self.fenced
    }

    /// Returns when the next heartbeat is due, or `None` if never again.
    pub fn next_heartbeat(&self) -> Option<Timestamp> {
        (!self.fenced).then_some(self.heartbeats_at)
    }

    /// Checks whether to send a heartbeat now. The next is due after a third of the time for which work may run without
    /// one, ± a fifth of that, by `scatter`: a random value avoids synchronized heartbeats. It does not wait for the
    /// response.
    pub fn poll_heartbeat(&mut self, scatter: u32, now: Timestamp) -> bool {
        let due = !self.is_fenced(now) && now >= self.heartbeats_at;
        if due {
            self.heartbeats_at = now + scattered(self.works, scatter);
        }
        due
    }

    /// Handles the response to the heartbeat sent at `sent`: the slot lives for `lives`, or is lost.
    pub fn handle_heartbeat(&mut self, sent: Timestamp, lives: Option<Duration>, now: Timestamp) {
        if self.is_fenced(now) {
            return;
        }
        match lives {
            Some(lives) => {
                self.deadline = self.deadline.max(self.margin.deadline(sent, lives));
                self.fenced = now >= self.deadline;
            }
            None => self.fenced = true,
        }
    }

    /// Fences the holder, regardless of the store.
    pub fn fence(&mut self) {
        self.fenced = true;
    }
}

/// Returns a third of a time, plus or minus a fifth of that.
fn scattered(works: Duration, scatter: u32) -> Duration {
    let third = works / HEARTBEATS;
    let fifth = third / SCATTER;
    let spread = fifth.as_nanos() * 2 * u128::from(scatter) / u128::from(u32::MAX);
    third - fifth + Duration::from_nanos(spread as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVES: Duration = Duration::from_millis(900);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn held(sent: u64, now: u64) -> Hold {
        Hold::begin(Margin::NONE, at(sent), LIVES, u32::MAX / 2, at(now))
    }

    #[test]
    fn the_deadline_counts_from_the_send_time() {
        let mut hold = held(1_000, 1_400);
        assert_eq!(hold.deadline(), at(1_900));
        assert!(!hold.is_fenced(Timestamp::from_nanos(at(1_900).as_nanos() - 1)));
        assert!(hold.is_fenced(at(1_900)));
    }

    #[test]
    fn a_response_after_a_whole_lifetime_is_fenced() {
        assert!(!held(1_000, 1_899).is_fenced(at(1_000)));
        assert!(held(1_000, 1_900).is_fenced(at(1_000)));
    }

    #[test]
    fn a_heartbeat_extends_the_lease_from_its_send_time_and_a_late_response_does_not() {
        let mut hold = held(1_000, 1_010);
        hold.handle_heartbeat(at(1_300), Some(LIVES), at(1_899));
        assert_eq!(hold.deadline(), at(2_200));
        hold.handle_heartbeat(at(2_100), Some(LIVES), at(2_200));
        assert!(hold.is_fenced(at(2_150)), "fenced for ever, also where the clock is read late");
        assert_eq!(hold.next_heartbeat(), None);
    }

    #[test]
    fn a_response_to_an_earlier_heartbeat_does_not_shorten_the_lease() {
        let mut hold = held(1_000, 1_010);
        hold.handle_heartbeat(at(1_600), Some(LIVES), at(1_650));
        hold.handle_heartbeat(at(1_300), Some(LIVES), at(1_660));
        assert_eq!(hold.deadline(), at(2_500));
    }

    #[test]
    fn a_lost_lease_stops_its_holder_at_once() {
        let mut hold = held(1_000, 1_010);
        hold.handle_heartbeat(at(1_300), None, at(1_310));
        assert!(hold.is_fenced(at(1_310)));
        hold.handle_heartbeat(at(1_305), Some(LIVES), at(1_311));
        assert!(hold.is_fenced(at(1_311)));
    }

    #[test]
    fn heartbeats_are_a_third_of_a_life_apart_a_fifth_more_or_less() {
        assert_eq!(scattered(LIVES, 0), Duration::from_millis(240));
        assert_eq!(scattered(LIVES, u32::MAX), Duration::from_millis(360));
        let mut hold = Hold::begin(Margin::NONE, at(0), LIVES, 0, at(1));
        assert!(!hold.poll_heartbeat(0, Timestamp::from_nanos(at(240).as_nanos() - 1)));
        assert!(hold.poll_heartbeat(u32::MAX, at(240)));
        assert!(!hold.poll_heartbeat(0, at(599)) && hold.poll_heartbeat(0, at(600)), "answered or not");
        assert!(!hold.poll_heartbeat(0, at(900)), "who is fenced has nothing to say");
    }
}

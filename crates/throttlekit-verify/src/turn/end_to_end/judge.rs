//! The checks of a finished schedule, by charging its admissions again.

use std::time::Duration;

use throttlekit_conformance::check::{Check, ensure};
use throttlekit_core::Decision;
use throttlekit_core::rate::{Rule, State};

use super::subject::START;
use super::{End, Ended, KEYS, MS, Planned, Played};

/// A timer may be late by a millisecond, and its instant is rounded up to one.
const LATE_MAX: Duration = Duration::from_millis(2);
/// Requests for each call: two, and two more if another takes its turn meanwhile.
const REQUESTS_MAX: usize = 4;

/// Checks every guarantee of a queue.
pub(super) fn judge(played: &Played) -> Check {
    let Played { calls, ended, requests, left_waiting, .. } = played;
    ensure(ended.len() == calls.len(), || format!("{} of {} calls ended", ended.len(), calls.len()))?;
    ensure(*left_waiting == 0, || format!("{left_waiting} are left in the queue"))?;
    ensure(*requests <= REQUESTS_MAX * calls.len(), || format!("{requests} requests: {played:?}"))?;
    (0..KEYS.len()).try_for_each(|key| Judge { played, key, state: State::default() }.all())
}

/// The calls of one key, in the order in which they ended.
struct Judge<'a> {
    played: &'a Played,
    key: usize,
    state: State,
}

impl Judge<'_> {
    fn all(mut self) -> Check {
        let mut last_end = Duration::ZERO;
        for (place, ended) in self.played.ended.iter().enumerate() {
            let call = &self.played.calls[ended.call];
            if call.key != self.key {
                continue;
            }
            self.in_order(place, ended)?;
            self.in_time(ended)?;
            match ended.end {
                End::Admitted => self.admitted(ended, call.at.max(last_end))?,
                End::TimedOut => self.timed_out(ended)?,
                End::Cancelled => {}
                End::Other => return self.fails(ended, "ended otherwise"),
            }
            last_end = ended.at;
        }
        Ok(())
    }

    /// No later call of the same class is admitted before an earlier one.
    fn in_order(&self, place: usize, ended: &Ended) -> Check {
        let call = self.call(ended);
        let overtaken = self.played.ended[place..].iter().find(|later| {
            let other = self.call(later);
            later.call < ended.call && (other.key, other.class) == (call.key, call.class)
        });
        match (ended.end, overtaken) {
            (End::Admitted, Some(overtaken)) => self.fails(ended, &format!("overtook {overtaken:?}")),
            _ => Ok(()),
        }
    }

    /// A call ends before its timeout.
    fn in_time(&self, ended: &Ended) -> Check {
        let call = self.call(ended);
        let late = ended.at > call.at + call.timeout + LATE_MAX;
        if late { self.fails(ended, "ended after its timeout") } else { Ok(()) }
    }

    /// An admission is within the limit, and not later than necessary: `from` is when its turn can have
    /// begun.
    fn admitted(&mut self, ended: &Ended, from: Duration) -> Check {
        let cost = self.call(ended).cost;
        if !self.decision(cost, ended.at).allowed {
            return self.fails(ended, "was admitted above the limit");
        }
        let before = ended.at.saturating_sub(LATE_MAX);
        if before > from && self.decision(cost, before).allowed {
            return self.fails(ended, "was admitted late");
        }
        self.played.limit.charge(&mut self.state, cost, START + ended.at);
        Ok(())
    }

    /// A timeout comes when the time is over, or as soon as it is known that the wait is longer; at once if
    /// no other call waits.
    fn timed_out(&self, ended: &Ended) -> Check {
        let call = self.call(ended);
        let left = (call.at + call.timeout).saturating_sub(ended.at);
        let wait = self.decision(call.cost, ended.at).retry_after.wait().unwrap_or(Duration::MAX);
        if left > LATE_MAX && wait <= left {
            return self.fails(ended, "timed out though it could pass");
        }
        let in_vain = !self.somebody_waited(call, ended) && ended.at > call.at + MS;
        if in_vain { self.fails(ended, "slept in vain") } else { Ok(()) }
    }

    /// Returns whether another call of the key was waiting when this one came, or came before it ended.
    fn somebody_waited(&self, call: &Planned, own: &Ended) -> bool {
        self.played.ended.iter().filter(|other| other.call != own.call).any(|other| {
            let planned = self.call(other);
            planned.key == self.key && planned.at <= own.at && other.at >= call.at
        })
    }

    fn decision(&self, cost: u64, at: Duration) -> Decision {
        self.played.limit.decide(&self.state, cost, START + at)
    }

    fn call(&self, ended: &Ended) -> &Planned {
        &self.played.calls[ended.call]
    }

    fn fails(&self, ended: &Ended, what: &str) -> Check {
        Err(format!("{ended:?} {what}: {:?}\nall: {:?}", self.call(ended), self.played.ended))
    }
}

//! Checks of what callers that did not misbehave observed.

use std::time::Duration;

use throttlekit::rate::Timestamp;

use super::actor::Call;
use super::lateness::{slack_between, worst_between};
use super::run::Tally;
use super::schedule::{BLOCK_FULL, Misbehaviour, Schedule};
use super::shared::{Found, Seen};

/// The number of calls without a response that is not accidental.
const CALLS_MIN: usize = 4;
/// The time after which a late machine has no more effect on a call, such as a breaker that it opened.
const JUST_BEFORE: Duration = Duration::from_millis(500);

/// The time range in which the store may be reported as unavailable.
struct Away {
    from: Timestamp,
    until: Timestamp,
}

/// Records outages that no fault of the store explains, and callers that never get a response again. Outages
/// attributed to the machine are counted.
pub(super) fn judge(schedule: &Schedule, begun: Timestamp, calls: &[Vec<Call>], found: &Found) {
    let away = away(schedule, begun);
    for (number, calls) in calls.iter().enumerate() {
        let caller = number + 1;
        if let Some(calls) = never_answered(schedule, &away, calls) {
            found.note(format!("caller {caller}: none of {calls} calls was answered after recovery"));
        }
        for call in calls {
            let Some(wrong) = unexplained(schedule, &away, call) else { continue };
            if is_machines_fault(schedule, call) {
                found.excuse();
                continue;
            }
            let at = call.begun.since(begun);
            found.note(format!("caller {caller}, {at:?} after the start: {wrong}"));
            break;
        }
    }
}

/// Returns the number of calls that a caller made after the store had recovered, if there were any and none
/// got a response.
fn never_answered(schedule: &Schedule, away: &Away, calls: &[Call]) -> Option<usize> {
    let since = away.until + slack_between(away.until, away.until);
    let after: Vec<&Call> = calls.iter().filter(|call| call.begun > since).collect();
    let answered = after.iter().any(|call| call.seen == Seen::Answer);
    let late = after.iter().any(|call| is_machines_fault(schedule, call));
    (after.len() >= CALLS_MIN && !answered && !late).then_some(after.len())
}

/// Returns `true` if the machine woke threads so late that calls miss their deadline and breakers open.
fn is_machines_fault(schedule: &Schedule, call: &Call) -> bool {
    let before = call.begun.as_nanos().saturating_sub(JUST_BEFORE.as_nanos() as u64);
    worst_between(Timestamp::from_nanos(before), call.ended) > schedule.timing.deadline / 2
}

fn away(schedule: &Schedule, begun: Timestamp) -> Away {
    let Some(fault) = schedule.fault else { return Away { from: Timestamp::MAX, until: begun } };
    let until = begun + schedule.recovered() + schedule.timing.probe_every * 2;
    Away { from: begun + fault.from, until }
}

/// Returns the response of a call that no fault explains, if any.
fn unexplained(schedule: &Schedule, away: &Away, call: &Call) -> Option<String> {
    let why = match &call.seen {
        Seen::Outage(why) | Seen::Error(why) => why,
        Seen::Answer | Seen::GaveUp | Seen::Dropped => return None,
    };
    if call.ended >= away.from && call.begun <= away.until + slack_between(away.until, call.begun) {
        return None;
    }
    Some(match schedule.fault {
        None => format!("told that the store is away, which it never was: {why}"),
        Some(_) if call.ended < away.from => format!("told that the store is away before it was: {why}"),
        Some(_) => format!("told that the store is away after it had recovered: {why}"),
    })
}

/// Counts the calls of a schedule without violations.
pub(super) fn tally(schedule: &Schedule, calls: &[Vec<Call>], was_open: bool, excused: u64) -> Tally {
    let count = |of: fn(&Seen) -> bool| calls.iter().flatten().filter(|call| of(&call.seen)).count() as u64;
    Tally {
        calls: count(|_| true),
        answered: count(|seen| *seen == Seen::Answer),
        outages: count(|seen| matches!(seen, Seen::Outage(_) | Seen::Error(_))),
        breakers: was_open.into(),
        excused,
        full_blocks: u64::from(schedule.misbehaviour == Misbehaviour::Blocked(BLOCK_FULL)),
    }
}

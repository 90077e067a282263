//! Turns as a list that is searched from the start each time, and its seeded bugs.

use std::time::Duration;

use throttlekit_conformance::bugs;
use throttlekit_core::turn::{BY_AGE_EVERY, Departure, STALLED_AFTER};
use throttlekit_core::{Retry, Timestamp};

use super::shipped::JITTER;
use super::{Turns, Who};

bugs! {
    /// A seeded bug of turns.
    pub enum TurnBug {
        LastFirst: "The last of a class to join is served first.",
        NewcomerFirst: "A newcomer takes the turn of a sleeping waiter of its own class.",
        PassedOverLosesPosition: "A waiter that was passed over goes to the end of its class.",
        ClassesReversed: "The least urgent class is served first.",
        NewcomerNeverTakesTurn: "An urgent newcomer waits until the sleeping holder of the turn has left.",
        StrictPriority: "No turn goes by age.",
        NewcomerTakesTurnByAge: "An urgent newcomer takes a turn that goes by age.",
        GivingUpEndsTurnByAge: "A turn that goes by age ends with a holder that gives up.",
        GivingUpNotCounted: "The turn of an urgent waiter that gives up is not counted.",
        TurnLostOnLeave: "The turn of a holder that gives up goes to nobody until a waiter is seen.",
        NextNotNotified: "The next waiter is not notified of its turn.",
        LeaverStays: "A waiter that gives up without the turn stays in the queue.",
        StalledKeepsTurn: "A holder that sleeps keeps the turn while it is not seen.",
        StalledRequestKeepsTurn: "A holder with a request in flight keeps the turn while it is not seen.",
        StalledOneByOne: "Each waiter of a stopped runtime is given the turn, and waited for.",
        NewcomerTakesTurnOfRequest: "An urgent newcomer takes the turn of a holder with a request in flight.",
        JitterShortens: "Jitter is subtracted from pauses.",
        NoPause: "A waiter that was denied does not pause.",
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    who: Who,
    class: u8,
    /// Position by age.
    number: i64,
    seen_at: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    who: Who,
    requesting: bool,
}

/// Turns as a list.
#[derive(Debug)]
pub struct Plain {
    bug: Option<TurnBug>,
    entries: Vec<Entry>,
    turn: Option<Turn>,
    ended: u32,
    joined: i64,
    /// A turn that goes by age was taken.
    taken: bool,
}

impl Plain {
    /// Turns with a bug, or without.
    pub fn new(bug: Option<TurnBug>) -> Self {
        Self { bug, entries: Vec::new(), turn: None, ended: 0, joined: 0, taken: false }
    }

    fn has(&self, bug: TurnBug) -> bool {
        self.bug == Some(bug)
    }

    fn entry(&mut self, who: Who) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.who == who)
    }

    fn is_live(&self, who: Who, now: Timestamp) -> bool {
        let entry = self.entries.iter().find(|entry| entry.who == who);
        entry.is_some_and(|entry| now.since(entry.seen_at) < STALLED_AFTER)
    }

    fn goes_by_age(&self) -> bool {
        self.ended == BY_AGE_EVERY - 1 && !self.taken && !self.has(TurnBug::StrictPriority)
    }

    fn first(&self, now: Timestamp) -> Option<Who> {
        let live = self.entries.iter().filter(|entry| self.is_live(entry.who, now));
        let by_age = self.goes_by_age();
        let rank = |entry: &&Entry| {
            let class = match self.bug {
                Some(TurnBug::ClassesReversed) => u8::MAX - entry.class,
                _ => entry.class,
            };
            let last_first = self.has(TurnBug::LastFirst) && !by_age;
            (if by_age { 0 } else { class }, if last_first { -entry.number } else { entry.number })
        };
        live.min_by_key(rank).map(|entry| entry.who)
    }

    fn pass_on(&mut self, now: Timestamp) -> Option<Who> {
        if let Some(turn) = self.turn {
            let keeps = match self.bug {
                Some(TurnBug::StalledKeepsTurn) => !turn.requesting,
                Some(TurnBug::StalledRequestKeepsTurn) => turn.requesting,
                _ => false,
            };
            if turn.requesting && (keeps || self.is_live(turn.who, now)) {
                return None;
            }
            if keeps && !self.is_live(turn.who, now) {
                return None;
            }
            let takes_nothing = self.has(TurnBug::NewcomerNeverTakesTurn) && !self.goes_by_age();
            if takes_nothing && self.is_live(turn.who, now) {
                return None;
            }
        }
        let next = self.first(now);
        self.give(next, now)
    }

    fn give(&mut self, next: Option<Who>, now: Timestamp) -> Option<Who> {
        if next == self.turn.map(|turn| turn.who) {
            return None;
        }
        self.turn = next.map(|who| Turn { who, requesting: false });
        if self.has(TurnBug::StalledOneByOne)
            && let Some(who) = next
        {
            // Every other waiter counts as seen as well.
            self.entries.iter_mut().filter(|entry| entry.who != who).for_each(|entry| entry.seen_at = now);
        }
        next.filter(|_| !self.has(TurnBug::NextNotNotified))
    }

    /// Returns `true` if a seeded bug lets a newcomer take the turn.
    fn newcomer_takes(&self, class: u8) -> bool {
        let Some(turn) = self.turn else { return false };
        let holder = self.entries.iter().find(|entry| entry.who == turn.who);
        let holder = holder.map_or(0, |entry| entry.class);
        match self.bug {
            Some(TurnBug::NewcomerFirst) => !turn.requesting && class == holder,
            Some(TurnBug::NewcomerTakesTurnByAge) => self.goes_by_age() && class < holder,
            Some(TurnBug::NewcomerTakesTurnOfRequest) => class < holder && !self.goes_by_age(),
            _ => false,
        }
    }
}

impl Turns for Plain {
    fn join(&mut self, who: Who, class: u8, now: Timestamp) -> Option<Who> {
        let takes = self.newcomer_takes(class);
        self.joined += 1;
        let first = takes && self.has(TurnBug::NewcomerFirst);
        let number = if first { -self.joined } else { self.joined };
        self.entries.push(Entry { who, class, number, seen_at: now });
        self.taken |= takes && self.has(TurnBug::NewcomerTakesTurnByAge);
        if takes { self.give(Some(who), now) } else { self.pass_on(now) }
    }

    fn see(&mut self, who: Who, now: Timestamp) -> Option<Who> {
        let to_the_end = self.has(TurnBug::PassedOverLosesPosition) && !self.is_live(who, now);
        self.joined += i64::from(to_the_end);
        let number = self.joined;
        if let Some(entry) = self.entry(who) {
            entry.seen_at = entry.seen_at.max(now);
            if to_the_end {
                entry.number = number;
            }
        }
        self.pass_on(now)
    }

    fn request(&mut self, who: Who) -> bool {
        let turn = self.turn.as_mut().filter(|turn| turn.who == who);
        turn.map(|turn| turn.requesting = true).is_some()
    }

    fn denied(&mut self, who: Who, now: Timestamp) -> Option<Who> {
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.who == who) {
            turn.requesting = false;
        }
        self.see(who, now)
    }

    fn leave(&mut self, who: Who, departure: Departure, now: Timestamp) -> Option<Who> {
        let (has_turn, gives_up) = (self.has_turn(who), departure != Departure::Admitted);
        if self.has(TurnBug::LeaverStays) && gives_up && !has_turn {
            return self.pass_on(now);
        }
        self.entries.retain(|entry| entry.who != who);
        if has_turn {
            self.turn = None;
            let counts = match self.bug {
                Some(TurnBug::GivingUpEndsTurnByAge) => true,
                Some(TurnBug::GivingUpNotCounted) => !gives_up,
                _ => !gives_up || self.ended != BY_AGE_EVERY - 1,
            };
            if counts {
                self.ended = (self.ended + 1) % BY_AGE_EVERY;
                self.taken = false;
            }
            if gives_up && self.has(TurnBug::TurnLostOnLeave) {
                return None;
            }
        }
        self.pass_on(now)
    }

    fn has_turn(&self, who: Who) -> bool {
        self.turn.is_some_and(|turn| turn.who == who)
    }

    fn waiting(&self) -> usize {
        self.entries.len()
    }

    fn pause(&mut self, _: Who, retry: Retry, random: u64) -> Option<Duration> {
        let pause = retry.wait()?;
        let jitter = Duration::from_nanos(((JITTER.as_nanos() * u128::from(random)) >> 64) as u64);
        Some(match self.bug {
            Some(TurnBug::JitterShortens) => pause.saturating_sub(jitter),
            Some(TurnBug::NoPause) => Duration::ZERO,
            _ => pause + jitter,
        })
    }
}

//! Slots as plain lists, and their possible bugs.

use std::collections::{BTreeSet, VecDeque};

use super::{Caller, Goes, Holds, Seen, Setup, Told};

throttlekit_conformance::bugs! {
    /// A bug of slots.
    pub enum SlotBug {
        LeakOnCancel: "A waiter who gives up takes along a slot that was granted already.",
        LostTurn: "Such a slot is freed, but nobody is told.",
        DoubleRelease: "An ending gives back two slots.",
        ReleaseOnDenied: "An ask that is denied gives one back.",
        PanicIsSuccess: "A panic is no drop.",
        CancelIsDrop: "A cancel is a drop.",
        LastFirst: "The last in line is served first.",
        Overtaking: "A slot is not handed over: who is woken competes with newcomers.",
        ClassesReversed: "Later priorities are served first.",
        HeadroomIgnored: "Nothing is kept for the priorities before.",
        LimitForgotten: "A slot is handed over above a limit that fell meanwhile.",
        RiseWakesOne: "A limit that rises wakes one.",
        LineUnbounded: "Any number may wait.",
    }
}

/// A simple reference implementation of slots.
#[derive(Debug)]
pub struct Naive {
    bug: Option<SlotBug>,
    limit: u32,
    kept: Vec<u32>,
    queue_max: usize,
    in_flight: u32,
    lines: Vec<VecDeque<Caller>>,
    granted: BTreeSet<Caller>,
    dropped: u64,
    woken: BTreeSet<Caller>,
}

impl Naive {
    /// Creates slots with a bug, or without.
    pub fn new(setup: &Setup, bug: Option<SlotBug>) -> Self {
        let kept =
            std::iter::once(0).chain(setup.kept.iter().map(|&kept| u32::from(kept))).collect::<Vec<_>>();
        Self {
            bug,
            limit: setup.limit,
            lines: vec![VecDeque::new(); kept.len()],
            kept,
            queue_max: setup.queue_max as usize,
            in_flight: 0,
            granted: BTreeSet::new(),
            dropped: 0,
            woken: BTreeSet::new(),
        }
    }

    fn has(&self, bug: SlotBug) -> bool {
        self.bug == Some(bug)
    }

    fn has_room(&self, priority: usize) -> bool {
        let kept = if self.has(SlotBug::HeadroomIgnored) { 0 } else { self.kept[priority] };
        self.in_flight < self.limit - self.limit * kept / 1_000
    }

    fn may_enter(&self, priority: usize) -> bool {
        self.has_room(priority) && self.lines[..=priority].iter().all(VecDeque::is_empty)
    }

    fn enter(&mut self, priority: usize) -> bool {
        let enters = self.may_enter(priority);
        self.in_flight += u32::from(enters);
        enters
    }

    fn deny(&mut self) -> Told {
        if self.has(SlotBug::ReleaseOnDenied) {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        Told::Full
    }

    fn leave(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.has(SlotBug::LimitForgotten) && self.first_line().is_some() {
            return self.grant_first();
        }
        self.hand_over();
    }

    fn first_line(&self) -> Option<usize> {
        let waited_for = |priority: &usize| !self.lines[*priority].is_empty();
        let mut priorities = 0..self.lines.len();
        if self.has(SlotBug::ClassesReversed) {
            priorities.rfind(waited_for)
        } else {
            priorities.find(waited_for)
        }
    }

    fn hand_over(&mut self) {
        while let Some(priority) = self.first_line().filter(|&priority| self.has_room(priority)) {
            if self.has(SlotBug::Overtaking) {
                self.woken.extend(self.lines[priority].pop_front());
                continue;
            }
            self.grant_first();
        }
    }

    fn grant_first(&mut self) {
        let Some(priority) = self.first_line() else { return };
        let line = &mut self.lines[priority];
        let next = if self.bug == Some(SlotBug::LastFirst) { line.pop_back() } else { line.pop_front() };
        if let Some(next) = next {
            self.in_flight += 1;
            self.granted.insert(next);
            self.woken.insert(next);
        }
    }
}

impl Holds for Naive {
    fn ask(&mut self, _who: Caller, priority: usize) -> Told {
        if self.enter(priority) { Told::Come } else { self.deny() }
    }

    fn wait(&mut self, who: Caller, priority: usize) -> Told {
        if self.enter(priority) {
            return Told::Come;
        }
        if self.lines[priority].len() >= self.queue_max && !self.has(SlotBug::LineUnbounded) {
            return self.deny();
        }
        self.lines[priority].push_back(who);
        Told::Wait
    }

    fn poll(&mut self, who: Caller) -> Told {
        if self.granted.remove(&who) {
            return Told::Come;
        }
        let waits = self.lines.iter().any(|line| line.contains(&who));
        // Only where slots are not handed over can a woken caller be without a slot and not queued.
        if !waits && self.has(SlotBug::Overtaking) && self.enter(0) { Told::Come } else { Told::Wait }
    }

    fn give_up(&mut self, who: Caller) {
        if self.granted.remove(&who) {
            match self.bug {
                Some(SlotBug::LeakOnCancel) => {}
                Some(SlotBug::LostTurn) => self.in_flight -= 1,
                _ => self.leave(),
            }
        }
        self.lines.iter_mut().for_each(|line| line.retain(|&waiter| waiter != who));
    }

    fn go(&mut self, _who: Caller, how: Goes) {
        let is_drop = match how {
            Goes::Dropped => true,
            Goes::Panicked => !self.has(SlotBug::PanicIsSuccess),
            Goes::Cancelled => self.has(SlotBug::CancelIsDrop),
            Goes::Success | Goes::Ignored => false,
        };
        self.dropped += u64::from(is_drop);
        self.leave();
        if self.has(SlotBug::DoubleRelease) {
            self.leave();
        }
    }

    fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
        if self.has(SlotBug::RiseWakesOne) {
            if self.first_line().is_some_and(|priority| self.has_room(priority)) {
                self.grant_first();
            }
            return;
        }
        self.hand_over();
    }

    fn see(&mut self) -> Seen {
        let waiting = self.lines.iter().map(|line| line.len() as u32).sum();
        let woken = std::mem::take(&mut self.woken).into_iter().collect();
        let Self { limit, in_flight, dropped, .. } = *self;
        Seen { limit, in_flight, waiting, dropped, woken }
    }
}

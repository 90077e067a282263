//! Start-time fair queueing of requests.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;

use super::CallerMap;
use super::crowd::Crowd;
use super::who::{Group, Who};

/// Virtual time that one unit adds for a group of weight 1.
const STEP: u64 = 1 << 20;
/// Maximum number of groups that are remembered without anything in progress.
const IDLE_GROUPS_MAX: usize = 4_096;

/// Order in which requests are decided when there are more than can be decided at once.
///
/// Start-time fair queueing (Goyal, Vin and Cheng, 1997): each group has a virtual time that advances by the units of
/// its requests over its weight, and of the waiting groups the one with the earliest goes first. Its connections take
/// turns. So a caller that requests less than its share waits for the requests that are being decided, and for no other
/// caller's backlog.
///
/// A group may be ahead of its share by a lead. Without it, among sixteen others that are always ready a group waits
/// sixteen times as long as its last request took, though it requests almost nothing. Groups that always have something
/// ready have used up their lead, so those that do not go first.
///
/// Only decides the order; `T` notifies a waiting request.
#[derive(Debug)]
pub(super) struct Turns<T> {
    /// Units that are decided at a time. The last request may exceed it, and groups with a lead may use as much again.
    capacity: u64,
    held: u64,
    /// Virtual time by which a group of weight 1 may be ahead of its share.
    lead: u64,
    /// Capacity of the queue; unlimited if `None`.
    queue: Option<Crowd>,
    /// The virtual time of the last request that began.
    now: u64,
    flows: CallerMap<Group, Flow<T>>,
    /// Groups that wait, by the virtual time at which they may begin, and then by age.
    order: BTreeMap<(u64, u64), Group>,
    /// Numbers for flows and tickets.
    next: u64,
}

#[derive(Debug)]
struct Flow<T> {
    number: u64,
    weight: NonZeroU32,
    /// The virtual time before which its next request does not begin.
    due: u64,
    held: u64,
    /// Position in `order`, while it waits.
    stands: Option<u64>,
    /// Connections with waiting requests, in turn.
    ring: VecDeque<u64>,
    lines: CallerMap<u64, Line<T>>,
}

/// The waiting requests of one connection. Most have one, which needs no memory of its own.
#[derive(Debug)]
struct Line<T> {
    first: Waiting<T>,
    rest: VecDeque<Waiting<T>>,
}

/// A request in the queue.
#[derive(Debug)]
struct Waiting<T> {
    ticket: u64,
    units: u64,
    tell: T,
}

/// Result for a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Its turn begins.
    Begins,
    /// It waits, with this ticket.
    Waits(u64),
    /// Its caller has too many in the queue already.
    Full,
}

impl<T> Turns<T> {
    /// Creates an order with this capacity and queue length. A group may lead by a quarter of the capacity.
    pub(super) fn new(capacity: u64, queue: u64) -> Self {
        Self { capacity, queue: Some(Crowd::new(queue)), ..Self::line(capacity / 4) }
    }

    /// Creates a queue from which requests are [taken](Self::take): none begins on its own. A group may lead by `lead`
    /// units.
    pub(super) fn line(lead: u64) -> Self {
        Self {
            capacity: 0,
            held: 0,
            lead: lead.saturating_mul(STEP),
            queue: None,
            now: 0,
            flows: CallerMap::default(),
            order: BTreeMap::new(),
            next: 0,
        }
    }

    /// Begins the turn of a request of `units` units, if it need not wait. Returns whether it did.
    pub(super) fn begin_now(&mut self, who: &Who, units: u64) -> bool {
        let begins = self.begins(who, units);
        if !begins {
            self.forget(&who.group);
        }
        begins
    }

    fn begins(&mut self, who: &Who, units: u64) -> bool {
        let (now, lead, held, capacity) = (self.now, self.lead, self.held, self.capacity);
        let nobody_waits = self.order.is_empty();
        let flow = self.flow(who);
        let begins =
            if flow.leads(units, now, lead) { held < 2 * capacity } else { held < capacity && nobody_waits };
        if begins {
            flow.held += units;
            self.now = flow.begin(units, now, lead);
            self.held += units;
        }
        begins
    }

    /// Requests the turn of a request of `units` units.
    pub(super) fn ask(&mut self, who: &Who, units: u64, tell: impl FnOnce() -> T) -> Asked {
        if self.begins(who, units) {
            return Asked::Begins;
        }
        let (now, lead) = (self.now, self.lead);
        if self.queue.as_mut().is_some_and(|queue| !queue.enter(who, 1)) {
            self.forget(&who.group);
            return Asked::Full;
        }
        let ticket = self.number();
        let flow = self.flow(who);
        flow.push(who.connection, Waiting { ticket, units, tell: tell() });
        if flow.stands.is_none() {
            let place = (flow.starts(now, lead), flow.number);
            flow.stands = Some(place.0);
            self.order.insert(place, who.group.clone());
        }
        Asked::Waits(ticket)
    }

    /// Adds units to a request that has begun: it turned out to have several decisions.
    pub(super) fn weigh(&mut self, who: &Who, units: u64) {
        self.charge(who, units);
        self.hold(who, units);
    }

    /// Makes a group wait longer for its next turn.
    pub(super) fn charge(&mut self, who: &Who, units: u64) {
        let (now, lead) = (self.now, self.lead);
        let flow = self.flow(who);
        flow.due = flow.due.saturating_add(cost(units, flow.weight));
        if let Some(stood) = flow.stands {
            let (stands, number) = (flow.starts(now, lead), flow.number);
            flow.stands = Some(stands);
            self.order.remove(&(stood, number));
            self.order.insert((stands, number), who.group.clone());
        }
    }

    /// Ends a request with all of its units; returns those that begin.
    pub(super) fn end(&mut self, who: &Who, units: u64) -> Vec<T> {
        self.held -= units;
        if let Some(flow) = self.flows.get_mut(&who.group) {
            flow.held -= units;
        }
        let mut told = Vec::new();
        while self.held < self.capacity {
            let Some((next, Waiting { units, tell, .. })) = self.next_in_turn() else { break };
            self.hold(&next, units);
            told.push(tell);
        }
        self.forget(&who.group);
        told
    }

    /// Takes the next request from the queue. The caller charges its cost.
    pub(super) fn take(&mut self) -> Option<T> {
        let (who, taken) = self.next_in_turn()?;
        self.forget(&who.group);
        Some(taken.tell)
    }

    /// Removes a request from the queue. Returns whether it was there: if not, its turn has begun.
    pub(super) fn give_up(&mut self, who: &Who, ticket: u64) -> bool {
        let Some(flow) = self.flows.get_mut(&who.group) else { return false };
        if !flow.remove(who.connection, ticket) {
            return false;
        }
        if flow.ring.is_empty()
            && let Some(stood) = flow.stands.take()
        {
            self.order.remove(&(stood, flow.number));
        }
        self.queue.iter_mut().for_each(|queue| queue.leave(who, 1));
        self.forget(&who.group);
        true
    }

    /// Returns the units that are being decided, and the requests that wait.
    pub(super) fn load(&self) -> (u64, u64) {
        (self.held, self.queue.as_ref().map_or(0, Crowd::taken))
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn flow(&mut self, who: &Who) -> &mut Flow<T> {
        let (number, now) = (self.number(), self.now);
        let flow = self.flows.entry(who.group.clone());
        let flow = flow.or_insert_with(|| Flow::new(number, who.weight, now));
        // Weight of the current file.
        flow.weight = who.weight;
        flow
    }

    fn hold(&mut self, who: &Who, units: u64) {
        self.held += units;
        self.flow(who).held += units;
    }

    /// Begins the request whose turn it is.
    fn next_in_turn(&mut self) -> Option<(Who, Waiting<T>)> {
        let ((_, number), group) = self.order.pop_first()?;
        let flow = self.flows.get_mut(&group)?;
        flow.stands = None;
        let (connection, next) = flow.pop()?;
        self.now = flow.begin(next.units, self.now, self.lead);
        if !flow.ring.is_empty() {
            let stands = flow.starts(self.now, self.lead);
            flow.stands = Some(stands);
            self.order.insert((stands, number), group.clone());
        }
        let who = Who { group, weight: flow.weight, connection };
        self.queue.iter_mut().for_each(|queue| queue.leave(&who, 1));
        Some((who, next))
    }

    /// Removes a group with nothing in progress once that gives it no advantage: otherwise a caller could reset its
    /// virtual time by reconnecting. Beyond `IDLE_GROUPS_MAX` groups it is removed all the same.
    fn forget(&mut self, group: &Group) {
        if self.held == 0 && self.order.is_empty() {
            self.flows.clear();
            return;
        }
        let crowded = self.flows.len() > IDLE_GROUPS_MAX;
        if self.flows.get(group).is_some_and(|flow| flow.is_idle() && (crowded || flow.due <= self.now)) {
            self.flows.remove(group);
        }
    }
}

impl<T> Flow<T> {
    fn new(number: u64, weight: NonZeroU32, now: u64) -> Self {
        let (ring, lines) = (VecDeque::new(), CallerMap::default());
        Self { number, weight, due: now, held: 0, stands: None, ring, lines }
    }

    /// Returns the virtual time at which its next request may begin.
    fn starts(&self, now: u64, lead: u64) -> u64 {
        self.due.saturating_sub(lead).max(now)
    }

    /// Checks whether a request is within its lead.
    fn leads(&self, units: u64, now: u64, lead: u64) -> bool {
        let due = self.due.max(now);
        self.stands.is_none() && due.saturating_add(cost(units, self.weight)) <= now + lead
    }

    /// Begins a request. Returns the virtual time at which it begins.
    fn begin(&mut self, units: u64, now: u64, lead: u64) -> u64 {
        let starts = self.starts(now, lead);
        self.due = self.due.max(now).saturating_add(cost(units, self.weight));
        starts
    }

    fn push(&mut self, connection: u64, waiting: Waiting<T>) {
        match self.lines.entry(connection) {
            Entry::Occupied(line) => line.into_mut().rest.push_back(waiting),
            Entry::Vacant(line) => {
                line.insert(Line { first: waiting, rest: VecDeque::new() });
                self.ring.push_back(connection);
            }
        }
    }

    /// Removes the next request, with its connection.
    fn pop(&mut self) -> Option<(u64, Waiting<T>)> {
        let connection = self.ring.pop_front()?;
        let Entry::Occupied(mut line) = self.lines.entry(connection) else { return None };
        let Some(second) = line.get_mut().rest.pop_front() else {
            return Some((connection, line.remove().first));
        };
        self.ring.push_back(connection);
        Some((connection, std::mem::replace(&mut line.get_mut().first, second)))
    }

    /// Removes the request with this ticket. Returns whether it was there.
    fn remove(&mut self, connection: u64, ticket: u64) -> bool {
        let Entry::Occupied(mut line) = self.lines.entry(connection) else { return false };
        let Line { first, rest } = line.get_mut();
        if first.ticket != ticket {
            let at = rest.binary_search_by_key(&ticket, |waiting| waiting.ticket);
            return at.is_ok_and(|at| rest.remove(at).is_some());
        }
        match rest.pop_front() {
            Some(second) => *first = second,
            None => {
                line.remove();
                self.ring.retain(|waiting| *waiting != connection);
            }
        }
        true
    }

    fn is_idle(&self) -> bool {
        self.held == 0 && self.ring.is_empty()
    }
}

fn cost(units: u64, weight: NonZeroU32) -> u64 {
    units.saturating_mul(STEP) / u64::from(weight.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::tests::who;

    /// Creates an order whose waiting requests are identified by a number.
    fn turns(capacity: u64) -> Turns<u64> {
        Turns::new(capacity, 1_000_000)
    }

    fn waits(asked: &Asked) -> bool {
        matches!(asked, Asked::Waits(_))
    }

    #[test]
    fn nobody_waits_while_there_is_room() {
        let mut turns = turns(2);
        let a = who(1, 1, 1);
        assert_eq!([turns.ask(&a, 1, || 1), turns.ask(&a, 1, || 2)], [Asked::Begins, Asked::Begins]);
        assert!(waits(&turns.ask(&a, 1, || 3)));
        assert_eq!(turns.end(&a, 1), [3]);
        assert_eq!(turns.load(), (2, 0));
    }

    #[test]
    fn a_newcomer_is_next_whatever_others_have_queued() {
        let mut turns = turns(1);
        let (heavy, light) = (who(1, 1, 1), who(2, 1, 2));
        assert_eq!(turns.ask(&heavy, 1, || 1), Asked::Begins);
        (0..1_000).for_each(|_| assert!(waits(&turns.ask(&heavy, 1, || 1))));
        assert!(waits(&turns.ask(&light, 1, || 2)));
        assert_eq!(turns.end(&heavy, 1), [2]);
    }

    #[test]
    fn turns_follow_weights_and_units() {
        // The third sends batches of ten.
        let all = [who(1, 1, 1), who(2, 4, 2), who(3, 1, 3)];
        let mut turns = turns(1);
        for who in &all {
            for _ in 0..10_000 {
                let number = who.connection;
                turns.ask(who, 1, || number);
            }
        }
        let (mut units, mut running) = ([0_u64; 3], 0);
        for _ in 0..10_000 {
            let who = &all[running];
            let more = if running == 2 { 9 } else { 0 };
            turns.weigh(who, more);
            units[running] += 1 + more;
            running = usize::try_from(turns.end(who, 1 + more)[0]).unwrap() - 1;
        }
        let share = |index: usize| units[index] as f64 / units[0] as f64;
        assert!((3.8..4.2).contains(&share(1)) && (0.9..1.1).contains(&share(2)), "{units:?}");
    }

    #[test]
    fn a_group_below_its_share_does_not_wait_for_those_above() {
        let mut turns = turns(8);
        let heavy: Vec<_> = (0..16).map(|group| who(group, 1, group)).collect();
        for one in &heavy {
            (0..100).for_each(|_| _ = turns.ask(one, 4, || one.connection));
        }
        let mut running: VecDeque<u64> = VecDeque::new();
        let light = who(16, 1, 16);
        let mut began = 0;
        for round in 0..320 {
            // One unit of the light group's to sixty-four of the others': a quarter of its share.
            if round % 16 == 0 {
                began += u32::from(turns.ask(&light, 1, || 16) == Asked::Begins);
                assert!(turns.end(&light, 1).iter().all(|told| *told < 16), "it did not wait");
            }
            let next = running.pop_front().unwrap_or(round % 2);
            running.extend(turns.end(&heavy[usize::try_from(next).unwrap()], 4));
        }
        assert_eq!(began, 20);
    }

    #[test]
    fn connections_of_a_group_take_turns() {
        let mut turns = turns(1);
        let (first, second) = (who(1, 1, 1), who(1, 1, 2));
        turns.ask(&first, 1, || 1);
        (0..3).for_each(|_| assert!(waits(&turns.ask(&first, 1, || 1))));
        (0..3).for_each(|_| assert!(waits(&turns.ask(&second, 1, || 2))));
        let order: Vec<_> = (0..6).flat_map(|_| turns.end(&first, 1)).collect();
        assert_eq!(order, [1, 2, 1, 2, 1, 2]);
    }

    #[test]
    fn coming_and_going_gains_nothing() {
        let mut turns = turns(1);
        let (a, b) = (who(1, 1, 1), who(2, 1, 2));
        // A batch of a thousand, and then nothing more, while another caller is active.
        turns.ask(&a, 1, || 1);
        turns.weigh(&a, 999);
        turns.ask(&b, 1, || 2);
        assert_eq!(turns.end(&a, 1_000), [2]);
        assert!(waits(&turns.ask(&a, 1, || 1)));
        for _ in 0..900 {
            turns.ask(&b, 1, || 2);
            assert_eq!(turns.end(&b, 1), [2], "the batch is not paid for yet");
        }
    }

    #[test]
    fn who_gives_up_is_gone_and_who_was_told_is_not_found() {
        let mut turns = turns(1);
        let a = who(1, 1, 1);
        turns.ask(&a, 1, || 1);
        let Asked::Waits(second) = turns.ask(&a, 1, || 2) else { panic!() };
        let Asked::Waits(third) = turns.ask(&a, 1, || 3) else { panic!() };
        assert!(turns.give_up(&a, second) && !turns.give_up(&a, second));
        assert_eq!(turns.end(&a, 1), [3]);
        assert!(!turns.give_up(&a, third));
        assert_eq!(turns.end(&a, 1), Vec::<u64>::new());
        assert_eq!((turns.load(), turns.flows.len(), turns.order.len()), ((0, 0), 0, 0));
    }

    #[test]
    fn the_line_is_room_that_nobody_fills() {
        let mut turns: Turns<u64> = Turns::new(1, 90);
        let (a, b) = (who(1, 1, 1), who(2, 1, 2));
        turns.ask(&a, 1, || 1);
        let waiting = (0..90).filter(|_| waits(&turns.ask(&a, 1, || 1))).count();
        assert_eq!(waiting, 30);
        assert!(waits(&turns.ask(&b, 1, || 2)));
    }
}

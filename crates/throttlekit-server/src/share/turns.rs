//! Start-time fair queueing of requests.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::num::NonZeroU32;

use super::crowd::Crowd;
use super::who::{Group, Who};

/// What one unit adds to the virtual time of a group of weight 1.
const STEP: u64 = 1 << 20;
/// Groups that are remembered though nothing of theirs is under way, at the most.
const IDLE_GROUPS_MAX: usize = 4_096;

/// Whose request is decided next, where more come than can be decided at once.
///
/// Start-time fair queueing (Goyal, Vin and Cheng, 1997): each group has a virtual time that goes on by the units of its
/// requests over its weight, and of those who wait the one with the earliest goes first. Its connections take turns. So
/// whoever asks for less than its share waits for the requests that are being decided, and for nobody's backlog.
///
/// A group may be ahead of its share by a lead. Without it, among sixteen others that are always ready a group waits
/// sixteen times as long as its last request took, though it asks for next to nothing. Groups that always have something
/// ready have used up their lead, so those that do not go first.
///
/// Decides only; `T` is how whoever waits is told.
#[derive(Debug)]
pub(super) struct Turns<T> {
    /// Units that are decided at a time. The last to come may go beyond it, and groups with a lead may use as much again.
    capacity: u64,
    held: u64,
    /// How far a group of weight 1 may be ahead of its share, in virtual time.
    lead: u64,
    /// Room in line; there is no end of it if this is missing.
    queue: Option<Crowd>,
    /// The virtual time of the last request that began.
    now: u64,
    flows: HashMap<Group, Flow<T>>,
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
    /// Where it stands in `order`, while it waits.
    stands: Option<u64>,
    /// Connections with requests that wait, in turn.
    ring: VecDeque<u64>,
    lines: HashMap<u64, VecDeque<Waiting<T>>>,
}

/// A request in line.
#[derive(Debug)]
struct Waiting<T> {
    ticket: u64,
    units: u64,
    tell: T,
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// It begins.
    Begins,
    /// It waits, under this number.
    Waits(u64),
    /// Too many of its caller wait already.
    Full,
}

impl<T> Turns<T> {
    /// So many units at a time, and room for so many in line. A group may lead by a quarter of the capacity.
    pub(super) fn new(capacity: u64, queue: u64) -> Self {
        Self { capacity, queue: Some(Crowd::new(queue)), ..Self::line(capacity / 4) }
    }

    /// A line from which others are [taken](Self::take): nothing begins by itself. A group may lead by so many units.
    pub(super) fn line(lead: u64) -> Self {
        Self {
            capacity: 0,
            held: 0,
            lead: lead.saturating_mul(STEP),
            queue: None,
            now: 0,
            flows: HashMap::new(),
            order: BTreeMap::new(),
            next: 0,
        }
    }

    /// Asks for the turn of a request of so many units.
    pub(super) fn ask(&mut self, who: &Who, units: u64, tell: impl FnOnce() -> T) -> Asked {
        let begins = if self.leads(who, units) {
            self.held < 2 * self.capacity
        } else {
            self.held < self.capacity && self.order.is_empty()
        };
        if begins {
            self.begin(who, units);
            self.hold(who, units);
            return Asked::Begins;
        }
        if self.queue.as_mut().is_some_and(|queue| !queue.enter(who, 1)) {
            return Asked::Full;
        }
        let ticket = self.number();
        let (now, lead) = (self.now, self.lead);
        let flow = self.flow(who);
        let line = flow.lines.entry(who.connection).or_default();
        if line.is_empty() {
            flow.ring.push_back(who.connection);
        }
        line.push_back(Waiting { ticket, units, tell: tell() });
        if flow.stands.is_none() {
            let stands = flow.starts(now, lead);
            flow.stands = Some(stands);
            let place = (stands, flow.number);
            self.order.insert(place, who.group.clone());
        }
        Asked::Waits(ticket)
    }

    /// Adds units to a request that has begun: it turned out to be more than one.
    pub(super) fn weigh(&mut self, who: &Who, units: u64) {
        self.charge(who, units);
        self.hold(who, units);
    }

    /// Has a group wait longer for its next.
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

    /// Ends a request, all of its units; whoever is told begins.
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

    /// Takes the one whose turn it is out of the line. What it comes to is charged by whoever takes it.
    pub(super) fn take(&mut self) -> Option<T> {
        let (who, taken) = self.next_in_turn()?;
        self.forget(&who.group);
        Some(taken.tell)
    }

    /// Takes a request out of the line. Whether it was there: if not, it was told to begin.
    pub(super) fn give_up(&mut self, who: &Who, ticket: u64) -> bool {
        let Some(flow) = self.flows.get_mut(&who.group) else { return false };
        let Some(line) = flow.lines.get_mut(&who.connection) else { return false };
        let Ok(at) = line.binary_search_by_key(&ticket, |waiting| waiting.ticket) else { return false };
        line.remove(at);
        if line.is_empty() {
            flow.lines.remove(&who.connection);
            flow.ring.retain(|connection| *connection != who.connection);
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

    /// Units that are being decided, and requests that wait.
    pub(super) fn load(&self) -> (u64, u64) {
        (self.held, self.queue.as_ref().map_or(0, Crowd::taken))
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn flow(&mut self, who: &Who) -> &mut Flow<T> {
        let (number, now) = (self.number(), self.now);
        let flow = self.flows.entry(who.group.clone()).or_insert_with(|| Flow {
            number,
            weight: who.weight,
            due: now,
            held: 0,
            stands: None,
            ring: VecDeque::new(),
            lines: HashMap::new(),
        });
        // As the file in force says.
        flow.weight = who.weight;
        flow
    }

    fn begin(&mut self, who: &Who, units: u64) {
        let (now, lead) = (self.now, self.lead);
        let flow = self.flow(who);
        let starts = flow.starts(now, lead);
        flow.due = flow.due.max(now).saturating_add(cost(units, flow.weight));
        self.now = starts;
    }

    /// Whether a request is within what its group may use ahead of its share.
    fn leads(&self, who: &Who, units: u64) -> bool {
        let due = match self.flows.get(&who.group) {
            Some(flow) if flow.stands.is_some() => return false,
            Some(flow) => flow.due.max(self.now),
            None => self.now,
        };
        due.saturating_add(cost(units, who.weight)) <= self.now + self.lead
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
        let connection = flow.ring.pop_front()?;
        let line = flow.lines.get_mut(&connection)?;
        let next = line.pop_front()?;
        if line.is_empty() {
            flow.lines.remove(&connection);
        } else {
            flow.ring.push_back(connection);
        }
        let weight = flow.weight;
        let who = Who { group, weight, connection };
        self.queue.iter_mut().for_each(|queue| queue.leave(&who, 1));
        self.begin(&who, next.units);
        if let Some(flow) = self.flows.get_mut(&who.group)
            && !flow.ring.is_empty()
        {
            let stands = flow.starts(self.now, self.lead);
            flow.stands = Some(stands);
            self.order.insert((stands, number), who.group.clone());
        }
        Some((who, next))
    }

    /// Forgets a group of which nothing is under way, once that gives it nothing: or else whoever comes and goes would
    /// begin anew each time. Beyond so many it is forgotten all the same.
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
    /// The virtual time at which its next request may begin.
    fn starts(&self, now: u64, lead: u64) -> u64 {
        self.due.saturating_sub(lead).max(now)
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

    /// Turns of which everybody who waits is told by a name.
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
        // The third asks for batches of ten.
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
        // A batch of a thousand, and then nothing more, while another works.
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

//! The waiters of one key, and whose turn it is.
//!
//! ```text
//! // Waiting => Called | gone
//! // Called => Requesting | Waiting (the turn was taken) | gone
//! // Requesting => Called (denied) | Waiting (denied, and the turn was taken; or stalled) | gone
//! ```

use alloc::collections::BTreeMap;
use core::time::Duration;

use crate::Timestamp;

/// One turn in this many goes to the longest waiter, whatever its class.
pub const BY_AGE_EVERY: u32 = 4;
/// Time after which a waiter that was not seen is passed over, until it is seen again.
pub const STALLED_AFTER: Duration = Duration::from_millis(1_000);
/// Interval at which a driver reports each waiter as seen.
pub const HEARTBEAT: Duration = Duration::from_millis(250);

// A heartbeat may be late by a few intervals before its waiter is passed over.
const _: () = assert!(HEARTBEAT.as_millis() * 4 <= STALLED_AFTER.as_millis());

/// The waiters of one key. Each carries an `N`, by which the driver notifies it.
///
/// * Within a class: first come, first served. The driver learns costs and waits, not the queue, so a cheap request does
///   not overtake an expensive one.
/// * Between classes: the most urgent (the smallest) first, except that every fourth turn goes to the longest waiter.
///   A turn ends when its holder leaves. One that goes by age is repeated until its holder is admitted.
/// * So a waiter that joins as number `p` has left after at most `4·p` turns, its own included, if it is seen.
/// * The turn of a holder with a request in flight stays with it. Otherwise a waiter that comes before the holder, by
///   the rules above, takes the turn when it joins.
/// * A waiter that was not seen for [`STALLED_AFTER`] is passed over and loses its turn. It keeps its position: when it
///   is seen again, it comes before those that joined after it.
#[derive(Debug)]
pub struct TurnQueue<N> {
    /// In the order of classes, and by age within a class.
    waiters: BTreeMap<Ticket, Waiter<N>>,
    /// The class of each waiter, by age.
    by_age: BTreeMap<u64, u8>,
    turn: Option<Turn>,
    /// Turns that ended since the last one by age.
    ended: u32,
    joined: u64,
}

/// A position in a queue. Valid until its waiter leaves; unknown tickets have no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    class: u8,
    number: u64,
}

/// Reason why a waiter leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Departure {
    /// The limiter admitted it.
    Admitted,
    /// It failed, timed out or was cancelled.
    GaveUp,
}

#[derive(Debug)]
struct Waiter<N> {
    seen_at: Timestamp,
    notify: N,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    ticket: Ticket,
    /// `true` while the holder has a request in flight.
    requesting: bool,
}

impl<N> Default for TurnQueue<N> {
    fn default() -> Self {
        Self { waiters: BTreeMap::new(), by_age: BTreeMap::new(), turn: None, ended: 0, joined: 0 }
    }
}

/// Methods that change the queue return the waiter whose turn it is now, if it was not before: the driver notifies it.
impl<N> TurnQueue<N> {
    /// Adds a waiter. Class 0 is the most urgent.
    pub fn join(&mut self, class: u8, notify: N, now: Timestamp) -> (Ticket, Option<Ticket>) {
        let ticket = Ticket { class, number: self.joined };
        self.joined += 1;
        self.waiters.insert(ticket, Waiter { seen_at: now, notify });
        self.by_age.insert(ticket.number, class);
        (ticket, self.pass_on(now))
    }

    /// Records that a waiter is alive.
    pub fn see(&mut self, ticket: Ticket, now: Timestamp) -> Option<Ticket> {
        if let Some(waiter) = self.waiters.get_mut(&ticket) {
            waiter.seen_at = waiter.seen_at.max(now);
        }
        self.pass_on(now)
    }

    /// Begins a request, if it is the waiter's turn. The turn stays with the waiter until [`denied`](Self::denied) or
    /// [`leave`](Self::leave), unless the waiter stalls.
    #[must_use = "only the waiter whose turn it is may request"]
    pub fn request(&mut self, ticket: Ticket) -> bool {
        let turn = self.turn.as_mut().filter(|turn| turn.ticket == ticket);
        turn.map(|turn| turn.requesting = true).is_some()
    }

    /// Ends a request that was denied. The waiter stays, and keeps the turn unless another comes before it.
    pub fn denied(&mut self, ticket: Ticket, now: Timestamp) -> Option<Ticket> {
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.ticket == ticket) {
            turn.requesting = false;
        }
        self.see(ticket, now)
    }

    /// Removes a waiter. Its turn, if it has it, passes on.
    pub fn leave(&mut self, ticket: Ticket, departure: Departure, now: Timestamp) -> Option<Ticket> {
        self.waiters.remove(&ticket)?;
        self.by_age.remove(&ticket.number);
        if self.has_turn(ticket) {
            self.end_turn(departure);
        }
        self.pass_on(now)
    }

    fn end_turn(&mut self, departure: Departure) {
        self.turn = None;
        self.ended = match departure {
            Departure::Admitted if self.goes_by_age() => 0,
            Departure::GaveUp if self.goes_by_age() => self.ended,
            Departure::Admitted | Departure::GaveUp => self.ended + 1,
        };
    }

    fn goes_by_age(&self) -> bool {
        self.ended == BY_AGE_EVERY - 1
    }

    /// Returns whether it is this waiter's turn.
    pub fn has_turn(&self, ticket: Ticket) -> bool {
        self.turn.is_some_and(|turn| turn.ticket == ticket)
    }

    /// Returns what notifies a waiter.
    pub fn notify_mut(&mut self, ticket: Ticket) -> Option<&mut N> {
        self.waiters.get_mut(&ticket).map(|waiter| &mut waiter.notify)
    }

    /// Returns the number of waiters.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Returns whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Gives the turn to the waiter that comes first, unless its holder has a request in flight.
    fn pass_on(&mut self, now: Timestamp) -> Option<Ticket> {
        let held = self.turn.filter(|turn| self.is_live(turn.ticket, now));
        if held.is_some_and(|turn| turn.requesting) {
            return None;
        }
        let next = self.first(now);
        if next == self.turn.map(|turn| turn.ticket) {
            return None;
        }
        self.turn = next.map(|ticket| Turn { ticket, requesting: false });
        next
    }

    /// Returns the live waiter that comes first: by class, or in every fourth turn by age. Passes over stalled waiters,
    /// one step each.
    fn first(&self, now: Timestamp) -> Option<Ticket> {
        if self.goes_by_age() {
            let mut oldest = self.by_age.iter().map(|(&number, &class)| Ticket { class, number });
            oldest.find(|ticket| self.is_live(*ticket, now))
        } else {
            let mut urgent = self.waiters.iter();
            urgent.find(|(_, waiter)| waiter.is_live(now)).map(|(ticket, _)| *ticket)
        }
    }

    fn is_live(&self, ticket: Ticket, now: Timestamp) -> bool {
        self.waiters.get(&ticket).is_some_and(|waiter| waiter.is_live(now))
    }
}

impl<N> Waiter<N> {
    fn is_live(&self, now: Timestamp) -> bool {
        now.since(self.seen_at) < STALLED_AFTER
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_000_000);

    fn queue(classes: &[u8]) -> (TurnQueue<()>, Vec<Ticket>) {
        let mut queue = TurnQueue::default();
        let tickets = classes.iter().map(|&class| queue.join(class, (), START).0).collect();
        (queue, tickets)
    }

    fn holder(queue: &TurnQueue<()>) -> Option<Ticket> {
        queue.turn.map(|turn| turn.ticket)
    }

    /// Admits the holder of the turn until nobody waits.
    fn drain(queue: &mut TurnQueue<()>) -> Vec<Ticket> {
        core::iter::from_fn(|| {
            let ticket = holder(queue)?;
            queue.leave(ticket, Departure::Admitted, START);
            Some(ticket)
        })
        .collect()
    }

    #[test]
    fn waiters_of_one_class_are_served_in_the_order_of_arrival() {
        let (mut queue, tickets) = queue(&[3; 9]);
        assert_eq!(drain(&mut queue), tickets);
        assert!(queue.is_empty() && queue.by_age.is_empty() && queue.turn.is_none());
    }

    #[test]
    fn one_turn_in_four_goes_to_the_longest_waiter() {
        let (mut queue, tickets) = queue(&[1, 1, 0, 0, 0, 0, 0, 0]);
        let order = [2, 3, 4, 0, 5, 6, 7, 1].map(|place| tickets[place]);
        assert_eq!(drain(&mut queue), order);
    }

    #[test]
    fn an_urgent_arrival_takes_the_turn_unless_a_request_is_in_flight() {
        let (mut queue, tickets) = queue(&[1]);
        assert!(queue.request(tickets[0]));
        let (urgent, called) = queue.join(0, (), START);
        assert!(called.is_none() && queue.has_turn(tickets[0]) && !queue.request(urgent));
        assert_eq!(queue.denied(tickets[0], START), Some(urgent));
        assert!(!queue.request(tickets[0]) && queue.request(urgent));
    }

    #[test]
    fn a_turn_by_age_is_not_taken_by_an_urgent_arrival_and_repeated_if_its_holder_gives_up() {
        let (mut queue, tickets) = queue(&[1, 1, 0, 0, 0]);
        (2..5).for_each(|place| _ = queue.leave(tickets[place], Departure::Admitted, START));
        let (urgent, called) = queue.join(0, (), START);
        assert!(called.is_none() && queue.has_turn(tickets[0]));
        assert_eq!(queue.leave(tickets[0], Departure::GaveUp, START), Some(tickets[1]));
        assert_eq!(queue.leave(tickets[1], Departure::Admitted, START), Some(urgent));
    }

    #[test]
    fn urgent_waiters_that_give_up_have_had_their_turn() {
        let (mut queue, tickets) = queue(&[1, 0, 0, 0, 0]);
        (1..4).for_each(|place| _ = queue.leave(tickets[place], Departure::GaveUp, START));
        assert!(queue.has_turn(tickets[0]));
    }

    #[test]
    fn a_stalled_holder_loses_its_turn_and_keeps_its_position() {
        let (mut queue, tickets) = queue(&[0, 0, 0]);
        assert!(queue.request(tickets[0]));
        let just_before = START + (STALLED_AFTER - Duration::from_nanos(1));
        assert_eq!(queue.see(tickets[2], just_before), None);
        let stalled = START + STALLED_AFTER;
        assert_eq!(queue.see(tickets[2], stalled), Some(tickets[2]), "the second has stalled as well");
        assert_eq!(queue.see(tickets[1], stalled), Some(tickets[1]));
        assert_eq!(queue.see(tickets[0], stalled), Some(tickets[0]));
    }

    #[test]
    fn with_all_stalled_no_waiter_has_the_turn_until_one_is_seen() {
        let (mut queue, tickets) = queue(&[0, 0]);
        let late = START + STALLED_AFTER * 3;
        assert_eq!(queue.leave(tickets[0], Departure::GaveUp, late), None);
        assert_eq!(holder(&queue), None);
        assert_eq!(queue.see(tickets[1], late), Some(tickets[1]));
    }

    #[test]
    fn a_ticket_of_a_removed_waiter_has_no_effect() {
        let (mut queue, tickets) = queue(&[0, 0]);
        queue.leave(tickets[0], Departure::Admitted, START);
        assert_eq!(queue.leave(tickets[0], Departure::Admitted, START), None);
        assert!(!queue.request(tickets[0]) && queue.notify_mut(tickets[0]).is_none());
        assert_eq!((queue.len(), queue.ended), (1, 1));
    }
}

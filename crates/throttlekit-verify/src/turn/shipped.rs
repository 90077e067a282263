//! The production queue, as a subject of the schedules.

use std::collections::BTreeMap;
use std::time::Duration;

use throttlekit_core::turn::{Departure, Jitter, Pause, RetryPace, Ticket, TurnQueue};
use throttlekit_core::{Retry, Timestamp};

use super::{Turns, Who};

/// Longest jitter of a pause.
pub(super) const JITTER: Duration = Duration::from_millis(5);

/// The queue of one key, with the tickets and the pace of all waiters.
#[derive(Debug, Default)]
pub struct Shipped {
    queue: TurnQueue<Who>,
    tickets: BTreeMap<Who, (Ticket, RetryPace)>,
}

impl Shipped {
    fn who(&mut self, called: Option<Ticket>) -> Option<Who> {
        self.queue.notify_mut(called?).copied()
    }

    fn ticket(&self, who: Who) -> Ticket {
        self.tickets[&who].0
    }
}

impl Turns for Shipped {
    fn join(&mut self, who: Who, class: u8, now: Timestamp) -> Option<Who> {
        let (ticket, called) = self.queue.join(class, who, now);
        self.tickets.insert(who, (ticket, RetryPace::default()));
        self.who(called)
    }

    fn see(&mut self, who: Who, now: Timestamp) -> Option<Who> {
        let called = self.queue.see(self.ticket(who), now);
        self.who(called)
    }

    fn request(&mut self, who: Who) -> bool {
        self.queue.request(self.ticket(who))
    }

    fn denied(&mut self, who: Who, now: Timestamp) -> Option<Who> {
        let called = self.queue.denied(self.ticket(who), now);
        self.who(called)
    }

    fn leave(&mut self, who: Who, departure: Departure, now: Timestamp) -> Option<Who> {
        let (ticket, _) = self.tickets.remove(&who)?;
        let called = self.queue.leave(ticket, departure, now);
        self.who(called)
    }

    fn has_turn(&self, who: Who) -> bool {
        self.tickets.get(&who).is_some_and(|(ticket, _)| self.queue.has_turn(*ticket))
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn pause(&mut self, who: Who, retry: Retry, random: u64) -> Option<Duration> {
        let (_, pace) = self.tickets.get_mut(&who)?;
        match pace.pause(retry, false) {
            Pause::Exact(pause) | Pause::Guess(pause) => Some(Jitter::UpTo(JITTER).add(pause, false, random)),
            _ => None,
        }
    }
}

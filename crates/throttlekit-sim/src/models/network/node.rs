//! One node: the production machine, its callers, and its messages in flight.

use std::hash::{DefaultHasher, Hash, Hasher};

use throttlekit_core::lease::{
    Holder, HolderStep, Loan, LocalLease, PlainWord, Reply, Return, ReturnId, Spend,
};
use throttlekit_core::{Cost, Timestamp};

use super::super::seam::Seam;
use super::letters::{Answered, Asked, take};
use super::{Clock, Network};

/// A node at an instant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub(super) clock: Clock,
    holder: Holder,
    /// The content of its local lease, and its expiry.
    local_lease: (Cost, Timestamp),
    /// The request that it waits for, and when it was sent.
    flight: Option<(u64, Timestamp)>,
    /// The cost of each waiting caller.
    waiting: Vec<Cost>,
    asleep: Option<Asleep>,
    pub(super) requests: Vec<Asked>,
    pub(super) replies: Vec<Answered>,
    pub(super) returns: Vec<(ReturnId, Return)>,
}

/// A thread between taking units and reading the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asleep {
    cost: Cost,
    /// The expiry of the units it took.
    until: Timestamp,
    /// The clock reading, only where the clock is read first.
    read: Option<Timestamp>,
}

/// The result of a node's step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) admitted: Cost,
    pub(super) credited_twice: bool,
}

impl Done {
    fn admitted(cost: Cost) -> Self {
        Self { admitted: cost, ..Self::default() }
    }
}

impl Node {
    pub(super) fn new(network: &Network, clock: Clock) -> Self {
        Self {
            clock,
            holder: Holder::new(network.plan()),
            local_lease: (0, Timestamp::EPOCH),
            flight: None,
            waiting: Vec::new(),
            asleep: None,
            requests: Vec::new(),
            replies: Vec::new(),
            returns: Vec::new(),
        }
    }

    /// Restores a local lease. States keep only its content: because it is filled again each time, the tag
    /// that distinguishes fillings carries no history.
    fn open_local_lease(&self) -> LocalLease<PlainWord> {
        let local_lease = LocalLease::new();
        local_lease.fill(self.local_lease.0, self.local_lease.1, false);
        local_lease
    }

    /// Stores the content of the local lease, and sends a request if one is needed. Returns `None` if the
    /// bounds are exceeded.
    fn close_local_lease(
        &mut self,
        network: &Network,
        local_lease: &LocalLease<PlainWord>,
        now: Timestamp,
    ) -> Option<()> {
        let id = self.unused_id();
        if let Some(request) = self.holder.poll_request(local_lease, id, network.batch, now) {
            self.flight = Some((id, now));
            self.requests.push(Asked { request, credited: false });
        }
        let units = local_lease.units();
        self.local_lease = (units, if units > 0 { local_lease.until() } else { Timestamp::EPOCH });
        // The newest request is not a duplicate made by the network.
        let fits = self.requests.len() <= network.room.letters && self.waiting.len() <= network.room.waiters;
        fits.then_some(())
    }

    /// Handles a request of a caller.
    pub(super) fn ask(&mut self, network: &Network, cost: Cost, now: Timestamp) -> Option<Done> {
        let local_lease = self.open_local_lease();
        let admitted = match local_lease.spend(cost, || now) {
            Spend::Spent { .. } => cost,
            Spend::Short | Spend::Lapsed => self.ask_holder(&local_lease, cost, now),
        };
        self.close_local_lease(network, &local_lease, now)?;
        Some(Done::admitted(admitted))
    }

    fn ask_holder(&mut self, local_lease: &LocalLease<PlainWord>, cost: Cost, now: Timestamp) -> Cost {
        match self.holder.handle_ask(local_lease, cost, || now) {
            HolderStep::Spent { .. } => cost,
            HolderStep::Deny(_) => 0,
            HolderStep::Wait => {
                self.waiting.push(cost);
                0
            }
        }
    }

    /// Takes units for a caller whose thread then pauses.
    pub(super) fn sleep(&mut self, network: &Network, cost: Cost, now: Timestamp) -> Option<Done> {
        if self.asleep.is_some() {
            return None;
        }
        let (local_lease, until) = (self.open_local_lease(), self.local_lease.1);
        if network.seam == Seam::ClockReadFirst {
            self.asleep = Some(Asleep { cost, until, read: Some(now) });
            return Some(Done::default());
        }
        if local_lease.spend(cost, || now) == Spend::Short {
            return None;
        }
        self.asleep = Some(Asleep { cost, until, read: None });
        self.close_local_lease(network, &local_lease, now)?;
        Some(Done::default())
    }

    /// Resumes the paused thread: it reads the clock, and the machine decides about its units.
    pub(super) fn wake(&mut self, network: &Network, now: Timestamp) -> Option<Done> {
        let Asleep { cost, until, read } = self.asleep.take()?;
        let local_lease = self.open_local_lease();
        let spent = match read {
            Some(read) => local_lease.spend(cost, || read),
            None => {
                let taken = LocalLease::<PlainWord>::new();
                taken.fill(cost, until, false);
                taken.spend(cost, || now)
            }
        };
        let admitted = match spent {
            Spend::Spent { .. } => cost,
            Spend::Short | Spend::Lapsed => self.ask_holder(&local_lease, cost, now),
        };
        self.close_local_lease(network, &local_lease, now)?;
        Some(Done::admitted(admitted))
    }

    /// Requests units ahead of need if the node holds few enough.
    pub(super) fn run_low(&mut self, network: &Network, now: Timestamp) -> Option<Done> {
        let local_lease = self.open_local_lease();
        if network.low_water.is_none_or(|low| local_lease.left(now) > low) {
            return None;
        }
        self.holder.handle_low(now);
        self.close_local_lease(network, &local_lease, now)?;
        Some(Done::default())
    }

    /// Delivers a reply. Waiting callers retry.
    pub(super) fn arrive(&mut self, network: &Network, id: u64, loan: Loan, now: Timestamp) -> Option<Done> {
        let arrived = |answered: &Answered| answered.safe && (answered.id, answered.loan) == (id, loan);
        let Answered { credited, .. } = take(&mut self.replies, arrived)?;
        let local_lease = self.open_local_lease();
        let sent = self.flight.map_or(now, |(_, sent)| sent);
        let loan = network.seam.loan(loan, sent, now);
        let reply = self.holder.handle_reply(&local_lease, id, loan, now);
        if reply == Reply::Late {
            return Some(Done::default());
        }
        self.flight = None;
        let waiting = std::mem::take(&mut self.waiting);
        if reply == Reply::Credited {
            self.mark_credited(id);
            network.seam.credit_again(&local_lease, loan, waiting.len());
        }
        let admitted = waiting.into_iter().map(|cost| self.ask_holder(&local_lease, cost, now)).sum();
        self.close_local_lease(network, &local_lease, now)?;
        Some(Done { admitted, credited_twice: credited && reply == Reply::Credited })
    }

    /// Fails the request in flight and notifies the waiting callers.
    pub(super) fn give_up(&mut self, network: &Network, now: Timestamp) -> Option<Done> {
        let (id, _) = self.flight.take()?;
        let local_lease = self.open_local_lease();
        self.holder.handle_failure(id);
        self.waiting.clear();
        self.close_local_lease(network, &local_lease, now)?;
        Some(Done::default())
    }

    /// Sends the node's units back to the store.
    pub(super) fn give_back(&mut self, network: &Network, id: ReturnId, now: Timestamp) -> Option<Done> {
        let local_lease = self.open_local_lease();
        let back = self.holder.poll_return(&local_lease, now)?;
        self.returns.push((id, back));
        self.close_local_lease(network, &local_lease, now)?;
        Some(Done::default())
    }

    /// Loses the node's state. Its messages stay in flight, and their numbers are not reused.
    pub(super) fn crash(&mut self, network: &Network) -> Option<Done> {
        let letters = (self.requests.split_off(0), self.replies.split_off(0), self.returns.split_off(0));
        *self = Self::new(network, self.clock);
        (self.requests, self.replies, self.returns) = letters;
        Some(Done::default())
    }

    /// Returns `true` if a caller waits although no request is in flight.
    pub(super) fn waits_for_nothing(&self) -> bool {
        !self.waiting.is_empty() && !self.holder.is_asking()
    }

    pub(super) fn sleeps(&self) -> bool {
        self.asleep.is_some()
    }

    pub(super) fn is_asking(&self) -> bool {
        self.flight.is_some()
    }

    /// Returns `true` if a crash would lose anything.
    pub(super) fn is_used(&self) -> bool {
        self.local_lease.0 > 0 || self.flight.is_some() || self.asleep.is_some()
    }

    /// Returns a hash of the whole node.
    pub(super) fn mark(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

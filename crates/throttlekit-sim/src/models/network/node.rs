//! One node: the production machine, its callers, and its letters under way.

use std::hash::{DefaultHasher, Hash, Hasher};

use throttlekit_core::lease::{
    Holder, Loan, PlainWord, Purse, Reply, Request, Return, ReturnId, Spend, Turn,
};
use throttlekit_core::{Cost, Timestamp};

use super::super::seam::Seam;
use super::{Clock, Network};
use crate::operation::Message;

/// A node at an instant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub(super) clock: Clock,
    holder: Holder,
    /// What is in its purse, and when that dies.
    purse: (Cost, Timestamp),
    /// The request that it waits for, and when it was sent.
    flight: Option<(u64, Timestamp)>,
    /// What each caller that waits would cost.
    waiting: Vec<Cost>,
    asleep: Option<Asleep>,
    requests: Vec<Asked>,
    replies: Vec<Answered>,
    returns: Vec<(ReturnId, Return)>,
}

/// A thread between taking units out and reading the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asleep {
    cost: Cost,
    /// When what it took dies.
    until: Timestamp,
    /// Only where the clock is read first: what it showed.
    read: Option<Timestamp>,
}

/// A request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asked {
    request: Request,
    /// A reply to it was credited.
    credited: bool,
}

/// A reply under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Answered {
    id: u64,
    loan: Loan,
    /// This reply, or another to the same request, was credited.
    credited: bool,
    /// It may leave the store.
    safe: bool,
}

/// What a step of a node did.
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
            purse: (0, Timestamp::EPOCH),
            flight: None,
            waiting: Vec::new(),
            asleep: None,
            requests: Vec::new(),
            replies: Vec::new(),
            returns: Vec::new(),
        }
    }

    /// A purse as it was. States keep what is in it: filling it anew each time, the tag that tells one filling from
    /// another says nothing about the past.
    fn open_purse(&self) -> Purse<PlainWord> {
        let purse = Purse::new();
        purse.fill(self.purse.0, self.purse.1, false);
        purse
    }

    /// Keeps what is in the purse, and sends a request if one is needed. Nothing, if there is no room for it.
    fn close_purse(&mut self, network: &Network, purse: &Purse<PlainWord>, now: Timestamp) -> Option<()> {
        let id = self.unused_id();
        if let Some(request) = self.holder.poll_request(purse, id, network.batch, now) {
            self.flight = Some((id, now));
            self.requests.push(Asked { request, credited: false });
        }
        let units = purse.units();
        self.purse = (units, if units > 0 { purse.until() } else { Timestamp::EPOCH });
        // The newest request is not one that the network made two of.
        let fits = self.requests.len() <= network.room.letters && self.waiting.len() <= network.room.waiters;
        fits.then_some(())
    }

    /// The least number that no letter under way bears: to the machine, as good as one never used.
    fn unused_id(&self) -> u64 {
        let requests = self.requests.iter().map(|asked| asked.request.id);
        let used: Vec<u64> = requests.chain(self.replies.iter().map(|answered| answered.id)).collect();
        (0..).find(|id| !used.contains(id)).expect("letters are few")
    }

    /// A caller asks.
    pub(super) fn ask(&mut self, network: &Network, cost: Cost, now: Timestamp) -> Option<Done> {
        let purse = self.open_purse();
        let admitted = match purse.spend(cost, || now) {
            Spend::Spent { .. } => cost,
            Spend::Short | Spend::Lapsed => self.ask_holder(&purse, cost, now),
        };
        self.close_purse(network, &purse, now)?;
        Some(Done::admitted(admitted))
    }

    fn ask_holder(&mut self, purse: &Purse<PlainWord>, cost: Cost, now: Timestamp) -> Cost {
        match self.holder.handle_ask(purse, cost, || now) {
            Turn::Spent { .. } => cost,
            Turn::Deny(_) => 0,
            Turn::Wait => {
                self.waiting.push(cost);
                0
            }
        }
    }

    /// A caller takes units out, and its thread falls asleep.
    pub(super) fn sleep(&mut self, network: &Network, cost: Cost, now: Timestamp) -> Option<Done> {
        if self.asleep.is_some() {
            return None;
        }
        let (purse, until) = (self.open_purse(), self.purse.1);
        if network.seam == Seam::ClockReadFirst {
            self.asleep = Some(Asleep { cost, until, read: Some(now) });
            return Some(Done::default());
        }
        if purse.spend(cost, || now) == Spend::Short {
            return None;
        }
        self.asleep = Some(Asleep { cost, until, read: None });
        self.close_purse(network, &purse, now)?;
        Some(Done::default())
    }

    /// The thread that slept reads the clock, and the machine decides over what it took out.
    pub(super) fn wake(&mut self, network: &Network, now: Timestamp) -> Option<Done> {
        let Asleep { cost, until, read } = self.asleep.take()?;
        let purse = self.open_purse();
        let spent = match read {
            Some(read) => purse.spend(cost, || read),
            None => {
                let taken = Purse::<PlainWord>::new();
                taken.fill(cost, until, false);
                taken.spend(cost, || now)
            }
        };
        let admitted = match spent {
            Spend::Spent { .. } => cost,
            Spend::Short | Spend::Lapsed => self.ask_holder(&purse, cost, now),
        };
        self.close_purse(network, &purse, now)?;
        Some(Done::admitted(admitted))
    }

    /// It holds so little that it asks ahead of need.
    pub(super) fn run_low(&mut self, network: &Network, now: Timestamp) -> Option<Done> {
        let purse = self.open_purse();
        if network.low_water.is_none_or(|low| purse.left(now) > low) {
            return None;
        }
        self.holder.handle_low(now);
        self.close_purse(network, &purse, now)?;
        Some(Done::default())
    }

    /// What is under way from it and to it.
    pub(super) fn messages(&self, node: usize) -> impl Iterator<Item = Message> {
        let requests =
            self.requests.iter().map(move |asked| Message::Request { node, request: asked.request });
        let replies = self.replies.iter().filter(|answered| answered.safe);
        let replies =
            replies.map(move |answered| Message::Reply { node, id: answered.id, loan: answered.loan });
        let returns =
            self.returns.iter().map(move |(id, back)| Message::Return { node, id: *id, back: *back });
        requests.chain(replies).chain(returns)
    }

    /// A message is taken off the network.
    pub(super) fn remove(&mut self, message: Message) -> Option<Done> {
        match message {
            Message::Request { request, .. } => {
                take(&mut self.requests, |asked| asked.request == request).map(drop)
            }
            Message::Reply { id, loan, .. } => {
                take(&mut self.replies, |answered| (answered.id, answered.loan) == (id, loan)).map(drop)
            }
            Message::Return { id, .. } => take(&mut self.returns, |(sent, _)| *sent == id).map(drop),
        }
        .map(|()| Done::default())
    }

    /// The network makes two of a message.
    pub(super) fn double(&mut self, network: &Network, message: Message) -> Option<Done> {
        match message {
            Message::Request { request, .. } => double(&mut self.requests, |asked| asked.request == request),
            Message::Reply { id, loan, .. } => {
                double(&mut self.replies, |answered| (answered.id, answered.loan) == (id, loan));
            }
            Message::Return { id, .. } => double(&mut self.returns, |(sent, _)| *sent == id),
        }
        self.has_room(network).then(Done::default)
    }

    /// Whether no more letters are under way than there is room for; one more of each kind, where the network made two.
    fn has_room(&self, network: &Network) -> bool {
        let letters_max = network.room.letters + usize::from(network.room.faults > 0);
        self.requests.len() <= letters_max && self.replies.len() <= letters_max
    }

    /// The store's reply to a request sets out.
    pub(super) fn put_reply(
        &mut self,
        network: &Network,
        request: Request,
        loan: Loan,
        safe: bool,
    ) -> Option<()> {
        let Asked { credited, .. } = take(&mut self.requests, |asked| asked.request == request)?;
        self.replies.push(Answered { id: request.id, loan, credited, safe });
        self.has_room(network).then_some(())
    }

    /// A reply arrives. Whoever waits asks again.
    pub(super) fn arrive(&mut self, network: &Network, id: u64, loan: Loan, now: Timestamp) -> Option<Done> {
        let arrived = |answered: &Answered| answered.safe && (answered.id, answered.loan) == (id, loan);
        let Answered { credited, .. } = take(&mut self.replies, arrived)?;
        let purse = self.open_purse();
        let sent = self.flight.map_or(now, |(_, sent)| sent);
        let loan = network.seam.loan(loan, sent, now);
        let reply = self.holder.handle_reply(&purse, id, loan, now);
        if reply == Reply::Late {
            return Some(Done::default());
        }
        self.flight = None;
        let waiting = std::mem::take(&mut self.waiting);
        if reply == Reply::Credited {
            self.mark_credited(id);
            network.seam.credit_again(&purse, loan, waiting.len());
        }
        let admitted = waiting.into_iter().map(|cost| self.ask_holder(&purse, cost, now)).sum();
        self.close_purse(network, &purse, now)?;
        Some(Done { admitted, credited_twice: credited && reply == Reply::Credited })
    }

    fn mark_credited(&mut self, id: u64) {
        self.requests
            .iter_mut()
            .filter(|asked| asked.request.id == id)
            .for_each(|asked| asked.credited = true);
        self.replies
            .iter_mut()
            .filter(|answered| answered.id == id)
            .for_each(|answered| answered.credited = true);
    }

    /// It stops waiting for its request, and whoever waits is told so.
    pub(super) fn give_up(&mut self, network: &Network, now: Timestamp) -> Option<Done> {
        let (id, _) = self.flight.take()?;
        let purse = self.open_purse();
        self.holder.handle_failure(id);
        self.waiting.clear();
        self.close_purse(network, &purse, now)?;
        Some(Done::default())
    }

    /// It sends back what it holds.
    pub(super) fn give_back(&mut self, network: &Network, id: ReturnId, now: Timestamp) -> Option<Done> {
        let purse = self.open_purse();
        let back = self.holder.poll_return(&purse, now)?;
        self.returns.push((id, back));
        self.close_purse(network, &purse, now)?;
        Some(Done::default())
    }

    /// It loses all it knows. Its letters are still under way, and numbers under way are not used again.
    pub(super) fn crash(&mut self, network: &Network) -> Option<Done> {
        let letters = (self.requests.split_off(0), self.replies.split_off(0), self.returns.split_off(0));
        *self = Self::new(network, self.clock);
        (self.requests, self.replies, self.returns) = letters;
        Some(Done::default())
    }

    /// Replies that the store keeps until its copy knows of them: they leave, or are lost with the store.
    pub(super) fn release_replies(&mut self, lost: bool) {
        self.replies.retain(|answered| answered.safe || !lost);
        self.replies.iter_mut().for_each(|answered| answered.safe = true);
    }

    /// Whether a caller waits though no request is under way.
    pub(super) fn waits_for_nothing(&self) -> bool {
        !self.waiting.is_empty() && !self.holder.is_asking()
    }

    pub(super) fn sleeps(&self) -> bool {
        self.asleep.is_some()
    }

    pub(super) fn is_asking(&self) -> bool {
        self.flight.is_some()
    }

    /// Whether a crash would lose anything.
    pub(super) fn is_used(&self) -> bool {
        self.purse.0 > 0 || self.flight.is_some() || self.asleep.is_some()
    }

    pub(super) fn has_unsafe_replies(&self) -> bool {
        self.replies.iter().any(|answered| !answered.safe)
    }

    /// A hash of all it holds.
    pub(super) fn mark(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// Takes out the first that fits.
fn take<T>(letters: &mut Vec<T>, fits: impl Fn(&T) -> bool) -> Option<T> {
    letters.iter().position(fits).map(|place| letters.remove(place))
}

/// Puts another one beside the first that fits.
fn double<T: Copy>(letters: &mut Vec<T>, fits: impl Fn(&T) -> bool) {
    if let Some(place) = letters.iter().position(fits) {
        letters.insert(place, letters[place]);
    }
}

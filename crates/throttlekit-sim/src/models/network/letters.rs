//! Messages in flight between a node and the store.

use throttlekit_core::lease::{HolderRequest, Loan};

use super::node::Done;
use super::{Network, Node};
use crate::operation::Message;

/// A request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    pub(super) request: HolderRequest,
    /// True if a reply to it was credited.
    pub(super) credited: bool,
}

/// A reply in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Answered {
    pub(super) id: u64,
    pub(super) loan: Loan,
    /// True if this reply, or another to the same request, was credited.
    pub(super) credited: bool,
    /// True if it may leave the store.
    pub(super) safe: bool,
}

impl Node {
    /// Returns the smallest number that no message in flight carries. To the machine it is equivalent to an
    /// unused one.
    pub(super) fn unused_id(&self) -> u64 {
        let requests = self.requests.iter().map(|asked| asked.request.id);
        let used: Vec<u64> = requests.chain(self.replies.iter().map(|answered| answered.id)).collect();
        (0..).find(|id| !used.contains(id)).expect("letters are few")
    }

    /// Returns the messages in flight from and to the node.
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

    /// Removes a message from the network.
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

    /// Duplicates a message.
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

    /// Returns `true` if the messages in flight are within the limit; one more of each kind is allowed for a
    /// duplicate.
    fn has_room(&self, network: &Network) -> bool {
        let letters_max = network.room.letters + usize::from(network.room.faults > 0);
        self.requests.len() <= letters_max && self.replies.len() <= letters_max
    }

    /// Sends the store's reply to a request.
    pub(super) fn put_reply(
        &mut self,
        network: &Network,
        request: HolderRequest,
        loan: Loan,
        safe: bool,
    ) -> Option<()> {
        let Asked { credited, .. } = take(&mut self.requests, |asked| asked.request == request)?;
        self.replies.push(Answered { id: request.id, loan, credited, safe });
        self.has_room(network).then_some(())
    }

    pub(super) fn mark_credited(&mut self, id: u64) {
        self.requests
            .iter_mut()
            .filter(|asked| asked.request.id == id)
            .for_each(|asked| asked.credited = true);
        self.replies
            .iter_mut()
            .filter(|answered| answered.id == id)
            .for_each(|answered| answered.credited = true);
    }

    /// Releases the replies that the store keeps until its copy has their writes, or drops them if the store
    /// is lost.
    pub(super) fn release_replies(&mut self, lost: bool) {
        self.replies.retain(|answered| answered.safe || !lost);
        self.replies.iter_mut().for_each(|answered| answered.safe = true);
    }

    pub(super) fn has_unsafe_replies(&self) -> bool {
        self.replies.iter().any(|answered| !answered.safe)
    }
}

/// Removes the first match.
pub(super) fn take<T>(letters: &mut Vec<T>, fits: impl Fn(&T) -> bool) -> Option<T> {
    letters.iter().position(fits).map(|place| letters.remove(place))
}

/// Inserts a copy beside the first match.
fn double<T: Copy>(letters: &mut Vec<T>, fits: impl Fn(&T) -> bool) {
    if let Some(place) = letters.iter().position(fits) {
        letters.insert(place, letters[place]);
    }
}

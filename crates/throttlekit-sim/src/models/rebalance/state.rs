//! The state of a cluster at an instant, in as few bytes as determine its future.

use super::{Fleet, Step};

pub(super) const HOSTS_MAX: usize = 3;
pub(super) const MEMBERS_MAX: usize = 5;
pub(super) const LETTERS_MAX: usize = 4;
/// The membership record has received no heartbeat yet.
pub(super) const UNHEARD: u8 = u8::MAX;

/// A cluster at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RebalanceState {
    /// The running processes, sorted by identity.
    pub(super) hosts: [Host; HOSTS_MAX],
    pub(super) membership: Kept,
    /// Messages in flight, sorted; free slots come first.
    pub(super) letters: [Option<Letter>; LETTERS_MAX],
    pub(super) left: Left,
    /// True if the membership record was lost before.
    pub(super) is_new_membership: bool,
    /// The node that has acknowledged less than it had; zero if there is none.
    pub(super) yielded: u8,
    /// True if another node's share rose after that.
    pub(super) handed: bool,
}

/// The remaining bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Left {
    pub(super) reports: u8,
    pub(super) ticks: u8,
    pub(super) deaths: u8,
    pub(super) leaves: u8,
    pub(super) losses: u8,
}

/// A process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Host {
    /// Its identity; zero if the slot is free.
    pub(super) id: u8,
    pub(super) leaving: bool,
    /// Reports made.
    pub(super) heartbeat: u8,
    /// The number of ticks for which it has waited for a response to its last report.
    pub(super) waiting: Option<u8>,
    pub(super) grant: Option<Held>,
    pub(super) in_flight: u8,
    /// The number in flight at the previous report. Used only by torn reports.
    pub(super) was_in_flight: u8,
}

/// The grant of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) number: u8,
    pub(super) share: u8,
    /// Its remaining ticks; negative if it has expired and work may run on.
    pub(super) left: i8,
}

/// The membership record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kept {
    pub(super) number: u8,
    /// The number of ticks during which no share rises, or [`UNHEARD`].
    pub(super) quiet: u8,
    /// Sorted by identity; free slots come last.
    pub(super) members: [Option<Known>; MEMBERS_MAX],
}

/// The record of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Known {
    pub(super) id: u8,
    pub(super) heartbeat: u8,
    pub(super) number: u8,
    pub(super) share: u8,
    pub(super) high: u8,
    pub(super) in_flight: u8,
    pub(super) wants: u8,
    pub(super) leaving: bool,
    /// The number of ticks since its last heartbeat.
    pub(super) age: u8,
}

/// A message in flight between a node and the rebalancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Letter {
    pub(super) id: u8,
    /// The report in this message, or the one it answers.
    pub(super) heartbeat: u8,
    /// The number of ticks since that report was sent.
    pub(super) age: u8,
    pub(super) says: Says,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Says {
    Report { applied: u8, holds: u8, in_flight: u8, wants: u8, leaving: bool },
    Grant { number: u8, share: u8 },
}

impl RebalanceState {
    /// Creates the state in which no node has reported and the quiet period of the membership record is over.
    pub(super) fn new(fleet: &Fleet) -> Self {
        let room = fleet.room;
        assert!(fleet.nodes <= HOSTS_MAX && room.letters <= LETTERS_MAX, "no room for {fleet:?}");
        let id = |at| if at < fleet.nodes { at as u8 + 1 } else { 0 };
        Self {
            hosts: core::array::from_fn(|at| Host { id: id(at), ..Host::default() }),
            membership: Kept { number: 0, quiet: 0, members: [None; MEMBERS_MAX] },
            letters: [None; LETTERS_MAX],
            left: Left {
                reports: room.reports,
                ticks: room.ticks,
                deaths: room.deaths,
                leaves: room.leaves,
                losses: room.losses,
            },
            is_new_membership: false,
            yielded: 0,
            handed: false,
        }
    }

    /// Creates the state in which every node has reported often enough to have its share, and nothing is in
    /// flight.
    pub(super) fn at_work(fleet: &Fleet) -> Self {
        let fresh = Self::new(fleet);
        let many = Left { reports: u8::MAX, ..fresh.left };
        let rounds = (0..3).flat_map(|_| 0..fleet.nodes);
        let settled = rounds.fold(Self { left: many, ..fresh }, |state, host| {
            // The message in flight is last.
            let arrive = Step::Arrive(LETTERS_MAX - 1);
            let steps = [Step::Report(host, 0), arrive, arrive];
            steps.into_iter().fold(state, |state, step| state.after(fleet, step).expect("there is room"))
        });
        Self { left: fresh.left, yielded: 0, handed: false, ..settled }
    }

    pub(super) fn in_flight(&self) -> u8 {
        self.hosts.iter().map(|host| host.in_flight).sum()
    }

    /// Returns the number of nodes with requests in flight.
    pub(super) fn busy(&self) -> usize {
        self.hosts.iter().filter(|host| host.in_flight > 0).count()
    }

    pub(super) fn someone_drains(&self, fleet: &Fleet) -> bool {
        self.hosts.iter().any(|host| u32::from(host.in_flight) > fleet.share(host))
    }

    /// Returns `true` if a share went from one node to another.
    pub(super) fn handed(&self) -> bool {
        self.handed
    }

    pub(super) fn is_new_membership(&self) -> bool {
        self.is_new_membership
    }

    pub(super) fn someone_is_fenced(&self) -> bool {
        self.hosts.iter().any(|host| host.grant.is_some_and(|held| held.left <= 0))
    }
}

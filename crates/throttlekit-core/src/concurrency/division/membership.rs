//! The membership record of a shared concurrency limit, and its encoding.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use super::NodeId;
use crate::Timestamp;

/// Largest number of nodes in one record.
pub const NODES_MAX: usize = 1_024;

/// Membership record: the state of one shared concurrency limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Membership {
    /// The latest instant it was read. Time only moves forward here.
    pub(super) last: Timestamp,
    /// Number of grants made, which is the number of the last.
    pub(super) number: u64,
    /// No share may rise before this, since some may be held that are not in this record. `None`: no reports yet.
    pub(super) quiet_until: Option<Timestamp>,
    pub(super) members: BTreeMap<NodeId, NodeRecord>,
}

/// State of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeRecord {
    /// Number of the last report received.
    pub heartbeat: u64,
    /// Number of the last grant made.
    pub number: u64,
    /// Its share.
    pub share: u32,
    /// The greatest share it may be enforcing: of the grant it acknowledged, and of all after it.
    pub high: u32,
    /// Calls in flight at its last report.
    pub in_flight: u32,
    /// Ceiling it infers; zero if none yet.
    pub limit: u32,
    /// Calls it would have in flight if none were denied.
    pub wants: u32,
    /// It admits no more work.
    pub leaving: bool,
    /// Instant of its last report.
    pub seen: Timestamp,
    /// Instant until which it is remembered: its grants and its work may last that long.
    pub until: Timestamp,
}

impl NodeRecord {
    /// Returns the part of the ceiling that is reserved for it.
    pub fn reserve(&self) -> u32 {
        self.high.max(self.in_flight)
    }
}

impl Membership {
    /// Iterates over all members, by identity.
    pub fn members(&self) -> impl Iterator<Item = (NodeId, &NodeRecord)> {
        self.members.iter().map(|(&id, member)| (id, member))
    }

    /// Returns the part of the ceiling that is reserved for all of them.
    pub fn reserved(&self) -> u64 {
        self.members.values().map(|member| u64::from(member.reserve())).sum()
    }

    /// Returns the instant before which no share may rise.
    pub fn quiet_until(&self) -> Option<Timestamp> {
        self.quiet_until
    }
}

/// Error: these bytes are not a valid membership record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAMembership;

impl fmt::Display for NotAMembership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a membership record: use a separate key prefix for membership records")
    }
}

impl core::error::Error for NotAMembership {}

/// The first bytes of a record, with the version of what follows.
const MARK: [u8; 4] = *b"tkr\x01";
const HEAD_BYTES: usize = MARK.len() + 3 * 8;
const MEMBER_BYTES: usize = 16 + LONGS * 8 + 5 * 4 + 1;
/// Numbers of eight bytes of a member.
const LONGS: usize = 4;

impl Membership {
    /// Encodes the record for a store.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.members.len() * MEMBER_BYTES);
        bytes.extend(MARK);
        let quiet = self.quiet_until.map_or(u64::MAX, Timestamp::as_nanos);
        bytes.extend([self.last.as_nanos(), self.number, quiet].map(u64::to_le_bytes).as_flattened());
        for (id, m) in &self.members {
            bytes.extend(id.0.to_le_bytes());
            let long = [m.heartbeat, m.number, m.seen.as_nanos(), m.until.as_nanos()];
            bytes.extend(long.map(u64::to_le_bytes).as_flattened());
            let small = [m.share, m.high, m.in_flight, m.limit, m.wants];
            bytes.extend(small.map(u32::to_le_bytes).as_flattened());
            bytes.push(u8::from(m.leaving));
        }
        bytes
    }

    /// Decodes a record from a store; an empty one from no bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotAMembership> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let rest = bytes.strip_prefix(&MARK).ok_or(NotAMembership)?;
        let (head, rest) = rest.split_at_checked(HEAD_BYTES - MARK.len()).ok_or(NotAMembership)?;
        let [last, number, quiet] = numbers(head);
        let mut membership = Self { last: Timestamp::from_nanos(last), number, ..Self::default() };
        membership.quiet_until = (quiet != u64::MAX).then(|| Timestamp::from_nanos(quiet));
        let members = rest.chunks_exact(MEMBER_BYTES);
        if !members.remainder().is_empty() || members.len() > NODES_MAX {
            return Err(NotAMembership);
        }
        members.for_each(|bytes| membership.enter(bytes));
        if membership.members.len() * MEMBER_BYTES == rest.len() {
            Ok(membership)
        } else {
            Err(NotAMembership)
        }
    }

    fn enter(&mut self, bytes: &[u8]) {
        let (id, rest) = bytes.split_at(16);
        let (longs, rest) = rest.split_at(LONGS * 8);
        let (shorts, leaving) = rest.split_at(5 * 4);
        let [low, high] = numbers(id);
        let [heartbeat, number, seen, until] = numbers(longs);
        let mut four = shorts.chunks_exact(4).map(|n| u32::from_le_bytes([n[0], n[1], n[2], n[3]]));
        let [share, most, in_flight, limit, wants] = [(); 5].map(|()| four.next().unwrap_or_default());
        let [seen, until] = [seen, until].map(Timestamp::from_nanos);
        let leaving = leaving == [1];
        let member = NodeRecord {
            heartbeat,
            number,
            share,
            high: most,
            in_flight,
            limit,
            wants,
            leaving,
            seen,
            until,
        };
        self.members.insert(NodeId(u128::from(high) << 64 | u128::from(low)), member);
    }
}

fn numbers<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut eight = bytes.chunks_exact(8).map(|n| {
        let mut number = [0; 8];
        number.copy_from_slice(n);
        u64::from_le_bytes(number)
    });
    [(); N].map(|()| eight.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership() -> Membership {
        let member = |n: u32| NodeRecord {
            heartbeat: 7,
            number: 3,
            share: n,
            high: n + 1,
            in_flight: n + 2,
            limit: 40,
            wants: 9,
            leaving: n % 2 == 1,
            seen: Timestamp::from_millis(5),
            until: Timestamp::from_millis(8),
        };
        let members = [(NodeId(1 << 100), member(4)), (NodeId(2), member(5))].into();
        Membership {
            last: Timestamp::from_millis(6),
            number: 3,
            quiet_until: Some(Timestamp::from_millis(9)),
            members,
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for membership in [Membership::default(), membership()] {
            assert_eq!(Membership::from_bytes(&membership.to_bytes()), Ok(membership));
        }
        assert_eq!(Membership::from_bytes(&[]), Ok(Membership::default()));
    }

    #[test]
    fn malformed_membership_records_are_rejected() {
        let good = membership().to_bytes();
        assert_eq!(Membership::from_bytes(b"hello"), Err(NotAMembership));
        assert_eq!(Membership::from_bytes(&good[..good.len() - 1]), Err(NotAMembership));
        assert_eq!(Membership::from_bytes(&good[..10]), Err(NotAMembership));
        let twice = [&good[..], &good[good.len() - MEMBER_BYTES..]].concat();
        assert_eq!(Membership::from_bytes(&twice), Err(NotAMembership), "one node twice");
    }
}

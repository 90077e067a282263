//! An event in the queue: no borrow, no allocation.

use throttlekit::admit::LimitName;
use throttlekit::hash::{KeyHash, SecretHash};
use throttlekit::observe::Event;
use throttlekit::{Axis, Decision, Guarantee};
use throttlekit_core::overload::SpaceSaving;

use crate::counts::{Counts, PolicyAt};

/// Number of bytes of a key that subscribers and top keys receive.
pub const KEY_BYTES: usize = SpaceSaving::KEY_BYTES - POLICY_BYTES;
const POLICY_BYTES: usize = size_of::<PolicyAt>();

/// Number of bytes of a longer key that distinguish it from others. This bounds the time per decision.
const HASHED_BYTES_MAX: usize = 1_024;

/// The stored part of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedEvent {
    policy: PolicyAt,
    /// The policy's index, then the stored part of the key: what top keys count by.
    name: [u8; SpaceSaving::KEY_BYTES],
    name_len: u8,
    /// Hash of the part of a longer key that is not stored.
    rest: u64,
    cost: u64,
    decision: Decision,
    denied_by: Option<Axis>,
    limit_name: Option<LimitName>,
    guarantee: Guarantee,
}

const _: () = assert!(SpaceSaving::KEY_BYTES <= u8::MAX as usize);

impl QueuedEvent {
    pub(crate) fn of(event: &Event<'_>, policy: PolicyAt, hash: &SecretHash) -> Self {
        let kept = &event.key[..event.key.len().min(KEY_BYTES)];
        let name_len = POLICY_BYTES + kept.len();
        let mut name = [0; SpaceSaving::KEY_BYTES];
        name[..POLICY_BYTES].copy_from_slice(&policy.to_le_bytes());
        name[POLICY_BYTES..name_len].copy_from_slice(kept);
        Self {
            policy,
            name,
            name_len: name_len as u8,
            rest: rest_of(event.key, hash),
            cost: event.cost,
            decision: event.decision,
            denied_by: event.denied_by,
            limit_name: event.limit_name,
            guarantee: event.guarantee,
        }
    }

    /// Returns the event, with the stored part of its key.
    pub(crate) fn event<'a>(&'a self, counts: &'a Counts) -> Event<'a> {
        Event {
            policy: counts.name_of(self.policy),
            key: &self.name()[POLICY_BYTES..],
            cost: self.cost,
            decision: self.decision,
            denied_by: self.denied_by,
            limit_name: self.limit_name,
            guarantee: self.guarantee,
        }
    }

    /// Returns policy and key as one name, for top keys.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name[..usize::from(self.name_len)]
    }

    /// Returns its hash, which also distinguishes longer keys.
    pub(crate) fn hash(&self, hash: &SecretHash) -> u64 {
        hash.fingerprint(self.name()) ^ self.rest
    }

    pub(crate) fn allowed(&self) -> bool {
        self.decision.allowed
    }
}

/// Splits a name into policy and key.
pub(crate) fn parts_of(name: &[u8]) -> (PolicyAt, &[u8]) {
    match name.split_first_chunk() {
        Some((policy, key)) => (PolicyAt::from_le_bytes(*policy), key),
        None => (PolicyAt::MAX, name),
    }
}

fn rest_of(key: &[u8], hash: &SecretHash) -> u64 {
    if key.len() <= KEY_BYTES {
        return 0;
    }
    // Its length too, as nothing else shows the part beyond the hashed bytes.
    hash.fingerprint(&key[..key.len().min(HASHED_BYTES_MAX)])
        ^ (key.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_events::event;

    #[test]
    fn an_event_is_decoded_unchanged_except_for_the_end_of_a_long_key() {
        let (counts, hash) = (Counts::new(4), SecretHash::random());
        let back = |event: &Event<'_>| {
            let note = QueuedEvent::of(event, counts.count(event), &hash);
            let back = note.event(&counts);
            assert_eq!(Event { key: back.key, ..*event }, back);
            back.key.to_vec()
        };
        let long = [7; KEY_BYTES + 1];
        assert_eq!(back(&Event { key: &long[1..], ..event() }), &long[1..]);
        assert_eq!(back(&Event { key: &long, ..crate::test_events::denied() }), &long[1..]);
        assert_eq!(back(&Event { key: b"", ..event() }), b"");
    }

    #[test]
    fn keys_of_up_to_1024_bytes_are_distinct_and_longer_ones_by_their_length() {
        let hash = SecretHash::random();
        let of = |key: &[u8]| QueuedEvent::of(&Event { key, ..event() }, 0, &hash).hash(&hash);
        let mut long = vec![1; HASHED_BYTES_MAX];
        let before = of(&long);
        long[HASHED_BYTES_MAX - 1] = 2;
        assert_ne!(before, of(&long));
        long.push(3);
        let beyond = of(&long);
        long[HASHED_BYTES_MAX] = 4;
        assert_eq!(beyond, of(&long));
        long.push(4);
        assert_ne!(beyond, of(&long));
    }
}

//! Names and words of the fence: `lua/fence.lua` and `docs/decisions/0011-fence.md`.

use std::time::Duration;

use throttlekit::store::StoreError;

use crate::slot::{SLOTS, slot_of};

// A `%` in a caller's part of a key is followed by two digits of base 16, so no key of a caller looks like these.
const SEAL: &str = "%id";
const WITNESS: &str = "tk:{%since";
/// How a script begins its refusal, where a key would stand that holds something foreign.
const UNTIL: &[u8] = b"%until ";

/// What a fenced call is told.
pub(crate) struct Fence<'a> {
    /// Where the server keeps since when it can vouch for itself.
    pub(crate) witness: &'a str,
    pub(crate) isolation_micros: u64,
}

/// The fence of one store.
pub(crate) struct Fences {
    /// One for each slot of a cluster, or one.
    witnesses: Vec<Box<str>>,
    isolation_micros: u64,
}

impl Fences {
    pub(crate) fn new(isolation: Duration, by_slot: bool) -> Self {
        let witnesses = if by_slot { witness_of_each_slot() } else { vec![format!("{WITNESS}}}").into()] };
        Self { witnesses, isolation_micros: u64::try_from(isolation.as_micros()).unwrap_or(u64::MAX) }
    }

    pub(crate) fn at(&self, slot: u16) -> Fence<'_> {
        let witness = &self.witnesses[usize::from(slot) % self.witnesses.len()];
        Fence { witness, isolation_micros: self.isolation_micros }
    }
}

/// Where it is kept under which id a state was written.
pub(crate) fn seal_of(key: &str) -> String {
    format!("{key}{SEAL}")
}

/// What is meant by what a script says in place of a foreign key.
///
/// It is an outage like others: nothing was decided, time heals it, and the policy stands in. It concerns one key, so
/// no breaker hears of it.
pub(crate) fn refusal(said: &[u8]) -> Option<StoreError> {
    let micros: u64 = str::from_utf8(said.strip_prefix(UNTIL)?).ok()?.parse().ok()?;
    let (seconds, millis) = (micros / 1_000_000, micros % 1_000_000 / 1_000);
    Some(StoreError::unavailable(format_args!(
        "its server began anew or took over, and charges of this key may be lost: fenced until {seconds}.{millis:03} s \
         of its clock at the latest"
    )))
}

/// For each slot the first of `tk:{%since0}`, `tk:{%since1}`, … that lies in it.
fn witness_of_each_slot() -> Vec<Box<str>> {
    let mut found: Vec<Option<Box<str>>> = vec![None; SLOTS.into()];
    let (mut missing, mut number) = (found.len(), 0_u32);
    while missing > 0 {
        let name = format!("{WITNESS}{number}}}");
        let place = &mut found[usize::from(slot_of(&name))];
        if place.is_none() {
            *place = Some(name.into());
            missing -= 1;
        }
        number += 1;
    }
    found.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seals_and_witnesses_lie_where_their_keys_do() {
        let key = "tk:{api/acme}g:user/alice";
        assert_eq!(slot_of(&seal_of(key)), slot_of(key));
        let fences = Fences::new(Duration::from_secs(1), true);
        assert!((0..SLOTS).all(|slot| slot_of(fences.at(slot).witness) == slot));
        assert_eq!(Fences::new(Duration::from_secs(1), false).at(7).witness, "tk:{%since}");
    }

    #[test]
    fn a_refusal_says_until_when_and_a_foreign_key_is_none() {
        let refused = refusal(b"%until 1700000000123456").unwrap();
        assert!(refused.is_outage() && refused.to_string().contains("1700000000.123 s"), "{refused}");
        assert_eq!(refusal(b"tk:{api/acme}g:user/alice"), None);
    }
}

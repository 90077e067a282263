//! The limits of one scenario under the names that a store receives.

use throttlekit::store::{Charge, Charges, KeySpace};
use throttlekit_core::Cost;
use throttlekit_core::rate::Need;
use throttlekit_core::rate::shared::ScriptEncoding;

use super::StoreScenario;
use super::scenario::StoreRequest;

/// The prefix that a [`throttlekit::SharedLimiter`] adds to every key.
const PREFIX: &str = "tk";
/// Keys as callers choose them: plain, full of characters that are special to a store, and very long.
pub(super) const KEYS: [&[u8]; super::scenario::KEYS as usize] =
    [b"alice", b"{b}:/%00\0\xff ", &[b'c'; 2 * throttlekit::store::KEY_PART_MAX]];
pub(super) const LIMIT_NAMES: [&str; 16] =
    ["user", "b", "c/d", "{e}", "f:", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", ""];

/// A scenario's limits in their script encoding.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) name: String,
    pub(super) need: Need,
    pub(super) forms: Vec<ScriptEncoding>,
    pub(super) home: Option<usize>,
    spaces: Vec<KeySpace>,
}

/// One request with the names of its keys.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) keys: Vec<u8>,
    pub(super) names: Vec<String>,
    pub(super) costs: Vec<Cost>,
    /// The routing key of the names; `None` for that of the policy.
    pub(super) home: Option<u8>,
}

impl Policy {
    pub(super) fn new(scenario: &StoreScenario, name: String) -> Self {
        let form = |spec: &crate::Spec| {
            let limit = spec.limit().expect("scenarios have valid limits");
            ScriptEncoding::of(&limit).expect("limits of store scenarios have a script encoding")
        };
        let forms: Vec<_> = scenario.specs.iter().map(form).collect();
        let spaces =
            forms.iter().zip(LIMIT_NAMES).map(|(form, limit)| KeySpace::new(PREFIX, &name, limit, form));
        Self { spaces: spaces.collect(), name, need: scenario.need, forms, home: scenario.home }
    }

    pub(super) fn place(&self, ask: &StoreRequest) -> Placed {
        let (keys, costs): (Vec<u8>, Vec<Cost>) = ask.iter().copied().unzip();
        let home = self.home.map(|limit| keys[limit]);
        let beside = home.map_or(&b""[..], |key| KEYS[usize::from(key)]);
        let names =
            keys.iter().zip(&self.spaces).map(|(key, space)| space.key(beside, KEYS[usize::from(*key)]));
        Placed { names: names.collect(), keys, costs, home }
    }

    /// Returns a request of one unit for each of these keys.
    pub(super) fn place_keys(&self, keys: &[u8]) -> Placed {
        self.place(&keys.iter().map(|key| (*key, 1)).collect())
    }

    pub(super) fn charges<'a>(&'a self, placed: &'a Placed) -> Vec<Charge<'a>> {
        let each = placed.names.iter().zip(&self.forms).zip(&placed.costs);
        each.map(|((key, form), &cost)| Charge { key, form, cost }).collect()
    }

    pub(super) fn flight<'a>(&self, charges: &'a [Vec<Charge<'a>>]) -> Vec<Charges<'a>> {
        charges.iter().map(|charges| Charges { need: self.need, charges }).collect()
    }
}

impl Placed {
    pub(super) fn as_asked(&self) -> StoreRequest {
        self.keys.iter().copied().zip(self.costs.iter().copied()).collect()
    }
}

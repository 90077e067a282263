//! What users hold: one limit, over many keys, with a clock.

use throttlekit_core::rate::{Limit, LimitError, Rule};
use throttlekit_core::{Cost, Decision, Forecast, Timestamp};

use crate::memory::WideMap;
use crate::{Ask, Clock, KeyHash, PreciseClock, SecretHash};

/// One limit over many keys, in this process.
pub struct Limiter<C = PreciseClock, H = SecretHash> {
    limit: Limit,
    map: WideMap,
    clock: C,
    hash: H,
}

impl Limiter {
    /// A limiter with the defaults: precise clock, attack-resistant hash, room for 65,536 keys.
    pub fn new<L: TryInto<Limit>>(limit: L) -> Result<Self, LimitError>
    where
        LimitError: From<L::Error>,
    {
        let limit = limit.try_into()?;
        Ok(Self {
            limit,
            map: WideMap::new(limit, 1 << 16),
            clock: PreciseClock::new(),
            hash: SecretHash::random(),
        })
    }
}

impl<C: Clock, H: KeyHash> Limiter<C, H> {
    /// Answers one ask, and charges it if allowed.
    pub fn check<'a>(&self, ask: impl Into<Ask<'a>>) -> Decision {
        let ask = ask.into();
        let now = self.clock.now();
        let mut key = self.map.lock(self.hash.fingerprint(ask.key));
        let decision = self.limit.decide(key.state(), ask.cost, now);
        if decision.allowed {
            key.charge(ask.cost, now);
        }
        decision
    }

    /// The limit.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }
}

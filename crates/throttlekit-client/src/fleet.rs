//! Units that a server lends, spent in this process.

use std::time::Duration;

use throttlekit::store::KEY_PART_MAX;
use throttlekit::tier::{HeldKey, TierBuilder, TierStats};
use throttlekit::{Ask, BootClock, Decision, LeaseClock, Limit, LimitError, OnOutage, TwoTier};

use crate::{Batch, Client, ClientError, LimiterBuilder, RemoteAnswer, RemoteLimiter, RemoteStore};

/// For how long a server lends units of a smooth rate.
const HOLD: Duration = Duration::from_secs(1);

/// A key of a [`FleetLimiter`], found once and kept. See [`HeldKey`].
pub type FleetKey<C = BootClock> = HeldKey<RemoteStore, C>;

/// Describes a [`FleetLimiter`].
#[derive(Debug)]
pub struct FleetBuilder<C = BootClock> {
    strict: LimiterBuilder,
    tier: TierBuilder<RemoteStore, C>,
}

impl FleetBuilder {
    pub(crate) fn new(client: &Client, policy: &str, limit: Result<Limit, LimitError>) -> Self {
        let store = RemoteStore::new(client.clone(), policy);
        let strict = client.limiter_builder(policy);
        let (strict, tier) = match limit {
            Ok(limit) => (strict.limit(limit), TwoTier::builder(store, policy, limit)),
            Err(error) => (strict, TwoTier::builder(store, policy, Unfit(error))),
        };
        Self { strict, tier: tier.hold(HOLD) }
    }
}

/// A limit that is none, for the builder to say so.
struct Unfit(LimitError);

impl TryFrom<Unfit> for Limit {
    type Error = LimitError;

    fn try_from(Unfit(error): Unfit) -> Result<Self, LimitError> {
        Err(error)
    }
}

impl<C: LeaseClock> FleetBuilder<C> {
    /// How many units are reserved at once. Unless chosen, learned for each key.
    pub fn batch(self, batch: Batch) -> Self {
        self.tune(|tier| tier.batch(batch))
    }

    /// What to answer while the server does not, and nothing is held. Unless chosen, refusals.
    pub fn on_outage(self, choice: OnOutage) -> Self {
        let Self { strict, tier } = self;
        Self { strict: strict.on_outage(choice), tier: tier.on_outage(choice) }
    }

    /// Everything else that can be chosen about two tiers: when the server is asked, clock margins, refills, returns.
    /// What one reservation gets of what is left, the server's policy says.
    pub fn tune<D: LeaseClock>(
        self,
        with: impl FnOnce(TierBuilder<RemoteStore, C>) -> TierBuilder<RemoteStore, D>,
    ) -> FleetBuilder<D> {
        FleetBuilder { strict: self.strict, tier: with(self.tier) }
    }

    /// The limiter, or why the limit cannot be lent.
    pub fn build(self) -> Result<FleetLimiter<C>, LimitError>
    where
        C: 'static,
    {
        Ok(FleetLimiter { tier: self.tier.build()?, strict: self.strict.build()? })
    }
}

/// One policy of a server, answered mostly by this process: units are reserved in batches and spent here, by any number
/// of threads. Cheap to clone.
///
/// However many processes do so, over a window no more than its limit passes (law `lease-coupled`); over a smooth rate
/// no more than what it refills in the second for which units are lent (law `lease-rolling`).
#[derive(Clone, Debug)]
pub struct FleetLimiter<C = BootClock> {
    tier: TwoTier<RemoteStore, C>,
    strict: RemoteLimiter,
}

impl<C: LeaseClock + 'static> FleetLimiter<C> {
    /// Answers an ask from what this process holds or remembers, or not at all. Never waits.
    #[inline]
    pub fn try_check<'a>(&self, ask: impl Into<Ask<'a>>) -> Option<Decision> {
        self.tier.try_check(ask)
    }

    /// Answers one ask. Waits only if the server must be asked.
    ///
    /// The server is asked about this ask alone if it costs more than the limit ever holds, which no lease helps; if its
    /// key is longer than [200 bytes](KEY_PART_MAX); and if it costs more than 1 on a smooth rate, whose units of different
    /// reservations do not add up.
    pub async fn check<'a>(&self, ask: impl Into<Ask<'a>>) -> Result<RemoteAnswer, ClientError> {
        let ask = ask.into();
        if self.is_asked_alone(ask) {
            return self.strict.check(ask).await;
        }
        let answer = self.tier.check(ask).await?;
        Ok(RemoteAnswer {
            decision: answer.decision,
            guarantee: answer.guarantee,
            binding_axis: None,
            shadow_denied: false,
            outage: answer.outage.map(ClientError::from),
        })
    }

    /// A reservation gets whatever is left, and so perhaps less than one ask costs. Units of a window wait for the rest.
    fn is_asked_alone(&self, ask: Ask<'_>) -> bool {
        let [limit] = self.tier.shared().limits();
        let is_smooth = !matches!(limit, Limit::Window(_));
        ask.key.len() > KEY_PART_MAX || ask.cost > limit.units() || (is_smooth && ask.cost > 1)
    }

    /// A handle to one key that many threads spend from, which saves finding it. Nothing, if there is none free.
    pub fn hold(&self, key: &str) -> Option<FleetKey<C>> {
        if key.len() > KEY_PART_MAX { None } else { self.tier.hold(key.as_bytes()) }
    }

    /// Gives back whatever this process holds, as far as it can be. For a process that is about to stop.
    pub async fn close(&self) -> Result<(), ClientError> {
        Ok(self.tier.close().await?)
    }

    /// What has been done: reservations, units lent and returned, asks that went to the server.
    pub fn stats(&self) -> TierStats {
        self.tier.stats()
    }

    /// The two tiers themselves.
    pub fn tier(&self) -> &TwoTier<RemoteStore, C> {
        &self.tier
    }
}

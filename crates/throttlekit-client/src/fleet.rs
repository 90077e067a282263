//! Units leased from a server and spent in this process.

use std::time::Duration;

use throttlekit::store::KEY_PART_MAX;
use throttlekit::tier::{HeldKey, TierBuilder, TierStats};
use throttlekit::{BootClock, Call, Decision, LeaseClock, Limit, LimitError, OnOutage, TwoTier};

use crate::{Batch, Client, ClientError, LimiterBuilder, RemoteAnswer, RemotePolicy, RemoteStore};

/// Time for which a server lends units of a smooth rate.
const HOLD: Duration = Duration::from_secs(1);

/// A key of a [`FleetLimiter`], looked up once and kept. See [`HeldKey`].
pub type FleetKey<C = BootClock> = HeldKey<RemoteStore, C>;

/// Configures a [`FleetLimiter`].
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

/// An invalid limit, for the builder to report.
struct Unfit(LimitError);

impl TryFrom<Unfit> for Limit {
    type Error = LimitError;

    fn try_from(Unfit(error): Unfit) -> Result<Self, LimitError> {
        Err(error)
    }
}

impl<C: LeaseClock> FleetBuilder<C> {
    /// Sets the number of units per reservation. Default: learned for each key.
    pub fn batch(self, batch: Batch) -> Self {
        self.tune(|tier| tier.batch(batch))
    }

    /// Sets the fallback while the server is unreachable and no units are held. Default: fail closed.
    pub fn on_outage(self, choice: OnOutage) -> Self {
        let Self { strict, tier } = self;
        Self { strict: strict.on_outage(choice), tier: tier.on_outage(choice) }
    }

    /// Sets all other options of the leased limiter: when the server is called, clock margins, refills, returns. The
    /// server's policy determines how much of the remaining units one reservation gets.
    pub fn tune<D: LeaseClock>(
        self,
        with: impl FnOnce(TierBuilder<RemoteStore, C>) -> TierBuilder<RemoteStore, D>,
    ) -> FleetBuilder<D> {
        FleetBuilder { strict: self.strict, tier: with(self.tier) }
    }

    /// Builds the limiter. Returns an error if the limit cannot be leased.
    pub fn build(self) -> Result<FleetLimiter<C>, LimitError>
    where
        C: 'static,
    {
        Ok(FleetLimiter { tier: self.tier.build()?, strict: self.strict.build()? })
    }
}

/// One policy of a server, decided mostly in this process: units are leased in batches and spent here, by any number of
/// threads. Cheap to clone.
///
/// However many processes do so, a window admits at most its limit (guarantee `lease-coupled`); a smooth rate admits at
/// most its limit plus what it refills in the second for which units are lent (guarantee `lease-rolling`).
#[derive(Clone, Debug)]
pub struct FleetLimiter<C = BootClock> {
    tier: TwoTier<RemoteStore, C>,
    strict: RemotePolicy,
}

impl<C: LeaseClock + 'static> FleetLimiter<C> {
    /// Decides a request from units or denials that this process holds; `None` if it cannot. Never waits.
    #[inline]
    pub fn try_check<'a>(&self, ask: impl Into<Call<'a>>) -> Option<Decision> {
        self.tier.try_check(ask)
    }

    /// Decides one request. Waits only if the server must be called.
    ///
    /// The server is called for this request alone if it costs more than the limit ever holds, which no lease helps; if
    /// its key is longer than [200 bytes](KEY_PART_MAX); and if it costs more than 1 on a smooth rate, whose units of
    /// different reservations do not add up.
    pub async fn check<'a>(&self, ask: impl Into<Call<'a>>) -> Result<RemoteAnswer, ClientError> {
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

    /// Returns whether the server must decide this request. A reservation gets the remaining units, possibly fewer than
    /// one request costs. Units of a window wait for the rest.
    fn is_asked_alone(&self, ask: Call<'_>) -> bool {
        let [limit] = self.tier.shared().limits();
        let is_smooth = !matches!(limit, Limit::Window(_));
        ask.key().len() > KEY_PART_MAX || ask.units() > limit.units() || (is_smooth && ask.units() > 1)
    }

    /// Returns a handle to one key that many threads spend from, which saves the lookup. `None` if no handle is free.
    pub fn hold(&self, key: &str) -> Option<FleetKey<C>> {
        if key.len() > KEY_PART_MAX { None } else { self.tier.hold(key.as_bytes()) }
    }

    /// Returns all unspent units to the server, as far as possible. Call it before the process stops.
    pub async fn close(&self) -> Result<(), ClientError> {
        Ok(self.tier.close().await?)
    }

    /// Returns statistics: reservations, units leased and returned, requests that went to the server.
    pub fn stats(&self) -> TierStats {
        self.tier.stats()
    }

    /// Returns the underlying leased limiter.
    pub fn tier(&self) -> &TwoTier<RemoteStore, C> {
        &self.tier
    }
}

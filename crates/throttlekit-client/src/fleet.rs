//! Units leased from a server and spent in this process.

use std::time::Duration;

use throttlekit::clock::{BootClock, LeaseClock};
use throttlekit::leasing::{LeaseStats, LeasedKey, Leasing};
use throttlekit::limiter::SharedLimiterBuilder;
use throttlekit::rate::LimitError;
use throttlekit::store::KEY_PART_MAX;
use throttlekit::{BuildError, Call, Decision, Limit, OnOutage, SharedLimiter};

use crate::{Client, ClientError, LimiterBuilder, RemoteAnswer, RemotePolicy, RemoteStore};

/// Time for which a server lends units of a smooth rate.
const HOLD: Duration = Duration::from_secs(1);

/// A key of a [`FleetLimiter`], looked up once and kept. See [`LeasedKey`].
pub type FleetKey<C = BootClock> = LeasedKey<RemoteStore, C>;

/// Configures a [`FleetLimiter`].
#[derive(Debug)]
pub struct FleetBuilder<C = BootClock> {
    strict: LimiterBuilder,
    leased: SharedLimiterBuilder<RemoteStore, C>,
    leasing: Leasing,
}

impl FleetBuilder {
    pub(crate) fn new(client: &Client, policy: &str, limit: Result<Limit, LimitError>) -> Self {
        let store = RemoteStore::new(client.clone(), policy);
        let strict = client.limiter_builder(policy);
        let (strict, leased) = match limit {
            Ok(limit) => (strict.limit(limit), SharedLimiter::builder(store, policy, limit)),
            Err(error) => (strict, SharedLimiter::builder(store, policy, Unfit(error))),
        };
        Self { strict, leased, leasing: Leasing::auto() }
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

impl<C: LeaseClock + 'static> FleetBuilder<C> {
    /// Sets the fallback while the server is unreachable and no units are held. Default: fail closed.
    pub fn on_outage(self, choice: OnOutage) -> Self {
        let Self { strict, leased, leasing } = self;
        Self { strict: strict.on_outage(choice), leased: leased.on_outage(choice), leasing }
    }

    /// Sets the options of leasing: when the server is called, batches, clock margins, refills, returns. The server's
    /// policy determines how much of the remaining units one reservation gets, and how long units of a smooth rate live.
    /// Default: [`Leasing::auto`].
    pub fn leasing(self, leasing: Leasing) -> Self {
        Self { leasing, ..self }
    }

    /// Sets the clock by which units expire.
    pub fn clock<D: LeaseClock>(self, clock: D) -> FleetBuilder<D> {
        FleetBuilder { strict: self.strict, leased: self.leased.clock(clock), leasing: self.leasing }
    }

    /// Builds the limiter. Returns an error if the limit cannot be leased.
    pub fn build(self) -> Result<FleetLimiter<C>, BuildError> {
        let leased = self.leased.leased_with(self.leasing.hold(HOLD)).build()?;
        Ok(FleetLimiter { leased, strict: self.strict.build()? })
    }
}

/// One policy of a server, decided mostly in this process: units are leased in batches and spent here, by any number of
/// threads. Cheap to clone.
///
/// However many processes do so, a window admits at most its limit (guarantee `lease-coupled`); a smooth rate admits at
/// most its limit plus what it refills in the second for which units are lent (guarantee `lease-rolling`).
#[derive(Clone, Debug)]
pub struct FleetLimiter<C = BootClock> {
    leased: SharedLimiter<RemoteStore, C>,
    strict: RemotePolicy,
}

impl<C: LeaseClock + 'static> FleetLimiter<C> {
    /// Decides a request from units or denials that this process holds; `None` if it cannot. Never waits.
    #[inline]
    pub fn try_check<'a>(&self, ask: impl Into<Call<'a>>) -> Option<Decision> {
        self.leased.try_check(ask)
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
        let answer = self.leased.check(ask).await?;
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
        let limit = &self.leased.limits()[0];
        let is_smooth = !matches!(limit, Limit::Window(_));
        ask.key().len() > KEY_PART_MAX || ask.units() > limit.units() || (is_smooth && ask.units() > 1)
    }

    /// Returns a handle to one key that many threads spend from, which saves the lookup. `None` if no handle is free.
    pub fn leased_key(&self, key: &str) -> Option<FleetKey<C>> {
        if key.len() > KEY_PART_MAX { None } else { self.leased.leased_key(key) }
    }

    /// Returns all unspent units to the server, as far as possible. Call it before the process stops.
    pub async fn close(&self) -> Result<(), ClientError> {
        Ok(self.leased.close().await?)
    }

    /// Returns statistics: reservations, units leased and returned, requests that went to the server.
    pub fn stats(&self) -> LeaseStats {
        self.leased.stats().leasing
    }

    /// Returns the underlying leased limiter.
    pub fn shared(&self) -> &SharedLimiter<RemoteStore, C> {
        &self.leased
    }
}

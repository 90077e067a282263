//! Limits below the ceiling that responses report, shared as the ceiling is.
//!
//! A process that learns a lower limit slows down its own calls. That does not suffice where several processes share an
//! account: each would use all of the lower limit. So each call is also charged to a limiter with the rate of the
//! ceiling, on the same store: more units, the lower the learned limit is. All processes learn the same limit, so
//! together they keep it. The limiter is used only while a limit is lowered.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::concurrency::Ending;

use super::ceiling::{Limits, PerMinute};
use super::learned::WHOLE;
use super::upstream::Upstream;
use crate::admit::{Admission, Admit, Axis, Debiting, Held, SharedPermit, StoreError};
use crate::call::OwnedCall;
use crate::{BuildError, Call};

/// Units that one request counts as, so that parts of a request can be charged.
const REQUEST: u64 = 1_000;

/// Limiters of requests and of tokens with the rates of the ceiling.
#[derive(Default)]
pub(super) struct Lowered {
    requests: Option<Pace>,
    tokens: Option<Pace>,
}

/// One of them. Units that are charged and not used return.
struct Pace {
    limiter: Arc<dyn Admit>,
    burst: u64,
}

impl Lowered {
    /// Builds the limiters by `policy`, which makes a policy of one limit on the cost axis.
    pub(super) fn new(
        limits: &Limits,
        mut policy: impl FnMut(&str, crate::Rate) -> Result<Arc<dyn Admit>, BuildError>,
    ) -> Result<Self, BuildError> {
        let mut pace = |limit: Option<PerMinute>, name: &str, scale: u64| -> Result<_, BuildError> {
            let Some(limit) = limit else { return Ok(None) };
            let limiter = policy(name, limit.rate(scale))?;
            Ok(Some(Pace { limiter, burst: limit.burst.saturating_mul(scale) }))
        };
        Ok(Self {
            requests: pace(limits.requests, "learned-requests", REQUEST)?,
            tokens: pace(limits.tokens, "learned-tokens", 1)?,
        })
    }

    /// Checks whether calls of an upstream that uses these parts of its ceiling are charged here.
    pub(super) fn charges(&self, parts: [u32; 2]) -> bool {
        let is_charged = |pace: &Option<Pace>, part: u32| pace.is_some() && part < WHOLE;
        is_charged(&self.requests, parts[0]) || is_charged(&self.tokens, parts[1])
    }

    /// Admits a call of an upstream that uses these parts of its ceiling.
    pub(super) async fn admit<A: Admit>(
        &self,
        upstream: &Upstream<A>,
        call: OwnedCall,
        parts: [u32; 2],
    ) -> Result<Admission, StoreError> {
        let others = call.others();
        let call = call.borrowed(&others);
        let requests = self.requests.as_ref().filter(|_| parts[0] < WHOLE);
        let tokens = self.tokens.as_ref().filter(|_| parts[1] < WHOLE);
        let mut charged = Charged { requests: None, tokens: None, part: parts[1] };
        if let Some(pace) = requests {
            let cost = scale(REQUEST, parts[0]);
            match pace.charge(&call, cost).await? {
                Ok(permit) => charged.requests = Some((permit, cost)),
                Err(denied) => return Ok(denied),
            }
        }
        if let Some(pace) = tokens {
            match pace.charge(&call, scale(call.units(), parts[1])).await? {
                Ok(permit) => charged.tokens = Some(permit),
                Err(denied) => return Ok(denied),
            }
        }
        // Whatever is dropped on the way returns its units.
        let mut admission = upstream.admit(call).await?;
        if let Some(permit) = admission.permit.take() {
            charged.keep_request().await;
            admission.permit = Some(SharedPermit::new(Paced { permit, charged }));
        }
        Ok(admission)
    }
}

impl Pace {
    /// Charges a cost, or returns the denial. Of a cost above the burst, the rest is owed when it is settled.
    async fn charge(
        &self,
        call: &Call<'_>,
        cost: u64,
    ) -> Result<Result<SharedPermit, Admission>, StoreError> {
        let one = Call::by(call.key()).cost(cost.min(self.burst)).priority(call.of_priority());
        let mut admission = self.limiter.admit(one).await?;
        Ok(match admission.permit.take() {
            Some(permit) => Ok(permit),
            None => Err(Admission::of(Axis::Rate, admission.decision(), SharedPermit::none())),
        })
    }
}

/// Returns the units to charge at a part of the rate, rounded up.
fn scale(units: u64, part: u32) -> u64 {
    let scaled = u128::from(units) * u128::from(WHOLE);
    u64::try_from(scaled.div_ceil(u128::from(part.max(1)))).unwrap_or(u64::MAX)
}

/// Charges to the limiters of a lowered limit.
struct Charged {
    requests: Option<(SharedPermit, u64)>,
    tokens: Option<SharedPermit>,
    part: u32,
}

impl Charged {
    /// Charges the request for good. If it owes units, other processes have to wait for them from now on.
    async fn keep_request(&mut self) {
        if let Some((mut permit, cost)) = self.requests.take() {
            permit.settle(cost);
            // An error leaves the charge as it is or as it should be.
            let _ = permit.close(Ending::Success).await;
        }
    }

    fn settle(&mut self, tokens: u64) {
        if let Some(permit) = &mut self.tokens {
            permit.settle(scale(tokens, self.part));
        }
    }

    fn end(self, ending: Ending) {
        if let Some(permit) = self.tokens {
            permit.end(ending, None);
        }
    }
}

/// The permit of the ceiling, and the charges beside it.
struct Paced {
    permit: SharedPermit,
    charged: Charged,
}

impl Held for Paced {
    fn end(self: Box<Self>, ending: Ending, latency: Option<Duration>) {
        self.charged.end(ending);
        self.permit.end(ending, latency);
    }

    fn debit(&mut self, units: u64) -> Debiting<'_> {
        Debiting::pending(self.permit.debit(units))
    }

    fn settle(&mut self, actual: u64) {
        self.charged.settle(actual);
        self.permit.settle(actual);
    }

    fn used(&self) -> u64 {
        self.permit.used()
    }

    fn reserved(&self) -> u64 {
        self.permit.reserved()
    }

    fn elapsed(&self) -> Option<Duration> {
        self.permit.elapsed()
    }

    fn guarantee(&self) -> crate::Guarantee {
        self.permit.guarantee()
    }

    fn is_fenced(&self) -> bool {
        self.permit.is_fenced()
    }

    fn fenced(&self) -> crate::admit::BoxFuture<'_, ()> {
        Box::pin(self.permit.fenced())
    }
}

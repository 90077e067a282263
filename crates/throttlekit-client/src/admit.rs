//! Remote policies behind the library's [`Admit`].

use std::time::Duration;

use throttlekit::admit::{
    Admission, Admit, Admitting, BoxFuture, Debiting, Ending, Held, LimitInfo, SharedPermit, StoreError,
};
use throttlekit::clock::{Clock, LeaseClock, WallClock};
use throttlekit::rate::Timestamp;
use throttlekit::{Axis, Call};

use crate::{ClientError, FleetLimiter, RemoteAnswer, RemotePermit, RemotePolicy, Work, wire};

/// Makes one call per request: `Admit` if the policy holds something while work runs, otherwise `Check`. The first
/// request finds out. Set the policy's [limit](crate::LimiterBuilder::limit) to include its period in `RateLimit-Policy`.
impl Admit for RemotePolicy {
    fn admit(&self, call: Call<'_>) -> Admitting {
        let policy = self.clone();
        let keys: Vec<Vec<u8>> = (0..call.key_count()).map(|place| call.key_at(place).to_vec()).collect();
        let cost = call.units();
        Admitting::pending(async move {
            let keys: Vec<&str> = keys.iter().map(|key| wire::key(key)).collect::<Result<_, _>>()?;
            let work = Work::by(keys[0]).and(&keys[1..]).cost(cost);
            if policy.holds() {
                match policy.admit(work).await {
                    Err(ClientError::Unsupported(_)) => policy.holds_nothing(),
                    admitted => {
                        let admitted = admitted?;
                        let permit = admitted.permit.map_or(SharedPermit::none(), SharedPermit::new);
                        let price = admitted.policy_denied.then_some(Axis::Price);
                        return Ok(admission(admitted.answer, price, permit));
                    }
                }
            }
            let answer = policy.check_by(Call::by(work.key).cost(cost), work.others).await?;
            Ok(admission(answer, None, SharedPermit::none()))
        })
    }

    fn limits(&self) -> Vec<LimitInfo> {
        let period = self.limit().map(throttlekit::Limit::period);
        let info = LimitInfo::new(Axis::Rate, self.units(), period);
        vec![if self.holds() { info.refundable() } else { info }]
    }

    fn now(&self) -> Timestamp {
        WallClock.now()
    }
}

/// Decides mostly in this process, by the first key of a call.
impl<C: LeaseClock + Clone + 'static> Admit for FleetLimiter<C> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        if let Some(decision) = self.try_check(call) {
            return Admitting::ready(Ok(Admission::of(Axis::Rate, decision, SharedPermit::none())));
        }
        let (limiter, key, cost) = (self.clone(), call.key().to_vec(), call.units());
        Admitting::pending(async move {
            let answer = limiter.check(Call::by(&key).cost(cost)).await?;
            Ok(admission(answer, None, SharedPermit::none()))
        })
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.shared().limits().iter().map(|limit| LimitInfo::of(Axis::Rate, limit)).collect()
    }

    fn now(&self) -> Timestamp {
        self.shared().now()
    }
}

/// Returns the admission. The server reports one decision, and the axis only of a denial; `price` if that denied.
fn admission(answer: RemoteAnswer, price: Option<Axis>, permit: SharedPermit) -> Admission {
    let axis = price.or(answer.binding_axis).unwrap_or(Axis::Rate);
    let mut admission = Admission::of(axis, answer.decision, permit);
    admission.guarantee = answer.guarantee;
    admission.outage = answer.outage.map(StoreError::from);
    admission
}

impl Held for RemotePermit {
    fn end(self: Box<Self>, ending: Ending, latency: Option<Duration>) {
        match (ending, latency) {
            (Ending::Success, Some(latency)) => self.success_after(latency),
            (Ending::Success, None) => self.success(),
            (Ending::Dropped, _) => self.dropped(),
            (Ending::Ignored, _) => self.ignored(),
        }
    }

    fn debit(&mut self, units: u64) -> Debiting<'_> {
        Debiting::pending(async move { Ok(self.debit(units).await?.decision) })
    }

    fn settle(&mut self, actual: u64) {
        self.settle(actual);
    }

    fn used(&self) -> u64 {
        self.used()
    }

    fn reserved(&self) -> u64 {
        self.reserved()
    }

    fn elapsed(&self) -> Option<Duration> {
        self.elapsed()
    }

    fn is_fenced(&self) -> bool {
        self.is_fenced()
    }

    fn fenced(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.fenced())
    }
}

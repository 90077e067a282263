//! Decisions of a variant: check, peek, forecast, debit.

use std::future::pending;
use std::time::Duration;

use throttlekit::clock::{Clock, WallClock};
use throttlekit::rate::{Forecast, Timestamp};
use throttlekit::store::{DebitId, StoreError};
use throttlekit::{Admission, Axis, Call, Guarantee, Retry, SharedLimiter};

use super::super::backend::Counted;
use super::super::{Answered, Later, Refusal};
use super::{Variant, unsupported};

/// Minimum wait that a response can report.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(1);
/// Maximum number of concurrent calls, where each is made separately.
const AT_ONCE_MAX: usize = 32;

impl Variant {
    /// Checks a call at once, as [`check`](Self::check) does, if that needs no store and no queue.
    #[inline]
    pub(in crate::engine) fn check_now(&self, call: &Call<'_>) -> Option<Result<Answered, Refusal>> {
        let limiter = self.alone.as_ref()?;
        if let Err(refusal) = self.has_keys(call.key_count()) {
            return Some(Err(refusal));
        }
        Some(match limiter.check_now(call)? {
            Ok(answer) => Ok(Answered::by_limiter(&answer, Axis::Rate)),
            Err(error) => Err(error.into()),
        })
    }

    pub(in crate::engine) async fn check(&self, call: Call<'_>) -> Result<Answered, Refusal> {
        self.has_keys(call.key_count())?;
        self.support.check.map_err(unsupported)?;
        let admission = match self.waiting() {
            None => self.decide(call).await?,
            // Nobody overtakes those who wait.
            Some(queue) => {
                let at_once: Later<'_, _> = Box::pin(queue.admit(call, Duration::ZERO, pending()));
                at_once.await?
            }
        };
        let answer = Answered::admitted(&admission);
        if let Some(permit) = admission.permit {
            // Nobody settles it later: the estimated cost is the cost.
            permit.success();
        }
        Ok(answer)
    }

    async fn decide(&self, call: Call<'_>) -> Result<Admission, StoreError> {
        // A decision that needs no store is there at once, and then this allocates nothing.
        match self.limits.admit(call).now_or_later() {
            Ok(admission) => admission,
            Err(later) => later.await,
        }
    }

    /// Checks several calls, in one batch where limits on the store alone decide.
    pub(in crate::engine) async fn check_many(&self, calls: &[Call<'_>]) -> Vec<Result<Answered, Refusal>> {
        if let Some(all) = self.all.as_ref().filter(|_| self.support.batches && self.waiting().is_none()) {
            let answers = Box::pin(all.limiter.check_many(calls.iter().copied())).await.into_iter();
            return answers.map(|answer| Ok(Answered::by_limiter(&answer?, Axis::Rate))).collect();
        }
        let mut answers = Vec::with_capacity(calls.len());
        for some in calls.chunks(AT_ONCE_MAX) {
            let asked = some.iter().map(|call| -> Later<'_, Result<Answered, Refusal>> {
                Box::pin(async move { self.check(*call).await })
            });
            answers.extend(futures_util::future::join_all(asked).await);
        }
        answers
    }

    pub(in crate::engine) async fn peek(&self, call: Call<'_>) -> Result<Answered, Refusal> {
        self.has_keys(call.key_count())?;
        let Some(all) = &self.all else { return self.peek_free(call).await };
        let limiter = &all.limiter;
        match Box::pin(limiter.peek_each(call.cost(1))).await {
            Ok(each) => Ok(all.seen(&each)),
            // With a cost of zero, the fallback reports what is left.
            Err(error) if error.is_outage() => {
                let answer = Box::pin(limiter.check(call.cost(0))).await?;
                Ok(looked(Answered::by_limiter(&answer, Axis::Rate), Axis::Rate, answer.now))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Peeks where no limits are on the store, with a call of cost zero.
    async fn peek_free(&self, call: Call<'_>) -> Result<Answered, Refusal> {
        self.support.peek.map_err(unsupported)?;
        if let Some(denied) = self.denies() {
            return Ok(denied);
        }
        let answer = Answered::admitted(&self.limits.admit(call.cost(0)).await?);
        Ok(looked(answer, Axis::Fairness, self.limits.now()))
    }

    /// Charges a call whatever is left of the limits, and returns what is left then. It is allowed if something was left
    /// before, as with a budget; it counts in any case.
    pub(in crate::engine) async fn charge(&self, call: Call<'_>) -> Result<Answered, Refusal> {
        self.has_keys(call.key_count())?;
        if let Some(free) = self.without_limits() {
            return Ok(free);
        }
        let Some(all) = &self.all else { return Err(unsupported("has no limit to charge")) };
        let before = self.peek(call).await?;
        match Box::pin(all.limiter.charge(call)).await {
            Ok(()) => {}
            // The fallback decided: there is no store to charge.
            Err(error) if error.is_outage() => return Ok(before),
            Err(error) => return Err(error.into()),
        }
        let mut decision = before.decision;
        decision.remaining = decision.remaining.saturating_sub(call.units());
        Ok(Answered { decision, ..before })
    }

    /// Returns the response of a variant without limits, which allows or denies everything.
    fn without_limits(&self) -> Option<Answered> {
        self.is_unlimited().then(Answered::free).or_else(|| self.denies())
    }

    /// Returns units to the limits of a call, and reports what is left then.
    pub(in crate::engine) async fn refund(&self, call: Call<'_>) -> Result<Answered, Refusal> {
        self.has_keys(call.key_count())?;
        if let Some(free) = self.without_limits() {
            return Ok(free);
        }
        let Some(all) = &self.all else { return Err(unsupported("has no limit to refund")) };
        match Box::pin(all.limiter.take_back(call)).await {
            Err(error) if !error.is_outage() => return Err(error.into()),
            _ => {}
        }
        self.peek(call).await
    }

    /// Checks that units can be granted to the keys of a call.
    pub(in crate::engine) fn can_grant(&self, call: Call<'_>) -> Result<(), Refusal> {
        self.has_keys(call.key_count())?;
        self.granted().map(drop)
    }

    /// Gives units back to the budgets of a call, or to its rates if there are none: at most what was used of them.
    pub(in crate::engine) async fn grant(&self, call: Call<'_>) -> Result<(), Refusal> {
        Ok(Box::pin(self.granted()?.take_back(call)).await?)
    }

    fn granted(&self) -> Result<&SharedLimiter<Counted>, Refusal> {
        let rates = || self.all.as_ref().map(|all| &all.limiter);
        let none = || unsupported("has no limit on the store to grant units of");
        self.budgets.as_ref().or_else(rates).ok_or_else(none)
    }

    /// Forgets the keys of a call in all limits on the store.
    pub(in crate::engine) async fn reset(&self, call: Call<'_>) -> Result<(), Refusal> {
        self.has_keys(call.key_count())?;
        let Some(all) = &self.all else { return Err(unsupported("has no limit to reset")) };
        Ok(Box::pin(all.limiter.reset(call)).await?)
    }

    pub(in crate::engine) async fn forecast(&self, call: Call<'_>) -> Result<Forecast, Refusal> {
        self.has_keys(call.key_count())?;
        if self.is_unlimited() {
            let now = WallClock.now();
            return Ok(Forecast { spendable_now: u64::MAX, next_replenish_at: now, full_at: now });
        }
        if self.denies().is_some() {
            let never = Timestamp::from_nanos(u64::MAX);
            return Ok(Forecast { spendable_now: 0, next_replenish_at: never, full_at: never });
        }
        let Some(all) = &self.all else {
            return Err(unsupported("has no limit to forecast"));
        };
        match Box::pin(all.limiter.forecast(call)).await {
            // With a cost of zero, the fallback reports what is left.
            Err(error) if error.is_outage() => {
                let answer = Box::pin(all.limiter.check(call.cost(0))).await?;
                let looked = looked(Answered::by_limiter(&answer, Axis::Rate), Axis::Rate, answer.now);
                let looked = looked.decision;
                let wait = looked.retry_after.wait().unwrap_or_default();
                Ok(Forecast {
                    spendable_now: looked.remaining,
                    next_replenish_at: answer.now + wait,
                    full_at: looked.reset_at,
                })
            }
            forecast => Ok(forecast?),
        }
    }

    /// Debits all budgets, or none.
    pub(in crate::engine) async fn debit(
        &self,
        call: Call<'_>,
        id: Option<DebitId>,
    ) -> Result<Answered, Refusal> {
        self.has_keys(call.key_count())?;
        let Some(budgets) = &self.budgets else {
            let none = Err(unsupported("has no token budget: use Check, or add a `cost` to the policy"));
            return self.without_limits().map_or(none, Ok);
        };
        let debited = match id {
            Some(id) => Box::pin(budgets.debit(call, id)).await,
            // Without an idempotency key it is not retried, so it need not be remembered.
            None => Box::pin(budgets.check(call)).await,
        };
        match debited {
            Ok(answer) => Ok(Answered::by_limiter(&answer, Axis::Cost)),
            Err(StoreError::Stale(number)) => Err(Refusal::Invalid(format!(
                "debit {number} is stale: a later one of its stream was counted; number debits upwards, one \
                 in flight at a time"
            ))),
            Err(error) => Err(error.into()),
        }
    }
}

/// Converts a response to a request for nothing: allowed means that something is left. If nothing is, it reports when
/// something will be at the latest; a peek in the last instant of a window has to be repeated.
fn looked(answer: Answered, axis: Axis, now: Timestamp) -> Answered {
    let Answered { mut decision, guarantee, .. } = answer;
    let nothing_left = decision.remaining == 0 && guarantee != Guarantee::Open;
    if decision.allowed && nothing_left {
        decision.allowed = false;
        decision.retry_after = Retry::after(decision.reset_at.since(now).max(LOOK_AGAIN_MIN));
    }
    Answered::of(decision, guarantee, axis)
}

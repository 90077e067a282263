//! Decisions of a variant: check, peek, forecast, debit.

use std::time::Duration;

use throttlekit::clock::{Clock, WallClock};
use throttlekit::rate::{ALLOW_FULL, Forecast, combine};
use throttlekit::store::{DebitId, Store, StoreError};
use throttlekit::{Answer, Axis, Call, Guarantee, Retry};

use super::super::{Answered, Later, Refusal};
use super::{Asks, Variant, unsupported};

/// Minimum wait that a response can report.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(1);
/// Maximum number of concurrent calls, where each is made separately.
const AT_ONCE_MAX: usize = 32;

impl Variant {
    pub(in crate::engine) async fn check(&self, keys: &[&[u8]], cost: u64) -> Result<Answered, Refusal> {
        self.has_keys(keys.len())?;
        match &self.asks {
            Asks::Nobody => Ok(Answered::free()),
            Asks::Rates(rates) => Ok(answered(&Box::pin(rates.check(call(keys, cost))).await?, Axis::Rate)),
            Asks::Leased(leased, worth) => {
                // Units of a local lease are spent without a future.
                if let Some(decision) = leased.try_check(call(keys, cost)) {
                    return Ok(Answered::of(decision, *worth, Axis::Rate));
                }
                // Boxed, so that the common path does not pay for the size of the long one.
                let answer = Box::pin(leased.check(call(keys, cost))).await?;
                Ok(Answered::of(answer.decision, answer.guarantee.weaker(*worth), Axis::Rate))
            }
            Asks::Fairness(fairness) => {
                let answer = Box::pin(fairness.check(throttlekit::Call::by(keys[0]).cost(cost))).await?;
                Ok(answered(&answer, Axis::Fairness))
            }
            Asks::Budget => {
                Err(unsupported("is a token budget: send debits, which are counted after the work"))
            }
            Asks::Axes { slots: true, .. } => {
                Err(unsupported("holds a slot while work runs: use Admit, and Release when the work is done"))
            }
            Asks::Axes { policy, slots: false } => {
                let admission = Box::pin(policy.admit(call(keys, cost))).await?;
                let answer = Answered::admitted(&admission);
                if let Some(permit) = admission.permit {
                    // Nobody settles it later: the estimated cost is the cost.
                    permit.success();
                }
                Ok(answer)
            }
        }
    }

    /// Checks several calls, in one batch where the store has the limits. Each has its keys.
    pub(in crate::engine) async fn check_many(
        &self,
        calls: &[&[&[u8]]],
        cost: u64,
    ) -> Vec<Result<Answered, Refusal>> {
        if let Asks::Rates(rates) = &self.asks {
            let calls = calls.iter().map(|keys| call(keys, cost));
            let answers = Box::pin(rates.check_many(calls)).await.into_iter();
            return answers.map(|answer| Ok(answered(&answer?, Axis::Rate))).collect();
        }
        let mut answers = Vec::with_capacity(calls.len());
        for some in calls.chunks(AT_ONCE_MAX) {
            let asked = some.iter().map(|keys| -> Later<'_, Result<Answered, Refusal>> {
                Box::pin(async move { self.check(keys, cost).await })
            });
            answers.extend(futures_util::future::join_all(asked).await);
        }
        answers
    }

    pub(in crate::engine) async fn peek(&self, keys: &[&[u8]]) -> Result<Answered, Refusal> {
        self.has_keys(keys.len())?;
        let Some(all) = &self.all else {
            return match &self.asks {
                Asks::Nobody => Ok(Answered::free()),
                Asks::Fairness(fairness) => {
                    let answer = Box::pin(fairness.check(throttlekit::Call::by(keys[0]).cost(0))).await?;
                    Ok(looked(&answer, Axis::Fairness))
                }
                _ => Err(unsupported("has no limit to look at: its slots are seen in the monitor")),
            };
        };
        let limiter = &all.limiter;
        match Box::pin(limiter.peek_each(call(keys, 1))).await {
            Ok(each) => {
                let decision = each.into_iter().fold(ALLOW_FULL, combine);
                Ok(Answered::of(decision, Store::guarantee(limiter.store()), Axis::Rate))
            }
            // With a cost of zero, the fallback reports what is left.
            Err(error) if error.is_outage() => {
                Ok(looked(&Box::pin(limiter.check(call(keys, 0))).await?, Axis::Rate))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(in crate::engine) async fn forecast(&self, keys: &[&[u8]], cost: u64) -> Result<Forecast, Refusal> {
        self.has_keys(keys.len())?;
        if self.asks_nobody() {
            let now = WallClock.now();
            return Ok(Forecast { spendable_now: u64::MAX, next_replenish_at: now, full_at: now });
        }
        let Some(all) = &self.all else {
            return Err(unsupported("has no limit of which the future is known"));
        };
        match Box::pin(all.limiter.forecast(call(keys, cost))).await {
            // With a cost of zero, the fallback reports what is left.
            Err(error) if error.is_outage() => {
                let answer = Box::pin(all.limiter.check(call(keys, 0))).await?;
                let looked = looked(&answer, Axis::Rate).decision;
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

    pub(in crate::engine) async fn debit(
        &self,
        keys: &[&[u8]],
        tokens: u64,
        id: Option<DebitId>,
    ) -> Result<Answered, Refusal> {
        self.has_keys(keys.len())?;
        let Some(budget) = &self.budget else {
            return match &self.asks {
                Asks::Nobody => Ok(Answered::free()),
                _ => Err(unsupported("has no token budget: give it a `cost`, or use Check")),
            };
        };
        let debited = match id {
            Some(id) => Box::pin(budget.debit(call(keys, tokens), id)).await,
            // Without an idempotency key it is not retried, so it need not be remembered.
            None => Box::pin(budget.check(call(keys, tokens))).await,
        };
        match debited {
            Ok(answer) => Ok(answered(&answer, Axis::Cost)),
            Err(StoreError::Stale(number)) => Err(Refusal::Invalid(format!(
                "debit {number} is older than one of its stream that was counted: number debits upwards, one at a time"
            ))),
            Err(error) => Err(error.into()),
        }
    }
}

/// Creates the call of these keys. The engine checks that there is at least one.
fn call<'a>(keys: &'a [&'a [u8]], cost: u64) -> Call<'a> {
    Call::by(keys[0]).and(&keys[1..]).cost(cost)
}

fn answered(answer: &Answer, axis: Axis) -> Answered {
    Answered::of(answer.decision, answer.guarantee, axis)
}

/// Converts a response to a request for nothing: allowed means that something is left. If nothing is, it reports when
/// something will be at the latest; a peek in the last instant of a window has to be repeated.
fn looked(answer: &Answer, axis: Axis) -> Answered {
    let mut decision = answer.decision;
    let nothing_left = decision.remaining == 0 && answer.guarantee != Guarantee::Open;
    if decision.allowed && nothing_left {
        decision.allowed = false;
        decision.retry_after = Retry::after(decision.reset_at.since(answer.now).max(LOOK_AGAIN_MIN));
    }
    Answered::of(decision, answer.guarantee, axis)
}

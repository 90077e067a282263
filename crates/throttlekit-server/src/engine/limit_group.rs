//! The limits of one policy that one call to the store charges as an atomic group.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use throttlekit::admission::{Dimension, SharedPolicyBuilder};
use throttlekit::store::StoreError;
use throttlekit::{Answer, Decision, Limit, LimitError, OnOutage, SharedLimiter, combine};

use super::backend::Counted;

pub(super) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One limit of a policy.
#[derive(Clone, Debug)]
pub(super) struct NamedLimit {
    /// Name that distinguishes it within the policy. Empty for the one that needs no name.
    pub(super) name: String,
    pub(super) limit: Limit,
    /// Axis, and which of the call's keys it counts by.
    pub(super) on: Dimension,
    /// Index of that key.
    pub(super) by: usize,
}

/// Limits on the store, whose number is not known at compile time.
pub(super) trait LimitGroup: Send + Sync {
    /// Charges a cost to all limits, or to none.
    fn check<'a>(&'a self, keys: &'a [&'a [u8]], cost: u64) -> Later<'a, Result<Answer, StoreError>>;

    /// Checks many calls with their keys, each independently.
    fn check_many<'a>(
        &'a self,
        calls: &'a [&'a [&'a [u8]]],
        cost: u64,
    ) -> Later<'a, Vec<Result<Answer, StoreError>>>;

    /// Returns what is left on all limits.
    fn peek<'a>(&'a self, keys: &'a [&'a [u8]]) -> Later<'a, Result<Decision, StoreError>>;

    /// Adds them to a policy with several axes.
    fn join(&self, builder: SharedPolicyBuilder) -> SharedPolicyBuilder;
}

struct Group<const N: usize> {
    limiter: Arc<SharedLimiter<Counted, N>>,
    limits: [NamedLimit; N],
}

/// Combines the limits of a policy to an atomic group.
pub(super) fn group(
    store: Counted,
    policy: &str,
    limits: Vec<NamedLimit>,
    on_outage: OnOutage,
) -> Result<Arc<dyn LimitGroup>, LimitError> {
    macro_rules! of {
        ($($n:literal)*) => {
            match limits.len() {
                $($n => Group::<$n>::over(store, policy, limits, on_outage),)*
                _ => Err(LimitError::Policy("a policy has one to six limits on the store")),
            }
        };
    }
    of!(1 2 3 4 5 6)
}

impl<const N: usize> Group<N> {
    fn over(
        store: Counted,
        policy: &str,
        limits: Vec<NamedLimit>,
        on_outage: OnOutage,
    ) -> Result<Arc<dyn LimitGroup>, LimitError> {
        let limits: [NamedLimit; N] =
            limits.try_into().map_err(|_| LimitError::Policy("as many limits as were counted"))?;
        let named = limits.each_ref().map(|limit| (limit.name.as_str(), limit.limit));
        let limiter = SharedLimiter::all(store, policy, named)?.on_outage(on_outage);
        // If all count by one key, that key is the routing key in a cluster.
        let alike = limits.iter().all(|limit| limit.by == limits[0].by);
        let limiter = Arc::new(if alike { limiter.home(0) } else { limiter });
        Ok(Arc::new(Self { limiter, limits }))
    }

    fn asks<'a>(&self, keys: &[&'a [u8]], cost: u64) -> [throttlekit::Call<'a>; N] {
        self.limits
            .each_ref()
            .map(|limit| throttlekit::Call::by(keys.get(limit.by).copied().unwrap_or_default()).cost(cost))
    }
}

impl<const N: usize> LimitGroup for Group<N> {
    fn check<'a>(&'a self, keys: &'a [&'a [u8]], cost: u64) -> Later<'a, Result<Answer, StoreError>> {
        Box::pin(async move { self.limiter.check_all(self.asks(keys, cost)).await })
    }

    fn check_many<'a>(
        &'a self,
        calls: &'a [&'a [&'a [u8]]],
        cost: u64,
    ) -> Later<'a, Vec<Result<Answer, StoreError>>> {
        Box::pin(async move {
            let asks: Vec<_> = calls.iter().map(|keys| self.asks(keys, cost)).collect();
            self.limiter.check_many(&asks).await
        })
    }

    fn peek<'a>(&'a self, keys: &'a [&'a [u8]]) -> Later<'a, Result<Decision, StoreError>> {
        Box::pin(async move {
            let each = self.limiter.peek_each(self.asks(keys, 1).map(|ask| ask.key())).await?;
            Ok(each.into_iter().fold(throttlekit::ALLOW_FULL, combine))
        })
    }

    fn join(&self, builder: SharedPolicyBuilder) -> SharedPolicyBuilder {
        builder.together(self.limiter.clone(), self.limits.each_ref().map(|limit| limit.on))
    }
}

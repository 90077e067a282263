//! Parts of a policy that are built already.

use std::sync::Arc;

use throttlekit_core::rate::Limit;

use super::local_step::FairnessStep;
use super::settler::Settler;
use super::slots::Slots;
use super::spend_step::SpendStep;
use super::step::Step;
use super::store_step::StoreStep;
use crate::clock::{Clock, LeaseClock};
use crate::guard::KeyedGuard;
use crate::policy::Dimension;
use crate::policy::builder::counted;
use crate::shared::Strict;
use crate::store::Store;
use crate::{Axis, BuildError, FairLimiter, Guard, SharedFairLimiter, SharedGuard, SharedLimiter};

/// Slots, steps and settlement of a policy that is being built.
#[derive(Default)]
pub struct Parts {
    pub(super) slots: Slots,
    pub(super) steps: Vec<Arc<dyn Step>>,
    pub(super) settler: Arc<Settler>,
}

impl Parts {
    pub(super) fn step(&mut self, step: impl Step + 'static) {
        self.steps.push(Arc::new(step));
    }
}

/// The axis of each limit of a part.
#[derive(Clone, Debug)]
pub struct Dimensions(Vec<Dimension>);

/// Anything that can be a part of a policy. Sealed.
pub trait Part {
    /// Adds the part to a policy, on these axes.
    fn join(self, on: &Dimensions, parts: &mut Parts) -> Result<(), BuildError>;
}

impl From<Axis> for Dimensions {
    fn from(on: Axis) -> Self {
        Self(vec![on.into()])
    }
}

impl From<Dimension> for Dimensions {
    fn from(on: Dimension) -> Self {
        Self(vec![on])
    }
}

impl<D: Into<Dimension>, const N: usize> From<[D; N]> for Dimensions {
    fn from(on: [D; N]) -> Self {
        Self(on.into_iter().map(Into::into).collect())
    }
}

impl<D: Into<Dimension>> From<Vec<D>> for Dimensions {
    fn from(on: Vec<D>) -> Self {
        Self(on.into_iter().map(Into::into).collect())
    }
}

impl Dimensions {
    /// Returns the dimension of a part that has one limit.
    fn one(&self) -> Result<Dimension, BuildError> {
        match self.0[..] {
            [on] => Ok(on),
            _ => Err(BuildError::WrongAxis("this part has exactly one limit: give it one axis")),
        }
    }

    /// Returns the dimension of a part that is counted by key.
    fn counted(&self) -> Result<Dimension, BuildError> {
        self.one().and_then(|on| counted(on).map(|()| on))
    }

    /// Returns the dimension of each limit of an atomic group.
    fn of_group<S: Store>(&self, limiter: &Strict<S>) -> Result<Box<[Dimension]>, BuildError> {
        let on: Box<[Dimension]> = self.0.as_slice().into();
        if on.len() != limiter.limits().len() {
            return Err(BuildError::WrongAxis("a shared limiter needs one axis for each of its limits"));
        }
        on.iter().try_for_each(|on| counted(*on))?;
        if limiter.counts_by_one_key() && on.iter().any(|other| other.key != on[0].key) {
            return Err(BuildError::WrongAxis("add limits that count by different keys with `limit_by`"));
        }
        if !limiter.needs_all() {
            return Err(BuildError::WrongAxis(
                "a limiter built with `any` cannot be an axis: build without `any`",
            ));
        }
        Ok(on)
    }

    fn fairness(&self) -> Result<Dimension, BuildError> {
        let on = self.one()?;
        let right = on.axis == Axis::Fairness;
        right.then_some(on).ok_or(BuildError::WrongAxis("a fair limiter belongs to the fairness axis"))
    }

    /// Guards count by the caller's key, or not by key at all.
    fn concurrency(&self) -> Result<(), BuildError> {
        let right = self.one()? == Axis::Concurrency.into();
        right
            .then_some(())
            .ok_or(BuildError::WrongAxis("a guard belongs to the concurrency axis, by the first key"))
    }
}

macro_rules! guards {
    ($($guard:ty),*) => {$(
        impl Part for $guard {
            fn join(self, on: &Dimensions, parts: &mut Parts) -> Result<(), BuildError> {
                on.concurrency()?;
                parts.slots = self.into();
                Ok(())
            }
        }
    )*};
}

guards!(Guard, KeyedGuard, SharedGuard);

/// A strict limiter is an atomic group; a leased one has one limit.
impl<S: Store, C: LeaseClock + 'static> Part for SharedLimiter<S, C> {
    fn join(self, on: &Dimensions, parts: &mut Parts) -> Result<(), BuildError> {
        let settler = parts.settler.clone();
        let background = self.store().background();
        match self.strict_only() {
            Some(limiter) => {
                let on = on.of_group(&limiter)?;
                parts.step(StoreStep { limiter, on, settler: settler.clone() });
            }
            None => {
                let on = on.counted()?;
                if matches!(self.limits()[0], Limit::Window(window) if window.is_budget()) {
                    return Err(BuildError::WrongAxis(
                        "a leased token budget cannot charge an estimate across the end of its window: \
                         lease a window limit",
                    ));
                }
                parts.step(SpendStep { meter: Arc::new(self), on, settler: settler.clone() });
            }
        }
        settler.run_on(background);
        Ok(())
    }
}

impl<C: LeaseClock + 'static> Part for SharedFairLimiter<C> {
    fn join(self, on: &Dimensions, parts: &mut Parts) -> Result<(), BuildError> {
        Arc::new(self).join(on, parts)
    }
}

impl<C: LeaseClock + 'static> Part for Arc<SharedFairLimiter<C>> {
    fn join(self, on: &Dimensions, parts: &mut Parts) -> Result<(), BuildError> {
        let (on, settler) = (on.fairness()?, parts.settler.clone());
        settler.run_on(self.background());
        parts.step(SpendStep { meter: self, on, settler });
        Ok(())
    }
}

impl<D: Clock + 'static> Part for FairLimiter<D> {
    fn join(self, on: &Dimensions, parts: &mut Parts) -> Result<(), BuildError> {
        Arc::new(self).join(on, parts)
    }
}

impl<D: Clock + 'static> Part for Arc<FairLimiter<D>> {
    fn join(self, on: &Dimensions, parts: &mut Parts) -> Result<(), BuildError> {
        let on = on.fairness()?;
        parts.step(FairnessStep { fairness: Box::new(self), key: on.key });
        Ok(())
    }
}

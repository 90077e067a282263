//! A limit of the rate axis and one of the cost axis, decided in one step, in two, or in process.

use std::sync::Arc;

use throttlekit::clock::ManualClock;
use throttlekit::policy::SharedPolicyBuilder;
use throttlekit::price::{Pricer, Prices, Refiner};
use throttlekit::store::{Charge, KeySpace, Store, StoreError};
use throttlekit::{Axis, BuildError, Guard, Limit, Policy, SharedLimiter, SharedPolicy};
use throttlekit_core::rate::State;
use throttlekit_core::rate::shared::ScriptEncoding;

use super::model::{AdmissionBug, Model, Setup};
use super::subject::{Asked, End, Heard, Subject};

const PREFIX: &str = "tk";
/// Both axes of a pair.
pub(super) const AXES: [Axis; 2] = [Axis::Rate, Axis::Cost];

/// Parts of a policy beside the two limits.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// The maximum number of concurrent calls.
    pub slots: Option<u32>,
    /// The source of prices.
    pub pricing: Option<Pricing>,
}

/// The source of prices.
#[derive(Clone, Debug)]
pub enum Pricing {
    /// Constant prices.
    Fixed(Prices),
    /// Prices that are refined as calls come.
    Refined(Refiner),
}

impl Pricing {
    fn pricer(&self) -> Pricer {
        match self {
            Self::Fixed(prices) => Pricer::fixed(*prices),
            Self::Refined(refiner) => Pricer::refined(refiner.clone()),
        }
    }

    fn prices(&self) -> Prices {
        match self {
            Self::Fixed(prices) => *prices,
            Self::Refined(refiner) => refiner.prices(),
        }
    }
}

impl Extras {
    fn policy<S: Store>(&self, store: &Arc<S>, name: &str) -> SharedPolicyBuilder<Arc<S>> {
        let mut builder = SharedPolicy::builder(store.clone(), name);
        if let Some(most) = self.slots {
            builder = builder.with(Axis::Concurrency, Guard::new(most).expect("a valid limit"));
        }
        match &self.pricing {
            Some(pricing) => builder.price(pricing.pricer()),
            None => builder,
        }
    }
}

/// Creates the variants in which a pair of limits is decided.
pub trait Pairs: Send + Sync + 'static {
    /// A variant with observable states.
    type Way: Way;
    /// The in-process variant.
    type Local: Subject;

    /// Creates the variant with both limits in one call to the store.
    fn fused(&self, name: &str, limits: [Limit; 2], extras: &Extras) -> Result<Self::Way, BuildError>;

    /// Creates the variant with one limit after the other, on the same store. Returns `None` where the first
    /// cannot be returned and the policy is rejected.
    fn sequential(
        &self,
        name: &str,
        limits: [Limit; 2],
        extras: &Extras,
    ) -> Result<Option<Self::Way>, BuildError>;

    /// Creates the variant with both limits in this process.
    fn local(
        &self,
        limits: [Limit; 2],
        clock: &ManualClock,
        extras: &Extras,
    ) -> Result<Self::Local, BuildError>;
}

/// A variant with observable states.
pub trait Way: Subject {
    /// Returns the state of a key in both limits.
    fn states(&self, key: &str) -> impl Future<Output = Result<[State; 2], StoreError>> + Send;

    /// Forgets the state of a key on an axis.
    fn forget(&self, axis: Axis, key: &str) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Pairs on a store.
#[derive(Debug)]
pub struct OnStore<S>(Arc<S>);

impl<S: Store> OnStore<S> {
    /// Creates pairs on this store.
    pub fn new(store: S) -> Self {
        Self(Arc::new(store))
    }
}

/// A policy on a store, and the names of its keys there.
#[derive(Debug)]
pub struct StoreWay<S> {
    policy: SharedPolicy,
    store: Arc<S>,
    forms: [ScriptEncoding; 2],
    spaces: [KeySpace; 2],
    /// True if both are in one atomic group.
    together: bool,
}

impl<S: Store> Pairs for OnStore<S> {
    type Way = StoreWay<S>;
    type Local = Arc<Policy<ManualClock>>;

    fn fused(&self, name: &str, limits: [Limit; 2], extras: &Extras) -> Result<StoreWay<S>, BuildError> {
        let policy = extras.policy(&self.0, name).rate(limits[0]).tokens(limits[1]).build()?;
        self.way(policy, limits, [(name, "rate"), (name, "cost")])
    }

    fn sequential(
        &self,
        name: &str,
        limits: [Limit; 2],
        extras: &Extras,
    ) -> Result<Option<StoreWay<S>>, BuildError> {
        let names = ["calls", "tokens"].map(|limit| format!("{name}/{limit}"));
        let [calls, tokens] = [0, 1].map(|i| SharedLimiter::new(self.0.clone(), &names[i], limits[i]));
        let policy = extras.policy(&self.0, "sequential").with(Axis::Rate, calls?);
        match policy.with(Axis::Cost, tokens?).build() {
            Err(BuildError::OrderOfLimits) if !limits[0].hands_back() => Ok(None),
            policy => self.way(policy?, limits, [(&names[0], ""), (&names[1], "")]).map(Some),
        }
    }

    fn local(
        &self,
        limits: [Limit; 2],
        clock: &ManualClock,
        extras: &Extras,
    ) -> Result<Arc<Policy<ManualClock>>, BuildError> {
        let mut policy = Policy::builder("local").rate(limits[0]).tokens(limits[1]);
        if let Some(most) = extras.slots {
            policy = policy.concurrency(most);
        }
        if let Some(pricing) = &extras.pricing {
            policy = policy.price(pricing.pricer());
        }
        Ok(Arc::new(policy.memory_budget(64 << 10).clock(clock.clone()).build()?))
    }
}

impl<S: Store> OnStore<S> {
    fn way(
        &self,
        policy: SharedPolicy,
        limits: [Limit; 2],
        named: [(&str, &str); 2],
    ) -> Result<StoreWay<S>, BuildError> {
        let forms = [ScriptEncoding::of(&limits[0])?, ScriptEncoding::of(&limits[1])?];
        let spaces = [0, 1].map(|i| KeySpace::new(PREFIX, named[i].0, named[i].1, &forms[i]));
        let together = named[0].0 == named[1].0;
        Ok(StoreWay { policy, store: self.0.clone(), forms, spaces, together })
    }
}

impl<S: Store> Subject for StoreWay<S> {
    type Held = <SharedPolicy as Subject>::Held;

    async fn admit(&self, ask: &Asked<'_>) -> Result<Heard<Self::Held>, StoreError> {
        Subject::admit(&self.policy, ask).await
    }

    async fn end(&self, held: Self::Held, end: End) -> Result<(), StoreError> {
        self.policy.end(held, end).await
    }
}

impl<S: Store> Way for StoreWay<S> {
    async fn states(&self, key: &str) -> Result<[State; 2], StoreError> {
        let names = self.spaces.each_ref().map(|space| space.key(key.as_bytes(), key.as_bytes()));
        let charge = |i: usize| Charge { key: &names[i], form: &self.forms[i], cost: 1 };
        let mut states = Vec::new();
        if self.together {
            states.extend(self.store.peek(&[charge(0), charge(1)]).await?.states);
        } else {
            states.extend(self.store.peek(&[charge(0)]).await?.states);
            states.extend(self.store.peek(&[charge(1)]).await?.states);
        }
        states.try_into().map_err(|_| StoreError::bad_state(&names[0]))
    }

    async fn forget(&self, axis: Axis, key: &str) -> Result<(), StoreError> {
        let space = &self.spaces[usize::from(axis == Axis::Cost)];
        self.store.reset(&[&space.key(key.as_bytes(), key.as_bytes())]).await
    }
}

/// The model with a bug, in every variant.
#[derive(Debug)]
pub struct SeededPairs {
    clock: ManualClock,
    bug: Option<AdmissionBug>,
}

impl SeededPairs {
    /// Creates pairs with this bug, or with none.
    pub fn new(clock: ManualClock, bug: Option<AdmissionBug>) -> Self {
        Self { clock, bug }
    }
}

impl Pairs for SeededPairs {
    type Way = Model;
    type Local = Model;

    fn fused(&self, _: &str, limits: [Limit; 2], extras: &Extras) -> Result<Model, BuildError> {
        self.local(limits, &self.clock, extras)
    }

    fn sequential(&self, _: &str, limits: [Limit; 2], extras: &Extras) -> Result<Option<Model>, BuildError> {
        self.local(limits, &self.clock, extras).map(Some)
    }

    fn local(&self, limits: [Limit; 2], clock: &ManualClock, extras: &Extras) -> Result<Model, BuildError> {
        let prices = extras.pricing.as_ref().map(Pricing::prices);
        let (rate, cost) = (Some(limits[0]), Some(limits[1]));
        let setup = Setup { slots: extras.slots, prices, rate, cost, fair: None };
        Ok(Model::new(setup, clock.clone(), self.bug))
    }
}

impl Way for Model {
    async fn states(&self, key: &str) -> Result<[State; 2], StoreError> {
        Ok(AXES.map(|axis| self.state(axis, key)))
    }

    async fn forget(&self, axis: Axis, key: &str) -> Result<(), StoreError> {
        Self::forget(self, axis, key);
        Ok(())
    }
}

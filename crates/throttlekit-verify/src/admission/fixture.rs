//! Builds the policy of a cell: on real stores, or as a model with a bug.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use throttlekit::clock::{Clock, ManualClock, WallClock};
use throttlekit::leasing::{Batch, Leasing};
use throttlekit::policy::SharedPolicyBuilder;
use throttlekit::price::{Pricer, Prices};
use throttlekit::rate::{Cadence, Timestamp};
use throttlekit::store::{Charge, KeySpace, SlotStore, Store, StoreError};
use throttlekit::{
    Axis, Concurrency, FairLimiter, Guard, Limit, Permit, Policy, SharedFairLimiter, SharedGuard,
    SharedLimiter, SharedPermit, SharedPolicy,
};
use throttlekit_core::rate::shared::ScriptEncoding;
use throttlekit_core::rate::{Rule, Window};

use super::cell::{Cell, Denier, Limits, Mix};
use super::matrix::{CALLS, COST};
use super::model::{AdmissionBug, Model, Setup, Ticket, shared};
use super::subject::{Asked, End, Heard, Subject, Watch};

const PREFIX: &str = "tk";
/// A limit that is never exhausted.
const LOOSE: u64 = 1_000_000;
const LOOSE_SLOTS: u32 = 100;
/// Units that are leased at once.
const BATCH: u64 = 8;
const HOUR: Duration = Duration::from_secs(3_600);

/// Builds fixtures from cells.
pub trait Bench: Send + Sync + 'static {
    /// The type of fixture it builds.
    type Fixture: Fixture;

    /// Builds a cell's policy under a unique name.
    fn fixture(&self, cell: &Cell, name: &str) -> impl Future<Output = Result<Self::Fixture, String>> + Send;
}

/// A policy with observable state.
pub trait Fixture: Subject {
    /// Returns every observable state: slots in flight, slots held, the state on stores.
    fn sight(&self) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// Returns the slots held on a store, if they are on one. A background task releases them.
    fn held_on_a_store(&self) -> impl Future<Output = Result<Option<u64>, StoreError>> + Send;

    /// Returns the units that the store has left for a call on a leased axis. The node holds the rest, or
    /// held it.
    fn left_to_lease(
        &self,
        ask: &Asked<'_>,
    ) -> impl Future<Output = Result<Option<(Axis, u64)>, StoreError>> + Send;

    /// Returns the observer of its decisions.
    fn watch(&self) -> &Watch;
}

/// The limits of a cell's axes. Three calls exhaust an axis that must deny.
struct Numbers<'a>(&'a Cell);

impl Numbers<'_> {
    fn of(&self, denier: Denier, tight: u64) -> Option<u64> {
        let units = if self.0.denies(denier) { tight } else { LOOSE };
        self.0.has(denier).then_some(units)
    }

    fn slots(&self) -> Option<u32> {
        let most = if self.0.denies(Denier::Concurrency) { CALLS } else { LOOSE_SLOTS };
        self.0.has(Denier::Concurrency).then_some(most)
    }

    fn prices(&self) -> Option<Prices> {
        self.0.has(Denier::Price).then(|| Prices::new(1.0, 0.0, 0.0).expect("sound prices"))
    }

    fn rate(&self) -> Option<Limit> {
        self.of(Denier::Rate, CALLS.into()).map(|units| self.window(units))
    }

    fn cost(&self) -> Option<Limit> {
        self.of(Denier::Cost, COST * u64::from(CALLS)).map(|units| self.window(units))
    }

    fn fair(&self) -> Option<u64> {
        self.of(Denier::Fairness, COST * u64::from(CALLS))
    }

    /// Returns a window of a day that does not end during the test, by any clock.
    fn window(&self, units: u64) -> Limit {
        let cadence = if self.0.reads_the_time() { day_from_here() } else { shared(units).cadence() };
        Window::new(units, cadence).expect("a sound window").into()
    }
}

/// Returns days of which one began an hour before the first call in this process.
fn day_from_here() -> Cadence {
    static ANCHOR: OnceLock<Timestamp> = OnceLock::new();
    let an_hour_ago = || Timestamp::from_nanos(WallClock.now().as_nanos() - HOUR.as_nanos() as u64);
    Cadence::Every { length: 24 * HOUR, anchor: *ANCHOR.get_or_init(an_hour_ago) }
}

/// A bench on one store, or on two of the same kind.
pub struct RealBench<S> {
    stores: [Arc<S>; 2],
    clock: ManualClock,
}

impl<S> RealBench<S> {
    /// Creates a bench on these stores, which read this clock.
    pub fn new(stores: [S; 2], clock: ManualClock) -> Self {
        Self { stores: stores.map(Arc::new), clock }
    }
}

/// A real policy, and access to its state.
pub struct RealFixture<S> {
    policy: Either<Arc<Policy<ManualClock>>, SharedPolicy>,
    guard: Option<Guard>,
    slots: Option<SharedGuard>,
    peeks: Vec<Peek<S>>,
    leased: Option<(Axis, Arc<S>, KeySpace, ScriptEncoding)>,
    watch: Arc<Watch>,
}

/// One state on a store.
struct Peek<S> {
    store: Arc<S>,
    name: String,
    form: ScriptEncoding,
}

/// A local or a shared policy.
pub enum Either<A, B> {
    /// In process.
    Local(A),
    /// Shared.
    Shared(B),
}

impl<S: Store + SlotStore> Bench for RealBench<S> {
    type Fixture = RealFixture<S>;

    async fn fixture(&self, cell: &Cell, name: &str) -> Result<RealFixture<S>, String> {
        let numbers = Numbers(cell);
        let mut fixture = RealFixture {
            policy: Either::Local(Arc::new(
                Policy::builder("none").clock(self.clock.clone()).build().map_err(told)?,
            )),
            guard: None,
            slots: None,
            peeks: Vec::new(),
            leased: None,
            watch: Arc::default(),
        };
        fixture.policy = match cell.mix {
            Mix::Policy => Either::Local(Arc::new(self.local(&numbers, &mut fixture)?)),
            Mix::Shared { slots, limits, fair } => {
                let builder =
                    SharedPolicy::builder(self.stores[0].clone(), name).observer(fixture.watch.clone());
                let builder = self.slots(builder, &numbers, slots.then_some(name), &mut fixture)?;
                let builder = match numbers.prices() {
                    Some(prices) => builder.price(Pricer::fixed(prices)),
                    None => builder,
                };
                let builder = self.limits(builder, &numbers, limits, name, &mut fixture)?;
                let builder = self.fair(builder, &numbers, fair.then_some(name))?;
                Either::Shared(builder.build().map_err(told)?)
            }
        };
        Ok(fixture)
    }
}

impl<S: Store + SlotStore> RealBench<S> {
    fn local(
        &self,
        numbers: &Numbers<'_>,
        fixture: &mut RealFixture<S>,
    ) -> Result<Policy<ManualClock>, String> {
        let mut builder = Policy::builder("cell")
            .memory_budget(64 << 10)
            .clock(self.clock.clone())
            .observer(fixture.watch.clone());
        if let Some(most) = numbers.slots() {
            let guard = Guard::new(most).map_err(told)?;
            builder = builder.guard(guard.clone());
            fixture.guard = Some(guard);
        }
        if let Some(prices) = numbers.prices() {
            builder = builder.price(Pricer::fixed(prices));
        }
        if let Some(limit) = numbers.rate() {
            builder = builder.limit(Axis::Rate.by(1), limit);
        }
        if let Some(limit) = numbers.cost() {
            builder = builder.limit(Axis::Cost.by(2), limit);
        }
        if let Some(units) = numbers.fair() {
            builder = builder.fair_limiter(self.fair_here(units)?);
        }
        builder.build().map_err(told)
    }

    fn fair_here(&self, units: u64) -> Result<FairLimiter<ManualClock>, String> {
        FairLimiter::builder(shared(units)).tenants_max(16).clock(self.clock.clone()).build().map_err(told)
    }

    fn slots(
        &self,
        builder: SharedPolicyBuilder<Arc<S>>,
        numbers: &Numbers<'_>,
        shared_as: Option<&str>,
        fixture: &mut RealFixture<S>,
    ) -> Result<SharedPolicyBuilder<Arc<S>>, String> {
        let Some(most) = numbers.slots() else { return Ok(builder) };
        let Some(name) = shared_as else {
            let guard = Guard::new(most).map_err(told)?;
            fixture.guard = Some(guard.clone());
            return Ok(builder.with(Axis::Concurrency, guard));
        };
        let slots = SharedGuard::builder(self.stores[0].clone(), name, Concurrency::per_key(most));
        let slots = slots.clock(self.clock.clone()).build().map_err(told)?;
        fixture.slots = Some(slots.clone());
        Ok(builder.with(Axis::Concurrency, slots))
    }

    fn limits(
        &self,
        builder: SharedPolicyBuilder<Arc<S>>,
        numbers: &Numbers<'_>,
        kept: Limits,
        name: &str,
        fixture: &mut RealFixture<S>,
    ) -> Result<SharedPolicyBuilder<Arc<S>>, String> {
        let [first, second] = self.stores.each_ref();
        let (rate, cost) = (numbers.rate(), numbers.cost());
        let mut builder = builder;
        if kept == Limits::OneStore {
            let both = rate.is_some() && cost.is_some();
            for (limit, on, limit_name, key) in
                [(rate, Axis::Rate.by(1), "rate1", "r"), (cost, Axis::Cost.by(2), "cost2", "t")]
            {
                let Some(limit) = limit else { continue };
                // Limits by different keys have no routing key.
                let home = if both { "" } else { key };
                let name_of = |space: &KeySpace| space.key(home.as_bytes(), key.as_bytes());
                fixture.peeks.push(Peek::new(first, name, limit_name, limit, name_of)?);
                builder = builder.limit(on, limit);
            }
            return Ok(builder);
        }
        let there = if kept == Limits::TwoStores { second } else { first };
        for (limit, store, axis, by, key, leased) in [
            (rate, first, Axis::Rate, 1, "r", kept == Limits::LeasedRate),
            (cost, there, Axis::Cost, 2, "t", kept == Limits::LeasedCost),
        ] {
            let Some(limit) = limit else { continue };
            let (name, on) = (format!("{name}/{key}"), axis.by(by));
            if kept == Limits::InProcess {
                builder = builder.local(on, limit);
            } else if leased {
                let form = ScriptEncoding::of(&limit).map_err(told)?;
                let space = KeySpace::new(PREFIX, &name, "", &form);
                fixture.leased = Some((axis, store.clone(), space, form));
                let leasing = Leasing::new().share(1).keys_max(64).batch(Batch::Fixed(BATCH));
                let leasing = leasing.refill_at_percent(0).return_after(None);
                let limiter = SharedLimiter::builder(store.clone(), &name, limit).leased_with(leasing);
                builder = builder.with(on, limiter.clock(self.clock.clone()).build().map_err(told)?);
            } else {
                let limiter = SharedLimiter::new(store.clone(), &name, limit).map_err(told)?;
                let key = key.as_bytes();
                fixture.peeks.push(Peek::new(store, &name, "", limit, |space| space.key(key, key))?);
                builder = builder.with(on, limiter);
            }
        }
        Ok(builder)
    }

    fn fair(
        &self,
        builder: SharedPolicyBuilder<Arc<S>>,
        numbers: &Numbers<'_>,
        shared_as: Option<&str>,
    ) -> Result<SharedPolicyBuilder<Arc<S>>, String> {
        let Some(units) = numbers.fair() else { return Ok(builder) };
        let Some(name) = shared_as else { return Ok(builder.with(Axis::Fairness, self.fair_here(units)?)) };
        let name = format!("{name}/f");
        let limiter = SharedFairLimiter::builder(self.stores[0].clone(), &name, shared(units));
        let limiter = limiter.quantum(BATCH).tenants_max(16).clock(self.clock.clone());
        Ok(builder.with(Axis::Fairness, limiter.build().map_err(told)?))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` takes it")]
fn told(error: impl ToString) -> String {
    error.to_string()
}

impl<S: Store> Peek<S> {
    fn new(
        store: &Arc<S>,
        policy: &str,
        limit_name: &str,
        limit: Limit,
        name: impl FnOnce(&KeySpace) -> String,
    ) -> Result<Self, String> {
        let form = ScriptEncoding::of(&limit).map_err(told)?;
        let name = name(&KeySpace::new(PREFIX, policy, limit_name, &form));
        Ok(Self { store: store.clone(), name, form })
    }

    async fn look(&self) -> Result<String, StoreError> {
        let charge = Charge { key: &self.name, form: &self.form, cost: 1 };
        let sight = self.store.peek(&[charge]).await?;
        Ok(format!("{:?}", sight.states))
    }
}

impl<S: Store + SlotStore> Subject for RealFixture<S> {
    type Held = Either<Permit<'static, ManualClock>, SharedPermit>;

    async fn admit(&self, ask: &Asked<'_>) -> Result<Heard<Self::Held>, StoreError> {
        Ok(match &self.policy {
            Either::Local(policy) => Subject::admit(policy, ask).await?.map(Either::Local),
            Either::Shared(policy) => Subject::admit(policy, ask).await?.map(Either::Shared),
        })
    }

    async fn end(&self, held: Self::Held, end: End) -> Result<(), StoreError> {
        match (&self.policy, held) {
            (Either::Local(policy), Either::Local(held)) => policy.end(held, end).await,
            (Either::Shared(policy), Either::Shared(held)) => policy.end(held, end).await,
            _ => Ok(()),
        }
    }
}

impl<S: Store + SlotStore> Fixture for RealFixture<S> {
    async fn sight(&self) -> Result<Vec<String>, StoreError> {
        let mut seen = Vec::new();
        if let Some(guard) = &self.guard {
            seen.push(format!("{} in flight", guard.stats().in_flight));
        }
        seen.extend(self.held_on_a_store().await?.map(|held| format!("{held} held")));
        for peek in &self.peeks {
            seen.push(peek.look().await?);
        }
        Ok(seen)
    }

    async fn held_on_a_store(&self) -> Result<Option<u64>, StoreError> {
        match &self.slots {
            Some(slots) => slots.peek("ann").await.map(|seen| Some(seen.limit - seen.remaining)),
            None => Ok(None),
        }
    }

    async fn left_to_lease(&self, ask: &Asked<'_>) -> Result<Option<(Axis, u64)>, StoreError> {
        let Some((axis, store, space, form)) = &self.leased else { return Ok(None) };
        let key = if *axis == Axis::Rate { ask.rate } else { ask.tokens }.as_bytes();
        let name = space.key(key, key);
        let sight = store.peek(&[Charge { key: &name, form, cost: 1 }]).await?;
        let left = sight.states.first().map(|state| form.limit().peek(state, sight.now).remaining);
        Ok(left.map(|left| (*axis, left)))
    }

    fn watch(&self) -> &Watch {
        &self.watch
    }
}

/// A bench of models with a bug.
#[derive(Debug)]
pub struct SeededBench {
    clock: ManualClock,
    bug: Option<AdmissionBug>,
}

impl SeededBench {
    /// Creates a bench with this bug, or with none.
    pub fn new(clock: ManualClock, bug: Option<AdmissionBug>) -> Self {
        Self { clock, bug }
    }
}

/// A model, and the observer of its decisions.
pub struct SeededFixture {
    model: Model,
    watch: Arc<Watch>,
}

impl Bench for SeededBench {
    type Fixture = SeededFixture;

    async fn fixture(&self, cell: &Cell, _: &str) -> Result<SeededFixture, String> {
        let numbers = Numbers(cell);
        let setup = Setup {
            slots: numbers.slots(),
            prices: numbers.prices(),
            rate: numbers.rate(),
            cost: numbers.cost(),
            fair: numbers.fair(),
        };
        let watch = Arc::<Watch>::default();
        let model = Model::new(setup, self.clock.clone(), self.bug).watched(watch.clone());
        Ok(SeededFixture { model, watch })
    }
}

impl Subject for SeededFixture {
    type Held = Ticket;

    async fn admit(&self, ask: &Asked<'_>) -> Result<Heard<Ticket>, StoreError> {
        Ok(self.model.ask(ask))
    }

    async fn end(&self, held: Ticket, end: End) -> Result<(), StoreError> {
        self.model.leave(&held, end);
        Ok(())
    }
}

impl Fixture for SeededFixture {
    async fn sight(&self) -> Result<Vec<String>, StoreError> {
        Ok(vec![format!("{} in flight", self.model.in_flight())])
    }

    async fn held_on_a_store(&self) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    async fn left_to_lease(&self, _: &Asked<'_>) -> Result<Option<(Axis, u64)>, StoreError> {
        Ok(None)
    }

    fn watch(&self) -> &Watch {
        &self.watch
    }
}

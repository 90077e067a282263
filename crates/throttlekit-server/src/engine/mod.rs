//! The running policies. APIs translate; only the engine decides, and only with the library.

mod admit;
mod admitted_work;
mod answer;
mod backend;
mod by_key;
mod call_queue;
mod coalesced;
mod concurrency;
mod failures;
mod fairness;
mod grants;
mod held_leases;
mod lease_capacity;
mod leases;
mod lender;
mod limit_group;
mod observer;
mod operator;
mod overrides;
mod own_limits;
mod policy_call;
mod policy_set;
mod recovery;
mod reservations;
mod running_policy;
mod shared_record;
mod unit_leases;
mod variant;
mod view;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use throttlekit::Axis;
use throttlekit::clock::{BootClock, Clock, PreciseClock};
use throttlekit::observe::Event;
use throttlekit::rate::{Forecast, Timestamp};
use throttlekit::store::{DebitId, StoreError};

pub use answer::{Admitted, Answered, Granted, HeartbeatResult, Refusal, WorkLease};
pub use backend::Backend;
pub use coalesced::Coalesced;
pub use concurrency::GuardView;
use failures::Failures;
pub use failures::StoreFailure;
pub use held_leases::{HeldLease, LeaseFilter};
pub use lease_capacity::LeaseUsage;
use leases::Leases;
pub use observer::DecisionObserver;
pub use operator::{Expiry, OverrideView};
use overrides::Overrides;
pub use overrides::{BudgetChange, Limits, OVERRIDES_MAX, Override, OverridesView, Plan, RateChange, Terms};
pub(crate) use own_limits::OwnLimit;
pub(crate) use policy_call::COST_MAX;
pub use policy_call::{CostHint, Ended, HandBack, KEY_BYTES_MAX, MANY_MAX, PolicyCall, WorkTerms};
use policy_set::PolicySet;
use recovery::Recovery;
use running_policy::RunningPolicy;
use unit_leases::{UnitLease, UnitLeases};
pub use view::{PolicyView, Reloaded, StoreHealth};

use crate::audit::Actions;
use crate::policy::{PolicyFile, PolicySpec};
use crate::principal::Principal;
use crate::server_error::ServerError;
use crate::share::Turn;

/// A future whose type would be too large to name or to inline.
type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Interval at which expired leases are removed.
const SWEEP_EVERY: Duration = Duration::from_millis(250);

/// Options of an engine.
#[derive(Clone)]
pub struct EngineOptions {
    /// Store of the counts.
    pub backend: Backend,
    /// Region of this instance, for policies that share a budget between regions.
    pub region: String,
    /// Name of this instance among those of its region, whose weights add up. Default: none, for a region of one
    /// instance. A pool counts at most 256 names in a window, so a name should survive a restart.
    pub instance: String,
    /// Maximum number of leases that clients hold here.
    pub leases_max: u32,
    /// Maximum number of leases that one principal holds here.
    pub leases_per_principal_max: u32,
    /// Set if a previous process may have been killed while its clients held slots. Slots that only that process
    /// counted are not granted for one `lease_for` after the start. Default: false.
    pub recovers: bool,
    /// Observes every decision.
    pub observer: Arc<dyn DecisionObserver>,
}

impl EngineOptions {
    /// Creates options for this store, with one region and no observer.
    pub fn over(backend: Backend) -> Self {
        Self {
            backend,
            region: "default".into(),
            instance: String::new(),
            leases_max: 100_000,
            leases_per_principal_max: 100_000,
            recovers: false,
            observer: Arc::new(()),
        }
    }

    /// Returns the name of this instance in the pools of fair budgets.
    fn pool_name(&self) -> String {
        match &*self.instance {
            "" => self.region.clone(),
            instance => format!("{}/{instance}", self.region),
        }
    }

    /// Returns warnings about these options with the policies of this file.
    pub(crate) fn warnings(&self, file: &PolicyFile) -> Vec<String> {
        let is_alone = matches!(self.backend, Backend::Memory(_)) || !self.instance.is_empty();
        let shares = |spec: &PolicySpec| spec.fair.as_ref().is_some_and(|fair| fair.regions);
        let shared = file.policies.iter().filter(|(_, spec)| !is_alone && shares(spec));
        let warning = |(name, _): (&String, _)| {
            format!(
                "policy `{name}`: `regions` without --node-id: if several servers have the region `{}`, only the \
                 weight of the last request counts; give each server its own --node-id",
                self.region
            )
        };
        shared.map(warning).collect()
    }
}

/// Maximum number of calls of a batch that are decided in one turn: what Redis executes in a millisecond.
pub(crate) const PART_MAX: usize = 32;

/// The running policies. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    options: EngineOptions,
    running: ArcSwap<PolicySet>,
    leases: Leases,
    recovery: Recovery,
    draining: tokio::sync::watch::Sender<bool>,
    unit_leases: UnitLeases,
    failures: Arc<Failures>,
    overrides: Overrides,
    actions: Actions,
    clock: PreciseClock,
    /// Held during a reload.
    reloading: tokio::sync::Mutex<()>,
}

impl Engine {
    /// Runs the policies of a file. The error names those that cannot run, with the cause. Needs a tokio runtime.
    pub fn start(options: EngineOptions, file: PolicyFile) -> Result<Self, ServerError> {
        let failures = Arc::default();
        let (running, _) = PolicySet::of(file, &options, &failures, None)?;
        let leases = Leases::new(options.leases_max, options.leases_per_principal_max);
        let recovery = Recovery::starting(options.recovers, BootClock.now());
        let overrides = Overrides::new(&options.backend, &failures);
        let shared = Arc::new(Shared {
            options,
            running: ArcSwap::from_pointee(running),
            leases,
            recovery,
            draining: tokio::sync::watch::Sender::new(false),
            unit_leases: UnitLeases::default(),
            overrides,
            failures,
            actions: Actions::default(),
            clock: PreciseClock::new(),
            reloading: tokio::sync::Mutex::default(),
        });
        let sweeping = Arc::downgrade(&shared);
        tokio::spawn(async move {
            let mut every = tokio::time::interval(SWEEP_EVERY);
            loop {
                every.tick().await;
                let Some(shared) = sweeping.upgrade() else { return };
                shared.leases.expire();
            }
        });
        Ok(Self { shared })
    }

    /// Builds the policies of a file and drops them. Uses no store: shared policies would write to it. Needs a tokio
    /// runtime.
    pub(crate) fn validate(options: &EngineOptions, file: PolicyFile) -> Result<(), ServerError> {
        let options = EngineOptions { backend: Backend::memory(), ..options.clone() };
        PolicySet::of(file, &options, &Arc::default(), None).map(drop)
    }

    fn policy(&self, name: &str) -> Result<Arc<RunningPolicy>, Refusal> {
        let running = self.shared.running.load();
        running.policies.get(name).cloned().ok_or_else(|| Refusal::UnknownPolicy(name.into()))
    }

    /// Decides, and charges if allowed. For policies without slots.
    pub async fn check(&self, ask: PolicyCall<'_>) -> Result<Answered, Refusal> {
        match self.check_now(&ask) {
            Some(answer) => answer,
            None => {
                let later: Later<'_, _> = Box::pin(self.check_by(ask, None));
                later.await
            }
        }
    }

    /// Checks at once, if that needs no store: `None` if it does. For callers that would set a timer otherwise.
    pub(crate) fn check_now(&self, ask: &PolicyCall<'_>) -> Option<Result<Answered, Refusal>> {
        if let Err(refusal) = ask.judge() {
            return Some(Err(refusal));
        }
        let running = self.shared.running.load();
        let served = running.policies.get(ask.policy)?;
        self.check_here(served, ask, self.shared.clock.now())
    }

    fn check_here(
        &self,
        served: &RunningPolicy,
        ask: &PolicyCall<'_>,
        since: Timestamp,
    ) -> Option<Result<Answered, Refusal>> {
        let answer = served.variant(ask.key).check_now(&ask.call())?;
        Some(answer.map(|answer| self.told(served, ask, answer, since)))
    }

    /// Checks the same, by a limit of its own in place of the policy's if it has one.
    pub(crate) async fn check_by(
        &self,
        ask: PolicyCall<'_>,
        own_limit: Option<OwnLimit>,
    ) -> Result<Answered, Refusal> {
        ask.judge()?;
        let (served, since) = (self.policy(ask.policy)?, self.shared.clock.now());
        let answer = served.variant_by(ask.key, own_limit)?.check(ask.call()).await?;
        Ok(self.told(&served, &ask, answer, since))
    }

    /// Charges whatever is left, for work that is done. For policies with rates only.
    pub(crate) async fn charge(&self, ask: PolicyCall<'_>) -> Result<Answered, Refusal> {
        ask.judge()?;
        let (served, since) = (self.policy(ask.policy)?, self.shared.clock.now());
        let answer = served.variant(ask.key).charge(ask.call()).await?;
        Ok(self.told(&served, &ask, answer, since))
    }

    /// Returns units that were charged, to the window of this instant. Returns what is left then.
    pub(crate) async fn refund(&self, ask: PolicyCall<'_>) -> Result<Answered, Refusal> {
        ask.judge()?;
        let served = self.policy(ask.policy)?;
        let answer = served.variant(ask.key).refund(ask.call()).await?;
        Ok(if served.spec.shadow { answer.shadowed() } else { answer })
    }

    /// Checks several calls of one cost, in one batch where the store allows it; responses have the order of the calls.
    /// Each call is all of its keys, the first one first.
    pub async fn check_many(
        &self,
        policy: &str,
        calls: &[Vec<&[u8]>],
        cost: u64,
    ) -> Result<Vec<Answered>, Refusal> {
        self.decide_many(policy, &policy_call::many(policy, calls, cost)?).await
    }

    /// Decides requests that were validated.
    async fn decide_many(&self, policy: &str, asks: &[PolicyCall<'_>]) -> Result<Vec<Answered>, Refusal> {
        let (served, since) = (self.policy(policy)?, self.shared.clock.now());
        let many: Later<'_, Result<Vec<_>, _>> = Box::pin(served.check_many(asks));
        let answers = many.await?;
        let each = asks.iter().zip(answers);
        each.map(|(ask, answer)| Ok(self.told(&served, ask, answer?, since))).collect()
    }

    /// Checks several calls to one policy, each as [`check`](Self::check) does, in one batch where the store allows it;
    /// results have the order of the calls. One that is refused does not affect the others.
    pub(crate) async fn check_each(
        &self,
        policy: &str,
        asks: &[PolicyCall<'_>],
    ) -> Vec<Result<Answered, Refusal>> {
        let (served, since) = match self.policy(policy) {
            Ok(served) => (served, self.shared.clock.now()),
            Err(unknown) => return asks.iter().map(|_| Err(unknown.clone())).collect(),
        };
        let answers: Later<'_, Vec<_>> = Box::pin(served.check_each(asks));
        let each = asks.iter().zip(answers.await);
        each.map(|(ask, answer)| Ok(self.told(&served, ask, answer?, since))).collect()
    }

    /// Checks a batch part by part, each in the caller's turn: no other caller waits for a whole batch. All of it is
    /// validated first; charged parts stay charged even if a later one is not decided.
    pub(crate) async fn check_parts(
        &self,
        turn: Option<&Turn>,
        policy: &str,
        calls: &[Vec<&[u8]>],
        cost: u64,
    ) -> Result<Vec<Answered>, Refusal> {
        let asks = policy_call::many(policy, calls, cost)?;
        let mut answers = Vec::with_capacity(asks.len());
        for part in asks.chunks(PART_MAX) {
            if !answers.is_empty() {
                // A whole batch in one poll would hold a thread for milliseconds.
                tokio::task::yield_now().await;
            }
            if let Some(turn) = turn
                && !turn.next(part.len()).await
            {
                return Err(StoreError::Overloaded.into());
            }
            answers.extend(self.decide_many(policy, part).await?);
        }
        Answered::all_decided(answers)
    }

    /// Returns what is left, without charging.
    pub async fn peek(&self, ask: PolicyCall<'_>) -> Result<Answered, Refusal> {
        self.peek_by(ask, None).await
    }

    /// Peeks by a limit of its own in place of the policy's, if it has one.
    pub(crate) async fn peek_by(
        &self,
        ask: PolicyCall<'_>,
        own_limit: Option<OwnLimit>,
    ) -> Result<Answered, Refusal> {
        ask.judge()?;
        let served = self.policy(ask.policy)?;
        let answer = served.variant_by(ask.key, own_limit)?.peek(ask.call()).await?;
        Ok(if served.spec.shadow { answer.shadowed() } else { answer })
    }

    /// Forgets what the keys of a call have used. Units that instances or clients have leased stay with them.
    pub async fn reset(&self, ask: PolicyCall<'_>) -> Result<(), Refusal> {
        ask.judge()?;
        let served = self.policy(ask.policy)?;
        served.variant(ask.key).reset(ask.call()).await
    }

    /// Returns what can be spent, now and later.
    pub async fn forecast(&self, ask: PolicyCall<'_>) -> Result<Forecast, Refusal> {
        ask.judge()?;
        let served = self.policy(ask.policy)?;
        served.variant(ask.key).forecast(ask.call()).await
    }

    /// Debits the token budgets for what was produced, all or none: the cost is the tokens. A debit with an idempotency key counts
    /// once.
    pub async fn debit(&self, ask: PolicyCall<'_>, name: Option<DebitId>) -> Result<Answered, Refusal> {
        ask.judge()?;
        let (served, since) = (self.policy(ask.policy)?, self.shared.clock.now());
        let answer = served.variant(ask.key).debit(ask.call(), name).await?;
        Ok(self.told(&served, &ask, answer, since))
    }

    /// Leases units of a limit to a client, after returning what is left of an earlier loan. The cost is the requested
    /// number.
    pub async fn reserve(
        &self,
        who: &Principal,
        ask: PolicyCall<'_>,
        back: Option<HandBack>,
    ) -> Result<Granted, Refusal> {
        self.reserve_at_least(who, ask, 1, back).await
    }

    /// Leases at least `least` units or none. Above the policy's maximum per lease, `least` counts as that maximum.
    pub async fn reserve_at_least(
        &self,
        who: &Principal,
        ask: PolicyCall<'_>,
        least: u64,
        back: Option<HandBack>,
    ) -> Result<Granted, Refusal> {
        ask.judge()?;
        let (served, since) = (self.policy(ask.policy)?, self.shared.clock.now());
        let variant = served.variant(ask.key).clone();
        if variant.is_unlimited() {
            return Ok(Granted::freely(ask.cost));
        }
        if let Some(denied) = variant.denies() {
            let told = self.told(&served, &ask, denied, since);
            return Ok(if told.shadow_denied { Granted::freely(ask.cost) } else { Granted::nothing() });
        }
        let no_lender = "this policy leases nothing to clients: set `fleet: {}`";
        let lender = variant.lender.as_ref().ok_or_else(|| Refusal::Unsupported(no_lender.into()))?;
        variant.has_keys(1 + ask.others.len())?;
        let (owner, unit_leases, keys) = (who.owner(), &self.shared.unit_leases, ask.keys());
        if let Some(back) = back
            && let Some(loan) = unit_leases.take(back.loan, owner, ask.policy, &keys)
        {
            lender.take_back(&keys, back.loan, loan.epoch, back.units.min(loan.units)).await;
        }
        if ask.cost == 0 {
            return Ok(Granted::nothing());
        }
        let lending = Box::pin(lender.lend(&keys, ask.cost, least)).await?;
        let mut granted = lending.granted;
        if let Some(epoch) = lending.epoch {
            let (policy, keys) = (ask.policy.into(), ask.owned_keys());
            let (units, until) = (granted.units, granted.until);
            granted.loan =
                unit_leases.note(UnitLease { owner, policy, keys, epoch, units, until }, lending.now);
        }
        let asked = PolicyCall { cost: granted.units, ..ask };
        let told =
            self.told(&served, &asked, Answered::of(lending.decision, lending.guarantee, Axis::Rate), since);
        Ok(if told.shadow_denied { Granted::freely(ask.cost) } else { granted })
    }

    /// Notifies the observer, and allows the request if a policy in shadow mode denied it.
    fn told(
        &self,
        served: &RunningPolicy,
        ask: &PolicyCall<'_>,
        answer: Answered,
        since: Timestamp,
    ) -> Answered {
        let event = Event {
            policy: &served.name,
            key: ask.key,
            cost: ask.cost,
            decision: answer.decision,
            denied_by: answer.denied_by(),
            limit_name: answer.limit_name,
            guarantee: answer.guarantee,
        };
        let shadow = served.spec.shadow;
        self.shared.options.observer.decided(&event, shadow, self.shared.clock.now().since(since));
        if shadow { answer.shadowed() } else { answer }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn regions_without_an_instance_name_are_warned_of() {
        let load = |fair: &str| {
            let file = format!("version: 1\npolicies: {{tokens: {{fair: {{limit: 90, per: 1m{fair}}}}}}}\n");
            crate::policy::load(&file).unwrap().0
        };
        let store = throttlekit_redis::RedisStore::builder("redis://127.0.0.1:1");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let store = runtime.block_on(store.runtime(runtime.handle().clone()).connect()).unwrap();
        let mut options = EngineOptions::over(Backend::redis(store));
        let shared = load(", regions: true");
        let warnings = options.warnings(&shared);
        assert!(warnings[0].contains("policy `tokens`") && warnings[0].contains("--node-id"), "{warnings:?}");
        assert!(options.warnings(&load("")).is_empty(), "nothing is shared between regions");
        options.instance = "one".into();
        assert!(options.warnings(&shared).is_empty(), "it has a name");
        let alone = EngineOptions::over(Backend::memory());
        assert!(alone.warnings(&shared).is_empty(), "no other server shares this store");
    }

    #[tokio::test]
    async fn other_tasks_run_between_the_parts_of_a_batch() {
        let file = "version: 1\npolicies: {api: {rate: {limit: 5, per: 1s}}}\n";
        let (file, _) = crate::policy::load(file).unwrap();
        let engine = Engine::start(EngineOptions::over(Backend::memory()), file).unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        let other = tokio::spawn({
            let ran = ran.clone();
            async move {
                loop {
                    ran.fetch_add(1, Relaxed);
                    tokio::task::yield_now().await;
                }
            }
        });
        let keys: Vec<String> = (0..10 * PART_MAX).map(|key| key.to_string()).collect();
        let calls: Vec<_> = keys.iter().map(|key| vec![key.as_bytes()]).collect();
        let answers = engine.check_parts(None, "api", &calls, 1).await.unwrap();
        other.abort();
        assert_eq!(answers.len(), keys.len());
        assert!(ran.load(Relaxed) >= 9, "it ran {} times during ten parts", ran.load(Relaxed));
    }
}

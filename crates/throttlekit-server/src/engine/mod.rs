//! Policies that run. Doors translate; only this decides, and only by what the library decides.

mod answer;
mod ask;
mod backend;
mod failures;
mod leases;
mod lend;
mod limits;
mod loans;
mod served;
mod sharing;
mod slots;
mod variant;
mod view;
mod witness;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use throttlekit::admission::{Call, Event};
use throttlekit::fair::TenantShare;
use throttlekit::store::{DebitId, LeaseId};
use throttlekit::{Axis, Clock, Forecast, PreciseClock, Timestamp};

pub use answer::{Admitted, Answered, Beats, Granted, Held, Refusal};
pub use ask::{Ask, Ended, HandBack, KEY_BYTES_MAX, KEYS_MAX, MANY_MAX};
pub use backend::Backend;
use failures::Failures;
pub use failures::StoreFailure;
use leases::{Leases, NotDebited};
pub use lend::{LENT_FOR, LENT_MAX};
use limits::Later;
use loans::{Loan, Loans};
pub use served::LEASE_FOR;
use served::{Place, Served};
pub use variant::HELD_FOR;
use variant::Variant;
pub use view::{GuardView, PolicyView, Reloaded, StoreHealth};
pub use witness::Witness;

use crate::access::Principal;
use crate::policy::PolicyFile;

/// How often leases are looked at that nobody asks about.
const SWEEP_EVERY: Duration = Duration::from_millis(250);
/// How often it is looked whether anyone still asks a policy that is gone.
const UNUSED_TRIES_MAX: u32 = 40;
/// How long a server that stops waits for stores to be told what was given back.
const SETTLE_MAX: Duration = Duration::from_secs(2);

/// What an engine is made of.
#[derive(Clone)]
pub struct EngineOptions {
    /// Where counts are kept.
    pub backend: Backend,
    /// The region of this instance, for policies that share a budget between regions.
    pub region: String,
    /// How many leases clients may hold here.
    pub leases_max: u32,
    /// How many of them one principal may hold.
    pub leases_per_principal_max: u32,
    /// Who is told of every decision.
    pub witness: Arc<dyn Witness>,
}

impl EngineOptions {
    /// Over this store, for one region, watched by nobody.
    pub fn over(backend: Backend) -> Self {
        Self {
            backend,
            region: "default".into(),
            leases_max: 100_000,
            leases_per_principal_max: 100_000,
            witness: Arc::new(()),
        }
    }
}

/// The running policies. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    options: EngineOptions,
    running: ArcSwap<Running>,
    leases: Leases,
    loans: Loans,
    failures: Arc<Failures>,
    clock: PreciseClock,
    /// One reload at a time.
    reloading: tokio::sync::Mutex<()>,
}

/// What one file put in force.
struct Running {
    file: Arc<PolicyFile>,
    policies: HashMap<Box<str>, Arc<Served>>,
}

impl Engine {
    /// Runs the policies of a file, or says which cannot be run and why. Needs a tokio runtime.
    pub fn start(options: EngineOptions, file: PolicyFile) -> Result<Self, String> {
        let failures = Arc::default();
        let (running, _) = Running::of(file, &options, &failures, None)?;
        let leases = Leases::new(options.leases_max, options.leases_per_principal_max);
        let shared = Arc::new(Shared {
            options,
            running: ArcSwap::from_pointee(running),
            leases,
            loans: Loans::default(),
            failures,
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

    fn policy(&self, name: &str) -> Result<Arc<Served>, Refusal> {
        let running = self.shared.running.load();
        running.policies.get(name).cloned().ok_or_else(|| Refusal::UnknownPolicy(name.into()))
    }

    /// Decides, and charges if allowed. For policies without slots.
    pub async fn check(&self, ask: Ask<'_>) -> Result<Answered, Refusal> {
        ask.judge()?;
        let (served, since) = (self.policy(ask.policy)?, self.shared.clock.now());
        let answer = served.variant(ask.key).check(&ask.keys(), ask.cost).await?;
        Ok(self.told(&served, &ask, answer, since))
    }

    /// The same for several keys, in one flight where the store allows it; the answers in the order of the keys.
    pub async fn check_many(
        &self,
        policy: &str,
        keys: &[&[u8]],
        cost: u64,
    ) -> Result<Vec<Answered>, Refusal> {
        ask::judge_many(keys)?;
        let asks: Vec<_> = keys.iter().map(|key| Ask { policy, key, others: &[], cost }).collect();
        asks.iter().try_for_each(Ask::judge)?;
        let (served, since) = (self.policy(policy)?, self.shared.clock.now());
        let many: Later<'_, Vec<_>> = Box::pin(served.check_many(keys, cost));
        let answers = many.await;
        let each = asks.iter().zip(answers);
        each.map(|(ask, answer)| Ok(self.told(&served, ask, answer?, since))).collect()
    }

    /// What is left, spending nothing.
    pub async fn peek(&self, ask: Ask<'_>) -> Result<Answered, Refusal> {
        ask.judge()?;
        let served = self.policy(ask.policy)?;
        let answer = served.variant(ask.key).peek(&ask.keys()).await?;
        Ok(if served.spec.shadow { answer.shadowed() } else { answer })
    }

    /// What could be spent, now and later.
    pub async fn forecast(&self, ask: Ask<'_>) -> Result<Forecast, Refusal> {
        ask.judge()?;
        let served = self.policy(ask.policy)?;
        served.variant(ask.key).forecast(&ask.keys(), ask.cost).await
    }

    /// Charges a token budget for what was produced: the cost is the tokens. A debit with a name counts once.
    pub async fn debit(&self, ask: Ask<'_>, name: Option<DebitId>) -> Result<Answered, Refusal> {
        ask.judge()?;
        let (served, since) = (self.policy(ask.policy)?, self.shared.clock.now());
        let answer = served.variant(ask.key).debit(&ask.keys(), ask.cost, name).await?;
        Ok(self.told(&served, &ask, answer, since))
    }

    /// The same for work that was admitted: its estimate covers it first. One debit of a lease at a time.
    pub async fn debit_held(
        &self,
        who: &Principal,
        lease: LeaseId,
        tokens: u64,
    ) -> Result<Answered, Refusal> {
        let since = self.shared.clock.now();
        let owner = who.owner();
        let (policy, key) = self.shared.leases.of(owner, lease).ok_or_else(no_lease)?;
        match Box::pin(self.shared.leases.debit(owner, lease, tokens)).await {
            Ok((decision, guarantee)) => {
                let answer = Answered::of(decision, guarantee, Axis::Cost);
                let ask = Ask { policy: &policy, key: &key, others: &[], cost: tokens };
                match self.policy(&policy) {
                    Ok(served) => Ok(self.told(&served, &ask, answer, since)),
                    // Its policy is gone; the work goes on to its end.
                    Err(_) => Ok(answer),
                }
            }
            Err(NotDebited::Unknown) => Err(no_lease()),
            Err(NotDebited::Busy) => {
                Err(Refusal::TooMany("a debit of this lease is under way: send one at a time".into()))
            }
            Err(NotDebited::Store(error)) => Err(error.into()),
        }
    }

    /// What a lease of this principal was given for: a policy and a key.
    pub fn lease_of(&self, who: &Principal, lease: LeaseId) -> Result<(Arc<str>, Box<[u8]>), Refusal> {
        self.shared.leases.of(who.owner(), lease).ok_or_else(no_lease)
    }

    /// Admits work that holds something while it runs.
    pub async fn admit(
        &self,
        who: &Principal,
        ask: Ask<'_>,
        value: f64,
        hold: Option<f64>,
    ) -> Result<Admitted, Refusal> {
        ask.judge()?;
        let (served, since) = (self.policy(ask.policy)?, self.shared.clock.now());
        // Slots of the dead first.
        self.shared.leases.expire();
        let owner = who.owner();
        let variant = served.variant(ask.key).clone();
        let Some(policy) = variant.admits()? else {
            let answer = self.told(&served, &ask, Answered::free(), since);
            return Ok(Admitted { answer, lease: None });
        };
        variant.has_keys(1 + ask.others.len())?;
        if !self.shared.leases.has_room(owner) {
            return Err(Refusal::TooMany("this caller holds as many leases as it may: release some".into()));
        }
        let call = Call::by(ask.key).and(ask.others).cost(ask.cost).value(value);
        let call = if let Some(hold) = hold { call.hold(hold) } else { call };
        let admission = Box::pin(policy.admit(call)).await?;
        let answer = Answered::admitted(&admission);
        let lease = match admission.permit {
            Some(permit) => {
                let held = self.shared.leases.hold(owner, &served.name, ask.key, served.lease_for(), permit);
                let full =
                    || Refusal::TooMany("this server holds as many leases as it may: try another".into());
                Some(held.ok_or_else(full)?)
            }
            None => None,
        };
        Ok(Admitted { answer: self.told(&served, &ask, answer, since), lease })
    }

    /// Ends work. Says whether the lease was held by this principal; doors do not tell.
    pub fn release(&self, who: &Principal, lease: LeaseId, how: Ended) -> bool {
        self.shared.leases.release(who.owner(), lease, how)
    }

    /// Lets leases live as long again.
    pub fn heartbeat(&self, who: &Principal, leases: &[LeaseId]) -> Beats {
        self.shared.leases.heartbeat(who.owner(), leases)
    }

    /// Lends units of a limit to a client, and takes back first what is left of an earlier loan. The cost is how many it
    /// wants.
    pub async fn reserve(
        &self,
        who: &Principal,
        ask: Ask<'_>,
        back: Option<HandBack>,
    ) -> Result<Granted, Refusal> {
        ask.judge()?;
        let (served, since) = (self.policy(ask.policy)?, self.shared.clock.now());
        let variant = served.variant(ask.key).clone();
        if variant.asks_nobody() {
            return Ok(Granted::freely(ask.cost));
        }
        let no_lender = "this policy lends nothing to clients: give it `fleet: {}`";
        let lender = variant.lender.as_ref().ok_or_else(|| Refusal::Unsupported(no_lender.into()))?;
        let (owner, loans) = (who.owner(), &self.shared.loans);
        if let Some(back) = back
            && let Some(loan) = loans.take(back.loan, owner, ask.policy, ask.key)
        {
            lender.take_back(ask.key, back.loan, loan.epoch, back.units.min(loan.units)).await;
        }
        if ask.cost == 0 {
            return Ok(Granted::nothing());
        }
        let lending = Box::pin(lender.lend(ask.key, ask.cost)).await?;
        let mut granted = lending.granted;
        if let Some(epoch) = lending.epoch {
            let (policy, key, units, until) =
                (ask.policy.into(), ask.key.into(), granted.units, granted.until);
            granted.loan = loans.note(Loan { owner, policy, key, epoch, units, until }, lending.now);
        }
        let asked = Ask { cost: granted.units, ..ask };
        let told =
            self.told(&served, &asked, Answered::of(lending.decision, lending.guarantee, Axis::Rate), since);
        Ok(if told.shadow_denied { Granted::freely(ask.cost) } else { granted })
    }

    /// Tells whoever watches, and lets pass what a policy that only looks would have denied.
    fn told(&self, served: &Served, ask: &Ask<'_>, answer: Answered, since: Timestamp) -> Answered {
        let event = Event {
            policy: &served.name,
            key: ask.key,
            cost: ask.cost,
            decision: answer.decision,
            binding_axis: answer.binding_axis,
            policy_denied: answer.policy_denied,
            guarantee: answer.guarantee,
        };
        let shadow = served.spec.shadow;
        self.shared.options.witness.decided(&event, shadow, self.shared.clock.now().since(since));
        if shadow { answer.shadowed() } else { answer }
    }

    /// Puts a new file in force, or says why not and changes nothing. What stays the same keeps running.
    pub async fn reload(&self, file: PolicyFile) -> Result<Reloaded, String> {
        let _alone = self.shared.reloading.lock().await;
        let before = self.shared.running.load_full();
        let (running, reloaded) =
            Running::of(file, &self.shared.options, &self.shared.failures, Some(&before))?;
        let kept: HashSet<_> = running.variants().map(Arc::as_ptr).collect();
        let gone: Vec<_> =
            before.variants().filter(|variant| !kept.contains(&Arc::as_ptr(variant))).cloned().collect();
        self.shared.running.store(Arc::new(running));
        drop(before);
        tokio::spawn(close_when_unused(gone));
        Ok(reloaded)
    }

    /// The file in force.
    pub fn file(&self) -> Arc<PolicyFile> {
        self.shared.running.load().file.clone()
    }

    /// How the store is doing.
    pub fn store_health(&self) -> StoreHealth {
        StoreHealth::of(&self.shared.options.backend, &self.shared.failures)
    }

    /// Asks the store for nothing, to find out whether it answers.
    pub async fn probe(&self) -> bool {
        let answer = self.shared.options.backend.probe().await;
        let _ = answer.as_ref().inspect_err(|error| self.shared.failures.note(error));
        !answer.is_err_and(|error| error.is_outage())
    }

    /// The policies that run, by name.
    fn sorted(&self) -> Vec<Arc<Served>> {
        let running = self.shared.running.load_full();
        let mut all: Vec<_> = running.policies.values().cloned().collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Every policy, by name.
    pub fn policies(&self) -> Vec<PolicyView> {
        self.sorted().iter().map(|served| PolicyView::of(served)).collect()
    }

    /// How a tenant of a fair policy stands at this instance. Nothing if it has not asked in this window.
    pub fn share_of(&self, policy: &str, tenant: &[u8]) -> Option<TenantShare> {
        self.policy(policy).ok()?.share_of(tenant)
    }

    /// The slots of every policy that has some.
    pub fn guards(&self) -> Vec<GuardView> {
        let held = |served: &Arc<Served>| served.guard(self.shared.leases.held(&served.name));
        self.sorted().iter().filter_map(held).collect()
    }

    /// How many leases clients hold here.
    pub fn leases_held(&self) -> u64 {
        self.shared.leases.all_held()
    }

    /// Waits until every lease has ended, and hands back what was fetched and not spent. For a server that is about to
    /// stop, and takes no more requests: nobody renews a lease any more.
    pub async fn drain(&self, within: Duration) {
        self.shared.leases.drain(within).await;
        let running = self.shared.running.load_full();
        for served in running.policies.values() {
            served.close().await;
        }
        // What was given back is told to stores in the background.
        let deadline = tokio::time::Instant::now() + SETTLE_MAX;
        while running.policies.values().any(|served| served.is_settling())
            && tokio::time::Instant::now() < deadline
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn no_lease() -> Refusal {
    Refusal::Invalid("no such lease: it was released, or it ended without a heartbeat".into())
}

impl Running {
    /// What a file says, with whatever is the same as before.
    fn of(
        file: PolicyFile,
        options: &EngineOptions,
        failures: &Arc<Failures>,
        before: Option<&Self>,
    ) -> Result<(Self, Reloaded), String> {
        let same_defaults = before.filter(|before| before.file.defaults == file.defaults);
        let place =
            Place { backend: &options.backend, region: &options.region, defaults: &file.defaults, failures };
        let (mut policies, mut reloaded) = (HashMap::new(), Reloaded::default());
        for (name, spec) in &file.policies {
            let known = before.and_then(|before| before.policies.get(name.as_str()));
            let same = known.filter(|known| same_defaults.is_some() && known.spec == *spec);
            let served = match same {
                Some(same) => same.clone(),
                None => {
                    let list = if known.is_some() { &mut reloaded.changed } else { &mut reloaded.added };
                    list.push(name.clone());
                    let known = known.map(AsRef::as_ref);
                    Arc::new(Served::new(name, spec, &place, known, &mut reloaded.warnings)?)
                }
            };
            policies.insert(name.as_str().into(), served);
        }
        let gone = before.iter().flat_map(|before| before.file.policies.keys());
        reloaded.removed = gone.filter(|name| !file.policies.contains_key(*name)).cloned().collect();
        Ok((Self { file: Arc::new(file), policies }, reloaded))
    }

    fn variants(&self) -> impl Iterator<Item = &Arc<Variant>> {
        self.policies.values().flat_map(|served| served.variants())
    }
}

/// Hands back what policies that are gone had fetched, when those who still asked them are answered. What is fetched after
/// that lapses with its window.
async fn close_when_unused(gone: Vec<Arc<Variant>>) {
    let used = |variant: &Arc<Variant>| Arc::strong_count(variant) > 1;
    for _ in 0..UNUSED_TRIES_MAX {
        if !gone.iter().any(used) {
            break;
        }
        tokio::time::sleep(SWEEP_EVERY).await;
    }
    for variant in gone {
        variant.close().await;
    }
}

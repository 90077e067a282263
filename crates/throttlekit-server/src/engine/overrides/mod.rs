//! Overrides of limits that operators set while servers run, and plans: kept on the store, and watched by all servers.
//!
//! A change is written to one of many records, then a stamp of that record to a common one. Servers read the stamps at
//! an interval, and the records whose stamp changed.

mod known;
mod limits;
mod live;
mod record;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use throttlekit::clock::{Clock, WallClock};
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;
use throttlekit::store::{MembershipRecord, MembershipStore, StoreError, Swapped};

use super::Refusal;
use super::backend::{Backend, Counted};
use super::failures::Failures;
use super::shared_record::{self, KEPT, Next};
use known::Known;
pub use limits::{BudgetChange, Limits, RateChange};
pub(super) use live::Live;
pub use record::{Override, Plan, Terms};
use record::{PLANS, name, shard, stamped, stamps, stamps_name};

/// Maximum number of overrides. Servers that add some at the same time may exceed it by those.
pub const OVERRIDES_MAX: usize = 100_000;
/// Maximum number of plans of all policies.
const PLANS_MAX: usize = 1_000;
/// Maximum number of records that are loaded at the same time.
const AT_ONCE_MAX: usize = 16;
/// Number of looks at the stamps after which one more record is compared.
const COMPARE_EVERY: u64 = 4;

/// The overrides and plans of a store.
pub(super) struct Overrides {
    store: Counted,
    known: Mutex<Known>,
    /// Held during a change, so that changes of one server do not race each other.
    writing: tokio::sync::Mutex<()>,
    /// Held while the store is read.
    pub(super) reading: tokio::sync::Mutex<()>,
    looks: AtomicU64,
    failures: AtomicU64,
    failing: AtomicBool,
    /// Time of the last look at the store, in milliseconds of the wall clock.
    looked_ms: AtomicU64,
}

/// Records that were loaded, with their stamps.
pub(super) type Loaded = Vec<(usize, u64, MembershipRecord)>;

/// Overrides as this server knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverridesView {
    /// Number of overrides.
    pub overrides: u64,
    /// Number of plans.
    pub plans: u64,
    /// Number of failed looks at the store.
    pub failures: u64,
    /// Time of the last successful look at the store. The epoch if there was none.
    pub looked_at: Timestamp,
}

impl Overrides {
    pub(super) fn new(backend: &Backend, failures: &Arc<Failures>) -> Self {
        Self {
            store: Counted::new(backend.clone(), Arc::default(), failures.clone()),
            known: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            looks: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            failing: AtomicBool::new(false),
            looked_ms: AtomicU64::new(0),
        }
    }

    /// Returns the store of shared records.
    pub(super) fn store(&self) -> &Counted {
        &self.store
    }

    /// Loads the records that changed.
    pub(super) async fn load(&self) -> Result<Loaded, StoreError> {
        let loaded = self.load_changed().await;
        match &loaded {
            Ok(_) => self.looked_ms.store(WallClock.now().as_millis_ceil(), Relaxed),
            Err(_) => _ = self.failures.fetch_add(1, Relaxed),
        }
        self.failing.store(loaded.is_err(), Relaxed);
        loaded
    }

    async fn load_changed(&self) -> Result<Loaded, StoreError> {
        let record = self.store.load(&stamps_name()).await?;
        let current = stamps(&record)?;
        let changed = {
            let mut known = self.known.lock();
            known.set_clock(record.now);
            let mut changed = known.changed(&current);
            if self.looks.fetch_add(1, Relaxed).is_multiple_of(COMPARE_EVERY) {
                changed.extend(known.next_turn(&current).filter(|index| !changed.contains(index)));
            }
            changed
        };
        let mut loaded = Vec::with_capacity(changed.len());
        for some in changed.chunks(AT_ONCE_MAX) {
            let each = some.iter().map(|index| async {
                let stamp = current[*index];
                Ok::<_, StoreError>((*index, stamp, self.load_one(*index, stamp).await?))
            });
            for one in join_all(each).await {
                loaded.push(one?);
            }
        }
        Ok(loaded)
    }

    /// Loads a record. If the store lost it, writes what is known here, so that limits survive a loss of data.
    async fn load_one(&self, index: usize, stamp: u64) -> Result<MembershipRecord, StoreError> {
        let record = self.store.load(&name(index)).await?;
        if stamp == 0 && record.version != 0 {
            // The stamps were lost, and servers that start would not find it.
            self.stamp_for_all(index).await?;
        }
        let next = {
            let known = self.known.lock();
            known.lacks(index, &record).then(|| known.written(index, record.now))
        };
        let Some(Next { bytes, keeps }) = next else { return Ok(record) };
        tracing::warn!(record = index, "overrides missing on the store: restored");
        match self.store.swap(&name(index), record.version, &bytes, keeps).await? {
            Swapped::Done => {
                self.stamp_for_all(index).await?;
                Ok(MembershipRecord { bytes, ..record })
            }
            Swapped::Newer(newer) => Ok(newer),
        }
    }

    async fn stamp_for_all(&self, index: usize) -> Result<(), StoreError> {
        self.stamp(index).await.map_err(|refusal| match refusal {
            Refusal::Store(error) => error,
            other => StoreError::misconfigured(other),
        })
    }

    /// Takes over loaded records, and removes overrides that have expired. Returns the policies that are concerned.
    pub(super) fn take(&self, loaded: &Loaded) -> HashSet<Box<str>> {
        let mut known = self.known.lock();
        let mut touched = known.expire();
        for (index, stamp, record) in loaded {
            match known.take(*index, *stamp, record) {
                Ok(policies) => touched.extend(policies),
                // The one that is known stays in effect.
                Err(error) => {
                    self.failures.fetch_add(1, Relaxed);
                    tracing::warn!(record = index, %error, "overrides not loaded");
                }
            }
        }
        touched
    }

    /// Checks whether the last look at the store failed.
    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Relaxed)
    }

    /// Checks whether an override has expired.
    pub(super) fn is_due(&self) -> bool {
        self.next_expiry_in().is_some_and(|left| left.is_zero())
    }

    /// Returns the time until the next override expires.
    pub(super) fn next_expiry_in(&self) -> Option<Duration> {
        self.known.lock().next_expiry_in()
    }

    /// Runs `use_all` on the overrides of a policy, each with its limits.
    pub(super) fn of_policy<R>(
        &self,
        policy: &str,
        use_all: impl for<'k> FnOnce(&mut dyn Iterator<Item = (&'k str, &'k Limits)>) -> R,
    ) -> R {
        let known = self.known.lock();
        let all = known.from(policy, "");
        let mut all = all.filter_map(|one| Some((&*one.key, known.limits(one)?)));
        use_all(&mut all)
    }

    /// Returns the limits of a plan.
    pub(super) fn plan(&self, policy: &str, plan: &str) -> Option<Limits> {
        self.known.lock().plan(policy, plan).cloned()
    }

    /// Sets an override. `expiry` returns its expiry, from the time of the store.
    pub(super) async fn set(
        &self,
        new: Override,
        expiry: impl Fn(Timestamp) -> Result<Option<u64>, Refusal>,
    ) -> Result<Override, Refusal> {
        let index = shard(&new.policy, &new.key);
        let key = (new.policy.clone(), new.key.clone());
        {
            let known = self.known.lock();
            if known.overrides.len() >= OVERRIDES_MAX && !known.overrides.contains_key(&key) {
                let full =
                    format!("too many overrides: at most {OVERRIDES_MAX} are allowed, use plans or prefixes");
                return Err(Refusal::TooMany(full));
            }
        }
        let _alone = self.writing.lock().await;
        let set = shared_record::update(&self.store, name(index), |record| {
            let now = record.now;
            let set = Override { expires_ms: expiry(now)?, set_ms: now.as_millis_ceil(), ..new.clone() };
            let mut all = live_entries(record)?;
            all.retain(|one| !is_for(one, &key.0, &key.1));
            all.push(set.clone());
            Ok((set, Some(record::next(all, now))))
        });
        let set = set.await?;
        self.stamp(index).await?;
        Ok(set)
    }

    /// Removes an override. Returns whether there was one.
    pub(super) async fn remove(&self, policy: &str, key: &str) -> Result<bool, Refusal> {
        let index = shard(policy, key);
        let _alone = self.writing.lock().await;
        let removed = shared_record::update(&self.store, name(index), |record| {
            let mut all = live_entries(record)?;
            let before = all.len();
            all.retain(|one| !is_for(one, policy, key));
            let removed = all.len() < before;
            Ok((removed, removed.then(|| record::next(all, record.now))))
        });
        let removed = removed.await?;
        // Also if there was none: an earlier attempt may have ended before its stamp.
        self.stamp(index).await?;
        Ok(removed)
    }

    /// Sets or removes a plan. Returns whether there was one.
    pub(super) async fn change_plan(
        &self,
        policy: &str,
        plan: &str,
        limits: Option<&Limits>,
    ) -> Result<bool, Refusal> {
        let _alone = self.writing.lock().await;
        let changed = shared_record::update(&self.store, name(PLANS), |record| {
            let mut all = record::entries::<Plan>(record)?;
            let before = all.len();
            all.retain(|one| (&*one.policy, &*one.name) != (policy, plan));
            let had = all.len() < before;
            if let Some(limits) = limits {
                if all.len() >= PLANS_MAX {
                    let full = format!("too many plans: at most {PLANS_MAX} are allowed");
                    return Err(Refusal::TooMany(full));
                }
                all.push(Plan { policy: policy.into(), name: plan.into(), limits: limits.clone() });
            }
            let next = had || limits.is_some();
            Ok((had, next.then(|| Next { bytes: record::bytes(all), keeps: KEPT })))
        });
        let had = changed.await?;
        self.stamp(PLANS).await?;
        Ok(had)
    }

    /// Records that a record changed, for all servers.
    async fn stamp(&self, index: usize) -> Result<(), Refusal> {
        let update = shared_record::update(&self.store, stamps_name(), |record| {
            let mut all = stamps(record)?;
            // Never a value from before a loss of data.
            all[index] = record.now.as_micros().max(all[index] + 1);
            Ok(((), Some(stamped(&all))))
        });
        update.await
    }

    /// Returns a page of the overrides of a policy whose keys begin with `prefix`, after `after`.
    pub(super) fn page(&self, policy: &str, prefix: &str, after: &str, max: usize) -> Vec<Arc<Override>> {
        let known = self.known.lock();
        let from = known.from(policy, prefix.max(after));
        let from = from.skip_while(|one| !after.is_empty() && *one.key <= *after);
        from.take_while(|one| one.key.starts_with(prefix)).take(max).cloned().collect()
    }

    /// Returns the plans of a policy, each with the number of overrides that name it.
    pub(super) fn plans(&self, policy: &str) -> Vec<(Plan, usize)> {
        let known = self.known.lock();
        let plan = |(name, limits): (&str, &Limits)| {
            let plan = Plan { policy: policy.into(), name: name.into(), limits: limits.clone() };
            (plan, known.assigned(policy, name))
        };
        known.plans_of(policy).map(plan).collect()
    }

    /// Returns the number of overrides that name a plan.
    pub(super) fn assigned(&self, policy: &str, plan: &str) -> usize {
        self.known.lock().assigned(policy, plan)
    }

    pub(super) fn view(&self) -> OverridesView {
        let known = self.known.lock();
        OverridesView {
            overrides: known.overrides.len() as u64,
            plans: known.plans.len() as u64,
            failures: self.failures.load(Relaxed),
            looked_at: Timestamp::from_millis(self.looked_ms.load(Relaxed)),
        }
    }
}

/// Returns the overrides of a record that have not expired.
fn live_entries(record: &MembershipRecord) -> Result<Vec<Override>, StoreError> {
    let mut all = record::entries::<Override>(record)?;
    all.retain(|one| !one.is_over(record.now));
    Ok(all)
}

fn is_for(one: &Override, policy: &str, key: &str) -> bool {
    (&*one.policy, &*one.key) == (policy, key)
}

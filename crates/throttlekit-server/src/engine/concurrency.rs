//! The concurrency axis of a policy, kept across reloads of its file.

use std::time::Duration;

use throttlekit::guard::{Ceiling, KeyedGuard};
use throttlekit::leasing::Margin;
use throttlekit::policy::SharedPolicyBuilder;
use throttlekit::{Axis, Concurrency as Limit, Guard, SharedGuard};

use super::backend::Counted;
use crate::policy::{AdaptiveSpec, ConcurrencySpec, EstimatorSpec, Scope};

/// Factor by which AIMD lowers the limit when work is dropped.
const BACKOFF: f64 = 0.9;
/// Maximum number of calls that wait for slots in this process: more than the queues of policies let wait.
const QUEUE_MAX: u32 = 1 << 20;
/// Minimum time that a slot on the store lives without a heartbeat of the server, for stores that are slow to respond.
const STORE_LIVES_MIN: Duration = Duration::from_secs(1);
/// Maximum error of clocks and rounding, as a fraction of a lease.
const CLOCK_PART: u32 = 64;
const CLOCK_SLACK: Duration = Duration::from_millis(10);

/// The slots of one policy at this instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardView {
    /// The policy.
    pub policy: String,
    /// Current limit, or the limit of each key; zero if keys are limited by this instance alone.
    pub limit: u64,
    /// True if each key has its own limit.
    pub per_key: bool,
    /// Number of slots held here.
    pub in_flight: u64,
    /// This instance's share of a shared limit, and the shared limit.
    pub fleet: Option<(u64, u64)>,
    /// Number of instances that share it, as far as is known here.
    pub nodes: u64,
    /// True if this instance grants no slots: it has lost contact with the others, or waits after a start until the
    /// leases of the previous process have expired.
    pub fenced: bool,
}

/// Guards that count requests in flight.
#[derive(Clone)]
pub(super) enum Concurrency {
    Instance(Guard),
    InstanceKey(KeyedGuard),
    Key(SharedGuard),
    Fleet(SharedGuard),
}

impl Concurrency {
    pub(super) fn new(spec: &ConcurrencySpec, policy: &str, store: &Counted) -> Result<Self, String> {
        let limit = limit_of(spec);
        let built = match spec.scope {
            Scope::Instance => Guard::builder(limit).queue_max(QUEUE_MAX).build().map(Self::Instance),
            Scope::InstanceKey => {
                Guard::builder(limit).queue_max(QUEUE_MAX).build_per_key().map(Self::InstanceKey)
            }
            Scope::Key => SharedGuard::builder(store.clone(), policy, Limit::per_key(spec.limit))
                .lease(store_lease(spec.slot_lease()))
                .clock_error(outliving(spec.slot_lease()))
                .build()
                .map(Self::Key),
            // Clients may continue for up to a lease after the share of a server has expired, with the server or
            // without.
            Scope::Fleet => {
                let guard = SharedGuard::builder(store.clone(), policy, limit).divided();
                guard.linger(spec.slot_lease()).queue_max(QUEUE_MAX).build().map(Self::Fleet)
            }
        };
        built.map_err(|error| error.to_string())
    }

    /// Adapts it to a changed file without releasing what is held. Returns `None` if that is not possible. The limit is
    /// unchanged until the file is [applied](Self::put_in_force).
    pub(super) fn kept(&self, from: &ConcurrencySpec, to: &ConcurrencySpec) -> Option<Self> {
        let only_the_limit =
            ConcurrencySpec { limit: from.limit, lease_for: from.lease_for, ..to.clone() } == *from;
        let can_change = match self {
            Self::Instance(_) => to.adaptive.is_none(),
            Self::Key(_) => true,
            Self::InstanceKey(_) | Self::Fleet(_) => false,
        };
        // A slot on the store outlives the lease of its client.
        let outlives = self.are_local() || from.slot_lease() == to.slot_lease();
        (only_the_limit && outlives && (from.limit == to.limit || can_change)).then(|| self.clone())
    }

    /// Applies the limit of the file.
    pub(super) fn put_in_force(&self, spec: &ConcurrencySpec) {
        match self {
            Self::Instance(guard) if spec.adaptive.is_none() => guard.set_limit(spec.limit),
            Self::Key(slots) => _ = slots.set_limit(spec.limit),
            // An adaptive limit continues from its current value, and the others keep the limit they were built with.
            _ => {}
        }
    }

    /// Checks whether all keys share the slots.
    pub(super) fn ignores_keys(&self) -> bool {
        matches!(self, Self::Instance(_) | Self::Fleet(_))
    }

    /// Checks whether slots are counted in this process only.
    pub(super) fn are_local(&self) -> bool {
        matches!(self, Self::Instance(_) | Self::InstanceKey(_))
    }

    /// Adds it to a policy of several axes.
    pub(super) fn join(&self, builder: SharedPolicyBuilder<Counted>) -> SharedPolicyBuilder<Counted> {
        match self {
            Self::Instance(guard) => builder.with(Axis::Concurrency, guard.clone()),
            Self::InstanceKey(guard) => builder.with(Axis::Concurrency, guard.clone()),
            Self::Key(guard) | Self::Fleet(guard) => builder.with(Axis::Concurrency, guard.clone()),
        }
    }

    pub(super) fn view(&self, policy: &str, held: u64) -> GuardView {
        let blank = GuardView {
            policy: policy.into(),
            limit: 0,
            per_key: false,
            in_flight: held,
            fleet: None,
            nodes: 1,
            fenced: false,
        };
        match self {
            Self::Instance(guard) => {
                let seen = guard.stats();
                GuardView { limit: seen.limit.into(), in_flight: seen.in_flight.into(), ..blank }
            }
            Self::InstanceKey(_) => GuardView { per_key: true, ..blank },
            Self::Key(slots) => GuardView { limit: slots.stats().limit.into(), per_key: true, ..blank },
            Self::Fleet(guard) => {
                let stats = guard.stats();
                let (grant, nodes) =
                    stats.division.map_or((None, 0), |division| (division.grant, division.nodes));
                let share = grant.map(|grant| (grant.share.into(), grant.ceiling.into()));
                GuardView {
                    limit: stats.limit.into(),
                    in_flight: stats.in_flight.into(),
                    fleet: share,
                    nodes: nodes.max(1).into(),
                    fenced: stats.fenced,
                    ..blank
                }
            }
        }
    }
}

/// Returns the time that a slot on the store lives without a heartbeat of the server: for about one lease the server
/// may use it, and for another one the client whose lease it renewed last.
fn store_lease(lease_for: Duration) -> Duration {
    (lease_for * 2 + lease_for / CLOCK_PART + CLOCK_SLACK).max(STORE_LIVES_MIN)
}

/// Returns the margin at which a server stops renewing leases of clients: one lease before the store may grant their
/// slot to another. The client that was renewed last has stopped by then, whether the server was partitioned or killed.
fn outliving(lease_for: Duration) -> Margin {
    let margin = Margin::default();
    Margin { slack: margin.slack + lease_for, ..margin }
}

fn limit_of(spec: &ConcurrencySpec) -> Limit {
    let Some(AdaptiveSpec { min, max, algorithm }) = spec.adaptive else { return spec.limit.into() };
    let ceiling = Ceiling::between(min, max).starting_at(spec.limit);
    match algorithm {
        EstimatorSpec::Gradient => ceiling.into(),
        EstimatorSpec::Aimd => ceiling.aimd(BACKOFF).into(),
    }
}

#[cfg(test)]
mod tests {
    use throttlekit::store::{LIVES_MIN, MemoryStore};

    use super::*;
    use crate::policy::LEASE_FOR_ON_STORE_MAX;

    #[test]
    fn a_slot_on_the_store_outlives_its_client_whatever_lease_the_file_names() {
        for lease_for in
            [LIVES_MIN, Duration::from_millis(700), Duration::from_secs(2), LEASE_FOR_ON_STORE_MAX]
        {
            let lives = store_lease(lease_for);
            let built = SharedGuard::builder(MemoryStore::new(), "p", 1)
                .lease(lives)
                .clock_error(outliving(lease_for));
            assert!(built.build().is_ok(), "{lease_for:?}");
            assert!(lives >= lease_for * 2 && lives <= (lease_for * 3).max(STORE_LIVES_MIN), "{lives:?}");
        }
    }
}

//! The concurrency axis of a policy, kept while its file changes.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::admission::Slots;
use throttlekit::guard::{Ceiling, GuardLimit};
use throttlekit::{FleetGuard, Guard, KeyedGuard, SharedSlots};

use super::GuardView;
use super::backend::Counted;
use crate::policy::{AdaptiveSpec, ConcurrencySpec, Estimator, Scope};

/// By how much AIMD goes down when work is dropped.
const BACKOFF: f64 = 0.9;
/// How long a server's slot on the store lives without a beat of the server. Longer than a failover of the store takes.
const STORE_LIVES: Duration = Duration::from_secs(30);

/// Who counts calls in flight.
#[derive(Clone)]
pub(super) enum Places {
    Instance(Arc<Guard>),
    InstanceKey(Arc<KeyedGuard>),
    Key(SharedSlots<Counted>),
    Fleet(Arc<FleetGuard>),
}

impl Places {
    pub(super) fn new(spec: &ConcurrencySpec, policy: &str, store: &Counted) -> Result<Self, String> {
        let limit = guard_limit(spec);
        Ok(match spec.scope {
            Scope::Instance => Self::Instance(Arc::new(Guard::builder(limit).build())),
            Scope::InstanceKey => Self::InstanceKey(Arc::new(KeyedGuard::builder(limit).build())),
            Scope::Key => {
                let slots =
                    SharedSlots::builder(store.clone(), policy, spec.limit).lives(STORE_LIVES).build();
                Self::Key(slots.map_err(|error| error.to_string())?)
            }
            Scope::Fleet => Self::Fleet(Arc::new(FleetGuard::builder(store.clone(), policy, limit).build())),
        })
    }

    /// The same for a changed file, without letting go of what is held. Nothing, if these cannot be changed so. The limit
    /// stays as it was until the file is [put in force](Self::put_in_force).
    pub(super) fn kept(&self, from: &ConcurrencySpec, to: &ConcurrencySpec) -> Option<Self> {
        let only_the_limit =
            ConcurrencySpec { limit: from.limit, lease_for: from.lease_for, ..to.clone() } == *from;
        let can_change = match self {
            Self::Instance(_) => to.adaptive.is_none(),
            Self::Key(_) => true,
            Self::InstanceKey(_) | Self::Fleet(_) => false,
        };
        (only_the_limit && (from.limit == to.limit || can_change)).then(|| self.clone())
    }

    /// Takes over the limit that the file says.
    pub(super) fn put_in_force(&self, spec: &ConcurrencySpec) {
        match self {
            Self::Instance(guard) if spec.adaptive.is_none() => guard.set_limit(spec.limit),
            Self::Key(slots) => slots.set_most(spec.limit),
            // What adapts goes on from where it is, and the others keep the limit they were built with.
            _ => {}
        }
    }

    pub(super) fn axis(&self) -> Slots {
        match self {
            Self::Instance(guard) => guard.clone().into(),
            Self::InstanceKey(guard) => guard.clone().into(),
            Self::Key(slots) => slots.clone().into(),
            Self::Fleet(guard) => guard.clone().into(),
        }
    }

    pub(super) fn view(&self, policy: &str, held: u64) -> GuardView {
        let blank = GuardView {
            policy: policy.into(),
            limit: 0,
            in_flight: held,
            fleet: None,
            nodes: 1,
            fenced: false,
        };
        match self {
            Self::Instance(guard) => {
                let (limit, in_flight) = guard.snapshot();
                GuardView { limit: limit.into(), in_flight: in_flight.into(), ..blank }
            }
            Self::InstanceKey(_) => blank,
            Self::Key(slots) => GuardView { limit: slots.most().into(), ..blank },
            Self::Fleet(guard) => {
                let stats = guard.stats();
                let share = stats.grant.map(|grant| (grant.share.into(), grant.ceiling.into()));
                GuardView {
                    limit: stats.limit.into(),
                    in_flight: stats.in_flight.into(),
                    fleet: share,
                    fenced: stats.fenced,
                    ..blank
                }
            }
        }
    }
}

fn guard_limit(spec: &ConcurrencySpec) -> GuardLimit {
    let Some(AdaptiveSpec { min, max, algorithm }) = spec.adaptive else { return spec.limit.into() };
    let ceiling = Ceiling::between(min, max).starting_at(spec.limit);
    match algorithm {
        Estimator::Gradient => ceiling.into(),
        Estimator::Aimd => ceiling.aimd(BACKOFF).into(),
    }
}

//! A limiter whose decisions an observer receives.

use std::sync::Arc;

use throttlekit_core::Timestamp;

use super::{Admission, Admit, Admitting, LimitInfo, Observer, Told};
use crate::Call;

/// Anything that is [`Admit`], with an observer: every decision is reported under a name, as those of a policy are.
///
/// The observer costs nothing to those who do not use it. A decision that has to wait for a store takes one more
/// allocation.
///
/// ```
/// use throttlekit::observe::{Event, Observed, Observer};
/// use throttlekit::{Admit, Call, Limiter, Rate};
///
/// struct Log;
///
/// impl Observer for Log {
///     fn observe(&self, event: &Event<'_>) {
///         println!("{}: allowed {}", event.policy, event.decision.allowed);
///     }
/// }
///
/// let api = Observed::new("api", Limiter::new(Rate::per_minute(60))?, Log);
/// let admission = api.admit(Call::by("alice")).now_or_later().expect("decided in process")?;
/// assert!(admission.allowed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Observed<A> {
    inner: A,
    watch: Watch,
}

#[derive(Clone)]
struct Watch {
    name: Arc<str>,
    observer: Arc<dyn Observer>,
}

impl<A: Admit> Observed<A> {
    /// Reports the decisions of `inner` to `observer`. The name appears in metrics, traces and logs.
    pub fn new(name: &str, inner: A, observer: impl Observer) -> Self {
        Self { inner, watch: Watch { name: name.into(), observer: Arc::new(observer) } }
    }

    fn observed(&self, call: Call<'_>, admitting: Admitting) -> Admitting {
        let later = match admitting.now_or_later() {
            Ok(result) => {
                if let Ok(admission) = &result {
                    self.watch.tell(&call, admission);
                }
                return Admitting::ready(result);
            }
            Err(later) => later,
        };
        let (watch, key, cost) = (self.watch.clone(), call.key().to_vec(), call.units());
        Admitting::pending(async move {
            let result = later.await;
            if let Ok(admission) = &result {
                watch.tell(&Call::by(&key).cost(cost), admission);
            }
            result
        })
    }
}

impl Watch {
    fn tell(&self, call: &Call<'_>, admission: &Admission) {
        let told = Told { observer: &*self.observer, policy: &self.name, call };
        let denied = (admission.denied_by(), admission.limit_name());
        told.report(admission.decision, denied, admission.guarantee);
    }
}

impl<A: Admit> Admit for Observed<A> {
    fn admit(&self, call: Call<'_>) -> Admitting {
        self.observed(call, self.inner.admit(call))
    }

    fn admit_queued(&self, call: Call<'_>) -> Admitting {
        self.observed(call, self.inner.admit_queued(call))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.inner.limits()
    }

    fn now(&self) -> Timestamp {
        self.inner.now()
    }
}

debug_fields!([A] Observed<A>, |it| name = it.watch.name);

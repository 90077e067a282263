//! The result of a call.

use std::ops::Deref;

use throttlekit_core::{ALLOW_FULL, Decision, Retry, Timestamp};

use super::{Axes, Axis, Denied, Event, Observer, SharedPermit, StoreError};
use crate::{Call, Guarantee, LimitName};

/// The result of one call, over all axes. Derefs to its [`Decision`].
#[derive(Debug)]
#[must_use = "dropping it gives back what the call was admitted with"]
#[non_exhaustive]
pub struct Admission<P = SharedPermit> {
    pub(crate) decision: Decision,
    pub(crate) axes: Axes,
    /// `true` if the value of the call is below its price: no axis denied it, and nothing was charged.
    pub(crate) priced_out: bool,
    /// Guarantee of the decision: the weakest of the axes that were evaluated.
    pub guarantee: Guarantee,
    /// Proof of admission, if the call is admitted. Hold it while the work runs.
    pub permit: Option<P>,
    /// Store error, if a fallback decided.
    pub outage: Option<StoreError>,
    /// Allowed only because the policy is in shadow mode. Reported by servers.
    pub shadow_denied: bool,
}

impl<P> Admission<P> {
    /// Creates the result of one axis: exact, and with the permit if the decision allows. For implementors of
    /// [`Admit`](crate::Admit).
    pub fn of(axis: Axis, decision: Decision, permit: P) -> Self {
        let mut admission = Self { decision, permit: decision.allowed.then_some(permit), ..Self::open() };
        match axis {
            Axis::Price => admission.priced_out = !decision.allowed,
            counted => admission.axes.record(counted, decision),
        }
        admission
    }

    /// Converts the permit.
    pub(crate) fn map<Q>(self, convert: impl FnOnce(P) -> Q) -> Admission<Q> {
        let Self { decision, axes, priced_out, guarantee, permit, outage, shadow_denied } = self;
        let permit = permit.map(convert);
        Admission { decision, axes, priced_out, guarantee, permit, outage, shadow_denied }
    }

    /// Returns the permit, or the denial with the axis that denied.
    pub fn into_permit(self) -> Result<P, Denied> {
        let (axis, limit_name, decision) = (self.denied_by(), self.limit_name(), self.decision);
        self.permit.ok_or(Denied { axis, limit_name, decision, guarantee: self.guarantee })
    }

    /// Returns the axis that denied, if one did.
    pub fn denied_by(&self) -> Option<Axis> {
        if self.priced_out { Some(Axis::Price) } else { self.axes.denied_by() }
    }

    /// Returns the name of the limit that denied, if one did and has a name. Which of several token budgets, for example.
    pub fn limit_name(&self) -> Option<LimitName> {
        self.axes.limit_name()
    }

    /// Sets the name of the limit that denied. For implementors of [`Admit`](crate::Admit).
    pub fn named(mut self, limit: Option<LimitName>) -> Self {
        self.axes.set_limit_name(limit);
        self
    }

    /// Returns the combined decision. For a denial it is that of the axis that denied; otherwise the combination of all
    /// axes.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Returns the decision of each axis that was evaluated.
    pub fn axes(&self) -> &Axes {
        &self.axes
    }

    /// Creates an admission with no axis evaluated.
    #[inline]
    pub(crate) fn open() -> Self {
        Self {
            decision: ALLOW_FULL,
            axes: Axes::default(),
            priced_out: false,
            guarantee: Guarantee::Exact,
            permit: None,
            outage: None,
            shadow_denied: false,
        }
    }

    /// Creates the denial by one of these axes, of limits that are counted exactly.
    pub(crate) fn of_denied(axes: Axes) -> Self {
        Self { decision: axes.decision(), axes, ..Self::open() }
    }

    /// Completes the admission and notifies the observer, once.
    #[cfg(feature = "store")]
    pub(crate) fn close(&mut self, told: Option<Told<'_>>) {
        self.decision = combined(&self.axes, self.priced_out);
        debug_assert_eq!(self.decision.allowed, self.permit.is_some(), "a permit is proof of admission");
        if let Some(told) = told {
            told.report(self.decision, (self.denied_by(), self.limit_name()), self.guarantee);
        }
    }
}

impl<P> Deref for Admission<P> {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.decision
    }
}

/// The observer of a decision, and the call.
#[derive(Clone, Copy)]
pub(crate) struct Told<'a> {
    pub(crate) observer: &'a dyn Observer,
    pub(crate) policy: &'a str,
    pub(crate) call: &'a Call<'a>,
}

impl Told<'_> {
    /// Notifies the observer. A panic in it does not reach the caller.
    #[cold]
    #[inline(never)]
    pub(crate) fn report(
        self,
        decision: Decision,
        (denied_by, limit_name): (Option<Axis>, Option<LimitName>),
        guarantee: Guarantee,
    ) {
        let Self { observer, policy, call } = self;
        let (key, cost) = (call.key(), call.units());
        let event = Event { policy, key, cost, decision, denied_by, limit_name, guarantee };
        let watch = std::panic::AssertUnwindSafe(|| observer.observe(&event));
        // The panic payload may panic again when it is dropped.
        let _ = std::panic::catch_unwind(watch).map_err(std::mem::forget);
    }
}

/// Returns the decision of all axes.
#[inline]
pub(crate) fn combined(axes: &Axes, is_priced_out: bool) -> Decision {
    if is_priced_out { priced_out(axes) } else { axes.decision() }
}

/// Returns the denial for a call whose value is below its price. Waiting does not help: a higher value or other prices
/// do.
#[cold]
fn priced_out(axes: &Axes) -> Decision {
    let none_asked = axes.iter().next().is_none();
    let so_far = axes.decision();
    Decision {
        allowed: false,
        limit: if none_asked { 0 } else { so_far.limit },
        remaining: 0,
        reset_at: if none_asked { Timestamp::EPOCH } else { so_far.reset_at },
        retry_after: Retry::Now,
    }
}

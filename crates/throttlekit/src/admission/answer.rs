//! What a call comes back with.

use throttlekit_core::{ALLOW_FULL, Decision, Retry, Timestamp};

use super::{Axes, Axis, Call, Event, Observer};
use crate::Guarantee;

/// The answer to one call, over all axes.
#[derive(Debug)]
#[must_use = "dropping it gives back what the call was admitted with"]
pub struct Admission<P> {
    /// The one answer. Of a denial it is that of the axis which denied; the fold of all axes otherwise.
    pub decision: Decision,
    /// What each axis said, in this call.
    pub axes: Axes,
    /// Whether the call was worth less than its price: no axis denied it, and nothing was charged.
    pub policy_denied: bool,
    /// What the answer is worth: as much as the weakest of the axes that were asked.
    pub guarantee: Guarantee,
    /// Proof of admission, if the call is admitted. Hold it while the work runs.
    pub permit: Option<P>,
    /// Why a store did not answer, where something stood in for it.
    #[cfg(feature = "store")]
    pub outage: Option<crate::store::StoreError>,
}

impl<P> Admission<P> {
    /// The axis that denied; nothing where none did, also where the price denied.
    pub fn binding_axis(&self) -> Option<Axis> {
        self.axes.binding_axis()
    }

    /// The answer before anyone was asked. It is filled in where it stands: moving all of it costs as much as an axis does.
    #[inline]
    pub(super) fn open() -> Self {
        Self {
            decision: ALLOW_FULL,
            axes: Axes::default(),
            policy_denied: false,
            guarantee: Guarantee::Exact,
            permit: None,
            #[cfg(feature = "store")]
            outage: None,
        }
    }

    /// Everyone was asked who had to be. Whoever watches is told, once.
    #[inline]
    pub(super) fn close(&mut self, told: Told<'_>) {
        self.decision = if self.policy_denied { priced_out(&self.axes) } else { self.axes.decision() };
        debug_assert_eq!(self.decision.allowed, self.permit.is_some(), "a permit is proof of admission");
        if let Some(observer) = told.observer {
            told.tell(observer, self);
        }
    }
}

/// Who is told of a decision, and about what call.
#[derive(Clone, Copy)]
pub(super) struct Told<'a> {
    pub(super) observer: Option<&'a dyn Observer>,
    pub(super) policy: &'a str,
    pub(super) call: &'a Call<'a>,
}

impl Told<'_> {
    /// A panic of one who watches is not the caller's.
    #[cold]
    #[inline(never)]
    fn tell<P>(&self, observer: &dyn Observer, admission: &Admission<P>) {
        let event = Event {
            policy: self.policy,
            key: self.call.key(),
            cost: self.call.estimate(),
            decision: admission.decision,
            binding_axis: admission.binding_axis(),
            policy_denied: admission.policy_denied,
            guarantee: admission.guarantee,
        };
        let watch = std::panic::AssertUnwindSafe(|| observer.observe(&event));
        // What it threw may panic again when it is dropped.
        let _ = std::panic::catch_unwind(watch).map_err(std::mem::forget);
    }
}

/// The answer to a call that is worth less than its price. No wait helps it: a higher value does, or other prices.
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

//! The public policy type for axes that are all in this process.

use std::sync::Arc;

use throttlekit_core::Timestamp;
use throttlekit_core::rate::Limit;

use super::builder::PolicyBuilder;
use super::fairness::Fairness;
use super::local::Local;
use super::meter::Meter;
use super::permit::{Books, Permit};
use super::slots::{Entered, LocalSlot, LocalSlots};
use super::{Admission, Axes, Call};
use crate::admit::{LimitInfo, Told};
use crate::clock::{Clock, SystemClock};
use crate::observe::Observer;
use crate::price::Pricer;
use crate::{Axis, Guarantee};

/// Every axis that a request must pass, in this process: one call, one decision, one permit.
///
/// A call is evaluated on concurrency, price, rate, cost and fairness, in this order; the first axis that denies ends
/// it, and is named. A denied call leaves every axis unchanged. Synchronous: it never awaits.
///
/// ```
/// use throttlekit::{Axis, Budget, Call, Policy, Rate};
///
/// let chat = Policy::builder("chat")
///     .concurrency(32)
///     .rate(Rate::per_minute(60))
///     .tokens(Budget::per_minute(100_000))
///     .build()?;
///
/// let mut permit = chat.admit(Call::by("acme").cost(1_500)).into_permit()?;
/// for chunk in [400, 600] {
///     if !permit.debit(chunk).allowed {
///         break; // the budget is spent: stop generating
///     }
/// }
/// permit.success(); // gives the slot back, and the 500 tokens that were not used
///
/// let huge = chat.admit(Call::by("acme").cost(99_001));
/// assert_eq!(huge.denied_by(), Some(Axis::Cost));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Policy<C = SystemClock> {
    pub(super) name: Box<str>,
    pub(super) slots: LocalSlots,
    pub(super) pricer: Option<Pricer>,
    pub(super) local: Local<C>,
    pub(super) fairness: Option<Box<dyn Fairness>>,
    pub(super) observer: Option<Box<dyn Observer>>,
}

impl Policy {
    /// Creates a builder. The name appears in metrics, logs and traces.
    pub fn builder(name: &str) -> PolicyBuilder {
        PolicyBuilder::new(name)
    }
}

impl<C: Clock> Policy<C> {
    /// Decides one call over all axes, and charges it if all allow.
    #[inline]
    pub fn admit<'a>(&self, call: impl Into<Call<'a>>) -> Admission<Permit<'_, C>> {
        let call = call.into();
        self.answer(&call, self.slots.enter(&call), |slot| Permit::new(self, slot))
    }

    /// Like [`admit`](Self::admit), with an owned permit, for tasks and streams.
    pub fn admit_owned<'a>(self: &Arc<Self>, call: impl Into<Call<'a>>) -> Admission<Permit<'static, C>> {
        let call = call.into();
        self.answer(&call, self.slots.enter_owned(&call), |slot| Permit::owned(self.clone(), slot))
    }

    /// Evaluates the axes after the slot, which the permit holds from here on.
    #[inline(always)]
    fn answer<'p>(
        &self,
        call: &Call<'_>,
        (decision, slot): Entered<LocalSlot<'p>>,
        permit: impl FnOnce(LocalSlot<'p>) -> Permit<'p, C>,
    ) -> Admission<Permit<'p, C>> {
        let mut admission = Admission::open();
        if let Some(decision) = decision {
            admission.axes.record(Axis::Concurrency, decision);
        }
        admission.permit = slot.map(permit);
        self.charge(call, &mut admission);
        admission.close(self.told(call));
        admission
    }

    /// Evaluates everything but the slot: the price, then the limits in one commit, with the fair share last in it. A
    /// permit that one of them denies has nothing to settle, and releases its slot.
    #[inline]
    fn charge(&self, call: &Call<'_>, admission: &mut Admission<Permit<'_, C>>) {
        let Some(permit) = &mut admission.permit else { return };
        let clears = self.pricer.as_ref().is_none_or(|pricer| pricer.clears(&call.bid()));
        admission.priced_out = !clears;
        if !clears
            || !self.charge_limits(call, (&mut admission.axes, &mut admission.guarantee), &mut permit.books)
        {
            admission.permit = None;
        }
    }

    #[inline]
    fn charge_limits(&self, call: &Call<'_>, said: (&mut Axes, &mut Guarantee), books: &mut Books) -> bool {
        let Books { meter, marks, portion } = books;
        let weight = self.fairness.as_ref().map(|fairness| fairness.weight(call)).unwrap_or_default();
        let allowed = self.local.charge(call, said, marks, |axes| match &self.fairness {
            None => true,
            Some(fairness) => {
                let (decision, shared) = fairness.charge(call, weight);
                axes.record(Axis::Fairness, decision);
                *portion = shared;
                decision.allowed
            }
        });
        if allowed {
            *meter = Meter::new(call.units());
        }
        allowed
    }

    #[inline]
    fn told<'a>(&'a self, call: &'a Call<'a>) -> Told<'a> {
        Told { observer: self.observer.as_deref(), policy: &self.name, call }
    }

    /// Returns the policy's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Describes the limits of all axes, for response headers.
    pub(crate) fn limit_infos(&self) -> Vec<LimitInfo> {
        let limits = self.limits().map(|(axis, limit)| axis.by(0).describe(limit));
        let fairness = self.fairness.as_ref().map(|fairness| fairness.limit());
        self.slots.limit().into_iter().chain(limits).chain(fairness).collect()
    }

    /// Returns the current time of the clock of the limits.
    pub fn now(&self) -> Timestamp {
        self.local.now()
    }

    /// Iterates over the limits and their axes.
    pub fn limits(&self) -> impl Iterator<Item = (Axis, &Limit)> {
        self.local.limits()
    }
}

debug_fields!([C] Policy<C>, |it| name = it.name, slots = it.slots);

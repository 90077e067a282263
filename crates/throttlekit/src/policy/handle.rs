//! The public policy type for axes that are all in this process.

use std::sync::Arc;

use throttlekit_core::rate::Limit;
use throttlekit_core::{Decision, Timestamp};

use super::builder::PolicyBuilder;
use super::fairness::Fairness;
use super::local::{Few, Held, Local, Marks};
use super::permit::{Books, Home, Permit};
use super::slots::{Entrance, LocalSlot, LocalSlots};
use super::{Admission, Axes, Call};
use crate::admit::{LimitInfo, Told, combined};
use crate::allowed::Allowed;
use crate::clock::{Clock, SystemClock};
use crate::guard::decision;
use crate::observe::Observer;
use crate::price::Pricer;
use crate::{Axis, Guarantee, LimitName};

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
        self.admit_call(&call.into())
    }

    fn admit_call(&self, call: &Call<'_>) -> Admission<Permit<'_, C>> {
        match self.slots.enter(call) {
            Entrance::Slot(concurrency, slot) => {
                self.decide(call, (concurrency, slot), || Home::Borrowed(self))
            }
            Entrance::Full((limit, in_flight)) => self.full(call, decision(false, limit, in_flight)),
            Entrance::ByKey => self.enter_owned(call, || Home::Borrowed(self)),
        }
    }

    /// Like [`admit`](Self::admit), with an owned permit, for tasks and streams.
    pub fn admit_owned<'a>(self: &Arc<Self>, call: impl Into<Call<'a>>) -> Admission<Permit<'static, C>> {
        self.enter_owned(&call.into(), || Home::Owned(self.clone()))
    }

    fn enter_owned<'p>(
        &self,
        call: &Call<'_>,
        policy: impl FnOnce() -> Home<'p, C>,
    ) -> Admission<Permit<'p, C>> {
        match self.slots.enter_owned(call) {
            Ok(entered) => self.decide(call, entered, policy),
            Err(denied) => self.full(call, denied),
        }
    }

    /// Evaluates the axes after the slot, which the permit holds from here on.
    ///
    /// The admission is the last expression of each path, so that it is written once, to the caller's place: a value
    /// that is changed after it was made is copied to there.
    #[inline(always)]
    fn decide<'p>(
        &self,
        call: &Call<'_>,
        (concurrency, slot): (Option<Allowed>, LocalSlot<'p>),
        policy: impl FnOnce() -> Home<'p, C>,
    ) -> Admission<Permit<'p, C>> {
        let few =
            if self.pricer.is_none() && self.fairness.is_none() { self.local.hold_few(call) } else { None };
        let Some(Few { rate, cost, now }) = few else {
            return self.decide_in_full(call, concurrency.map(Allowed::decision), slot, policy());
        };
        if rate.as_ref().is_some_and(Held::is_denied) || cost.as_ref().is_some_and(Held::is_denied) {
            return self.denied(call, concurrency, Few { rate, cost, now }, slot);
        }
        let ([rate, cost], position) = Few { rate, cost, now }.charge();
        let decision = concurrency.unwrap_or(Allowed::FULL).and(rate).and(cost).decision();
        self.report(call, decision, (None, None), Guarantee::Exact);
        Admission {
            decision,
            axes: Axes::of([concurrency, rate, cost, None].map(|allowed| allowed.map(Allowed::decision))),
            priced_out: false,
            guarantee: Guarantee::Exact,
            permit: Some(Permit::new(policy(), slot, Books::of_one(call.units(), position))),
            outage: None,
            shadow_denied: false,
        }
    }

    /// Returns the denial of a call for which no slot is free.
    #[cold]
    fn full<P>(&self, call: &Call<'_>, decision: Decision) -> Admission<P> {
        self.report(call, decision, (Some(Axis::Concurrency), None), Guarantee::Exact);
        Admission::of_denied(Axes::of([Some(decision), None, None, None]))
    }

    /// Returns the denial of a call that a limit denies. Releases its slot.
    #[cold]
    fn denied<P>(
        &self,
        call: &Call<'_>,
        concurrency: Option<Allowed>,
        few: Few<'_>,
        slot: LocalSlot<'_>,
    ) -> Admission<P> {
        let [rate, cost] = few.denied();
        let mut axes = Axes::of([concurrency.map(Allowed::decision), rate, cost, None]);
        axes.set_limit_name(axes.denied_by().and_then(|axis| self.local.name_on(axis)));
        drop((few, slot));
        self.report(call, axes.decision(), (axes.denied_by(), axes.limit_name()), Guarantee::Exact);
        Admission::of_denied(axes)
    }

    /// Evaluates the price, then the limits in one commit, with the fair share last in it.
    #[inline(never)]
    fn decide_in_full<'p>(
        &self,
        call: &Call<'_>,
        concurrency: Option<Decision>,
        slot: LocalSlot<'p>,
        policy: Home<'p, C>,
    ) -> Admission<Permit<'p, C>> {
        let (mut axes, mut guarantee) = (Axes::of([concurrency, None, None, None]), Guarantee::Exact);
        let priced_out = self.pricer.as_ref().is_some_and(|pricer| !pricer.clears(&call.bid()));
        let books = if priced_out { None } else { self.charge(call, (&mut axes, &mut guarantee)) };
        let permit = books.map(|books| Permit::new(policy, slot, books));
        let decision = combined(&axes, priced_out);
        let denied_by = if priced_out { Some(Axis::Price) } else { axes.denied_by() };
        self.report(call, decision, (denied_by, axes.limit_name()), guarantee);
        Admission { decision, axes, priced_out, guarantee, permit, outage: None, shadow_denied: false }
    }

    /// Charges the limits and the fair share: all or none.
    fn charge(&self, call: &Call<'_>, said: (&mut Axes, &mut Guarantee)) -> Option<Books> {
        let (mut marks, mut portion) = (Marks::NONE, None);
        let weight = self.fairness.as_ref().map(|fairness| fairness.weight(call)).unwrap_or_default();
        let allowed = self.local.charge(call, said, &mut marks, |axes| match &self.fairness {
            None => true,
            Some(fairness) => {
                let (decision, shared) = fairness.charge(call, weight);
                axes.record(Axis::Fairness, decision);
                portion = shared;
                decision.allowed
            }
        });
        if !allowed {
            return None;
        }
        let has_more = portion.is_some() || self.local.has_several_costs();
        Some(if has_more {
            Books::of_several(call.units(), marks, portion)
        } else {
            Books::of_one(call.units(), self.local.position(&marks))
        })
    }

    /// Notifies the observer, if there is one.
    #[inline(always)]
    fn report(
        &self,
        call: &Call<'_>,
        decision: Decision,
        denied: (Option<Axis>, Option<LimitName>),
        guarantee: Guarantee,
    ) {
        if let Some(observer) = self.observer.as_deref() {
            Told { observer, policy: &self.name, call }.report(decision, denied, guarantee);
        }
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

//! Proof of admission over all axes of a process, and its settlement.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::concurrency::Ending;
use throttlekit_core::{ALLOW_FULL, Decision};

use super::Policy;
use super::fairness::Portion;
use super::local::{Marks, Position};
use super::meter::Meter;
use super::slots::LocalSlot;
use crate::LimitName;
use crate::clock::{Clock, SystemClock};
use crate::guard::ending_without_outcome;

/// Proof that a call was admitted, held while its work runs. Settles every axis exactly once, however the work ends.
///
/// Count units as they are used: [`debit`](Self::debit) chunk by chunk, or [`settle`](Self::settle) once the total is
/// known. Then report the outcome of the work. Units counted stay charged; units reserved and not used return to the
/// window they came from; the slot is released with the outcome.
///
/// If nothing was counted, [`success`](Self::success) keeps the estimate, and every other outcome returns all of it.
/// Dropped without an outcome, the permit ends as [`ignored`](Self::ignored), since the caller is gone, or as
/// [`dropped`](Self::dropped) if the thread is panicking.
#[must_use = "dropping it gives back what the call was admitted with"]
pub struct Permit<'a, C: Clock = SystemClock> {
    policy: Home<'a, C>,
    /// `None` once the permit has ended.
    slot: Option<LocalSlot<'a>>,
    books: Books,
}

/// The reference to the policy: borrowed or owned.
pub(super) enum Home<'a, C> {
    Borrowed(&'a Policy<C>),
    Owned(Arc<Policy<C>>),
}

/// The charges of a permit.
pub(super) struct Books {
    meter: Meter,
    /// On the cost axis, if it has one limit.
    position: Position,
    /// In a box: a permit of one limit should not be larger for it.
    more: Option<Box<More>>,
}

/// The charges of a permit over several limits of the cost axis, or of a fair share.
struct More {
    marks: Marks,
    portion: Option<Portion>,
}

impl Books {
    /// Creates the books of a call that was charged to at most one limit of the cost axis.
    #[inline(always)]
    pub(super) fn of_one(estimate: u64, position: Position) -> Self {
        Self { meter: Meter::new(estimate), position, more: None }
    }

    pub(super) fn of_several(estimate: u64, marks: Marks, portion: Option<Portion>) -> Self {
        let more = Some(Box::new(More { marks, portion }));
        Self { meter: Meter::new(estimate), position: Position::NONE, more }
    }
}

impl<C> Home<'_, C> {
    #[inline(always)]
    fn get(&self) -> &Policy<C> {
        match self {
            Self::Borrowed(policy) => policy,
            Self::Owned(policy) => policy,
        }
    }
}

impl<'a, C: Clock> Permit<'a, C> {
    #[inline(always)]
    pub(super) fn new(policy: Home<'a, C>, slot: LocalSlot<'a>, books: Books) -> Self {
        Self { policy, slot: Some(slot), books }
    }

    /// Decides a chunk, and charges it if allowed. Call it before the chunk is sent; stop after a denial.
    ///
    /// The reservation covers the chunk as far as it goes. Beyond it, every limit of the cost axis and the fair share
    /// must allow the rest, or none is charged; a token budget allows the one chunk that exceeds it. Returns the
    /// decision of the limits that were checked, or [`ALLOW_FULL`] if none had to be.
    #[inline]
    pub fn debit(&mut self, tokens: u64) -> Decision {
        let (policy, books) = (self.policy.get(), &mut self.books);
        let beyond = books.meter.beyond(tokens);
        let (decision, denied) = if beyond == 0 {
            (ALLOW_FULL, None)
        } else {
            policy.debit(books.position, books.more.as_deref(), beyond)
        };
        books.meter.denied = denied;
        if decision.allowed {
            books.meter.count(tokens, beyond);
        }
        decision
    }

    /// Sets the total use, regardless of what was counted before. Settled when the permit ends: returns the excess, or
    /// charges the shortfall, which may exceed the limits. Never less than the debits beyond the estimate: those stay
    /// charged.
    pub fn settle(&mut self, actual: u64) {
        self.books.meter.count_all(actual);
    }

    /// Returns the units counted so far.
    pub fn used(&self) -> u64 {
        self.books.meter.used()
    }

    /// Returns the units reserved and not used yet.
    pub fn reserved(&self) -> u64 {
        self.books.meter.covered()
    }

    /// Returns the name of the limit that denied the last chunk, if one did and has a name.
    pub fn limit_name(&self) -> Option<LimitName> {
        self.books.meter.denied
    }

    /// Returns how long the slot has been held, if the permit is owned and its slot is timed: for
    /// [`success_after`](Self::success_after), if the slot is held longer than the work to be sampled.
    pub fn elapsed(&self) -> Option<Duration> {
        self.slot.as_ref()?.elapsed()
    }

    endings!();

    #[inline(always)]
    pub(crate) fn end(mut self, ending: Ending, latency: Option<Duration>) {
        self.end_once(ending, latency);
    }

    /// Ends the permit; every outcome takes this path. The slot is taken first: whatever panics after that, nothing
    /// ends twice.
    #[inline(always)]
    fn end_once(&mut self, ending: Ending, latency: Option<Duration>) {
        let Some(slot) = self.slot.take() else { return };
        let (set_aside, last) = (self.books.meter.set_aside(), self.books.meter.last(ending));
        if set_aside != last {
            let Books { position, more, .. } = &self.books;
            self.policy.get().settle(*position, more.as_deref(), set_aside, last);
        }
        slot.end(ending, latency);
    }
}

impl<C: Clock> Policy<C> {
    /// Charges units that were not reserved. Returns the decision, and the name of the limit that denied.
    #[inline(never)]
    fn debit(&self, position: Position, more: Option<&More>, tokens: u64) -> (Decision, Option<LimitName>) {
        let Some(More { marks, portion }) = more else { return self.local.debit_one(position, tokens) };
        let share = self.fairness.as_ref().zip(portion.as_ref());
        let share = share.map(|(fairness, portion)| || fairness.debit(portion, tokens));
        self.local.debit(marks, tokens, share)
    }

    #[inline(always)]
    fn settle(&self, position: Position, more: Option<&More>, charged: u64, actual: u64) {
        match more {
            None => self.local.settle_one(position, charged, actual),
            Some(more) => self.settle_more(more, charged, actual),
        }
    }

    #[inline(never)]
    fn settle_more(&self, More { marks, portion }: &More, charged: u64, actual: u64) {
        self.local.settle(marks, charged, actual);
        if let (Some(fairness), Some(portion)) = (&self.fairness, portion) {
            fairness.settle(portion, charged, actual);
        }
    }
}

impl<C: Clock> Drop for Permit<'_, C> {
    #[inline]
    fn drop(&mut self) {
        if self.slot.is_some() {
            self.end_once(ending_without_outcome(), None);
        }
    }
}

debug_fields!([C: Clock] Permit<'_, C>, |it| meter = it.books.meter, slot = it.slot);

//! Proof of admission over all axes of a process, and its settlement.

use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::concurrency::Ending;
use throttlekit_core::{ALLOW_FULL, Decision};

use super::Policy;
use super::fairness::Portion;
use super::local::Marks;
use super::meter::Meter;
use super::slots::LocalSlot;
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
    pub(super) books: Books,
}

/// The reference to the policy: borrowed or owned.
enum Home<'a, C> {
    Borrowed(&'a Policy<C>),
    Owned(Arc<Policy<C>>),
}

/// The charges of a permit.
pub(super) struct Books {
    /// Empty until all limits have been charged: a permit dropped before that settles nothing.
    pub(super) meter: Meter,
    pub(super) marks: Marks,
    pub(super) portion: Option<Portion>,
}

impl Books {
    #[inline]
    fn empty() -> Self {
        Self { meter: Meter::new(0), marks: Marks::NONE, portion: None }
    }
}

impl<C> Home<'_, C> {
    #[inline]
    fn get(&self) -> &Policy<C> {
        match self {
            Self::Borrowed(policy) => policy,
            Self::Owned(policy) => policy,
        }
    }
}

impl<'a, C: Clock> Permit<'a, C> {
    #[inline]
    pub(super) fn new(policy: &'a Policy<C>, slot: LocalSlot<'a>) -> Self {
        Self { policy: Home::Borrowed(policy), slot: Some(slot), books: Books::empty() }
    }

    pub(super) fn owned(policy: Arc<Policy<C>>, slot: LocalSlot<'a>) -> Self {
        Self { policy: Home::Owned(policy), slot: Some(slot), books: Books::empty() }
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
        let decision = if beyond == 0 { ALLOW_FULL } else { policy.debit(books, beyond) };
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

    /// Returns how long the slot has been held, if the permit is owned and its slot is timed: for
    /// [`success_after`](Self::success_after), if the slot is held longer than the work to be sampled.
    pub fn elapsed(&self) -> Option<Duration> {
        self.slot.as_ref()?.elapsed()
    }

    endings!();

    #[inline]
    pub(crate) fn end(mut self, ending: Ending, latency: Option<Duration>) {
        self.end_once(ending, latency);
    }

    /// Ends the permit; every outcome takes this path. The slot is taken first: whatever panics after that, nothing
    /// ends twice.
    #[inline]
    fn end_once(&mut self, ending: Ending, latency: Option<Duration>) {
        let Some(slot) = self.slot.take() else { return };
        let (set_aside, last) = (self.books.meter.set_aside(), self.books.meter.last(ending));
        if set_aside != last {
            self.policy.get().settle(&self.books, set_aside, last);
        }
        slot.end(ending, latency);
    }
}

impl<C: Clock> Policy<C> {
    /// Charges units that were not reserved.
    fn debit(&self, books: &Books, tokens: u64) -> Decision {
        let share = self.fairness.as_ref().zip(books.portion.as_ref());
        let share = share.map(|(fairness, portion)| || fairness.debit(portion, tokens));
        self.local.debit(&books.marks, tokens, share)
    }

    fn settle(&self, books: &Books, charged: u64, actual: u64) {
        self.local.settle(&books.marks, charged, actual);
        if let (Some(fairness), Some(portion)) = (&self.fairness, &books.portion) {
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

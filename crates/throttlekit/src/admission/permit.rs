//! Proof of admission over all axes of a process, and how it is settled.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use throttlekit_core::concurrency::Ending;
use throttlekit_core::{ALLOW_FULL, Cost, Decision};

use super::Policy;
use super::fairness::Portion;
use super::local::Marks;
use super::meter::Meter;
use super::slots::LocalSlot;
use crate::{Clock, SystemClock};

/// Proof that a call was admitted, held while its work runs. Settles every axis exactly once, however it goes.
///
/// Count what is used as it is used: [`debit`](Self::debit) chunk by chunk, or [`settle`](Self::settle) when all of it is
/// known. Then say how the work ended. What was counted stays charged; what was set aside and not used goes back into the
/// window it came from; the slot goes back with the word.
///
/// Where nothing was counted, [`success`](Self::success) leaves the estimate as it is, and every other end gives all of it
/// back. Dropped without a word it ends as [`ignored`](Self::ignored), since the caller went away, or as
/// [`dropped`](Self::dropped) if the thread is panicking.
#[must_use = "dropping it gives back what the call was admitted with"]
pub struct Permit<'a, C: Clock = SystemClock> {
    policy: Home<'a, C>,
    /// Nothing once it has ended.
    slot: Option<LocalSlot<'a>>,
    pub(super) books: Books,
}

/// Where the policy is.
enum Home<'a, C> {
    Borrowed(&'a Policy<C>),
    Owned(Arc<Policy<C>>),
}

/// What a permit was charged.
pub(super) struct Books {
    /// Of nothing until all limits have been charged: dropped before, nothing is settled.
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

    /// Answers for a chunk, and charges it if allowed. Ask before the chunk is passed on; after a denial stop.
    ///
    /// What was set aside covers it as far as it goes. Beyond, every limit of the cost axis and the fair share must allow,
    /// or none is charged; a token budget lets the chunk pass that crosses its edge. The answer is that of what was asked:
    /// [`ALLOW_FULL`] where nothing had to be.
    #[inline]
    pub fn debit(&mut self, tokens: Cost) -> Decision {
        let (policy, books) = (self.policy.get(), &mut self.books);
        let beyond = books.meter.beyond(tokens);
        let decision = if beyond == 0 { ALLOW_FULL } else { policy.debit(books, beyond) };
        if decision.allowed {
            books.meter.count(tokens, beyond);
        }
        decision
    }

    /// Says what all of it came to, whatever was counted before. Settled when the permit ends: hands back what was too
    /// much, or takes what was too little, which may go beyond the limits. Not less than what debits took beyond the
    /// estimate: that stays.
    pub fn settle(&mut self, actual: Cost) {
        self.books.meter.count_all(actual);
    }

    /// What was counted so far.
    pub fn used(&self) -> Cost {
        self.books.meter.used()
    }

    /// What is set aside and not used yet.
    pub fn reserved(&self) -> Cost {
        self.books.meter.covered()
    }

    /// The work was done. How long it took tells how loaded the backend is.
    #[inline]
    pub fn success(mut self) {
        self.end(Ending::Success, None);
    }

    /// The work was done, and took this long as far as the backend's load goes: the time to a first token, say.
    #[inline]
    pub fn success_after(mut self, latency: Duration) {
        self.end(Ending::Success, Some(latency));
    }

    /// The backend was too full for it: a timeout, a refusal, a crash.
    pub fn dropped(mut self) {
        self.end(Ending::Dropped, None);
    }

    /// It says nothing of the backend: the caller went away.
    #[inline]
    pub fn ignored(mut self) {
        self.end(Ending::Ignored, None);
    }

    /// The one way out. The slot is taken first: whatever panics after that, nothing ends twice.
    #[inline]
    fn end(&mut self, ending: Ending, latency: Option<Duration>) {
        let Some(slot) = self.slot.take() else { return };
        let (set_aside, last) = (self.books.meter.set_aside(), self.books.meter.last(ending));
        if set_aside != last {
            self.policy.get().settle(&self.books, set_aside, last);
        }
        slot.end(ending, latency);
    }
}

impl<C: Clock> Policy<C> {
    /// Charges what was not set aside.
    fn debit(&self, books: &Books, tokens: Cost) -> Decision {
        let share = self.fairness.as_ref().zip(books.portion.as_ref());
        let share = share.map(|(fairness, portion)| || fairness.debit(portion, tokens));
        self.local.debit(&books.marks, tokens, share)
    }

    fn settle(&self, books: &Books, charged: Cost, actual: Cost) {
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
            self.end(ending_without_a_word(), None);
        }
    }
}

/// How a permit ends that nobody ends.
pub(super) fn ending_without_a_word() -> Ending {
    if std::thread::panicking() { Ending::Dropped } else { Ending::Ignored }
}

impl<C: Clock> fmt::Debug for Permit<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("meter", &self.books.meter)
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}

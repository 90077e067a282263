//! Debits with an id in a scenario: the next of a stream, a repeated one, one that comes too late.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use throttlekit::store::{Charge, Debit, DebitId, Debited, Store, StoreError};
use throttlekit_core::rate::Rule;

use super::fixture::{Fault, Heard, same, same_outcome};
use super::play::Play;
use super::policy::{Placed, Policy};
use super::scenario::{StoreDebit, Turn};

/// The last number of each stream of each key.
pub(super) type Numbers = HashMap<(String, u8), u64>;

/// A debit of the scenario with its key and its number.
struct Sent<'a> {
    debit: &'a StoreDebit,
    placed: Placed,
    number: u64,
}

impl Play<'_> {
    /// Compares every response field by field, and every error message verbatim.
    pub(super) async fn debit<S: Store>(&mut self, store: &Arc<S>, debits: &[StoreDebit]) -> Heard {
        let sent: Vec<Sent<'_>> = debits.iter().map(|debit| self.numbered(debit)).collect();
        let stream = self.stream_of();
        let mut next = self.rules.clone();
        let flight = flight_of(&self.policy, &sent, stream);
        let want: Vec<_> = flight.iter().map(|debit| next.debit(debit, self.now)).collect();
        let before = self.rules.clone();
        if !self.adopt(next) {
            return Ok(());
        }
        let got = store.debit(&flight_of(&self.policy, &sent, stream)).await;
        self.notes.answers += want.len() as u64;
        same(&want.len(), &got.len())?;
        want.iter().zip(&got).try_for_each(|(want, got)| same_debited(want, got))?;
        self.notes.see_if(sent.len() > 1, "a flight of debits");
        for (sent, want) in sent.iter().zip(&want) {
            self.remember(&sent.placed);
            let state = before.state(&sent.placed.names[sent.debit.limit]);
            let left = self.policy.forms[sent.debit.limit].limit().decide(&state, 0, self.now).remaining;
            self.note_debit(sent.debit, left, want);
        }
        Ok(())
    }

    fn numbered<'a>(&mut self, debit: &'a StoreDebit) -> Sent<'a> {
        let placed = self.policy.place_keys(&debit.keys);
        let last = self.numbers.entry((placed.names[debit.limit].clone(), debit.stream)).or_default();
        let number = match debit.turn {
            Turn::Next(by) => *last + by,
            Turn::Again => *last,
            Turn::Older(by) => last.saturating_sub(by),
        };
        *last = number.max(*last);
        Sent { debit, placed, number }
    }

    fn note_debit(&mut self, debit: &StoreDebit, left: u64, want: &Result<Debited, StoreError>) {
        let notes = &mut self.notes;
        match want {
            Ok(Debited { outcome, repeated: true }) => {
                notes.see("debit again");
                let over = outcome.verdict.decision.reset_at <= self.now;
                notes.see_if(over, "debit again in another window");
                notes.see_if(!outcome.verdict.decision.allowed, "denied debit again");
            }
            Ok(Debited { outcome, repeated: false }) => {
                let allowed = outcome.verdict.decision.allowed;
                notes.see_if(allowed, "debit");
                notes.see_if(!allowed, "debit denied");
                notes.see_if(debit.turn == Turn::Again && debit.stream > 0, "debit again when forgotten");
                notes.see_if(allowed && debit.cost > left, "debit across the edge");
            }
            Err(StoreError::Stale(_)) => notes.see("debit too late"),
            Err(_) => notes.see("a limit without debits"),
        }
    }

    /// Returns the streams of this scenario: scenarios share their engines.
    fn stream_of(&self) -> impl Fn(u8) -> u128 + Copy + use<> {
        let mut hash = DefaultHasher::new();
        self.policy.name.hash(&mut hash);
        let scenario = u128::from(hash.finish()) << 64;
        move |stream| scenario | u128::from(stream)
    }
}

impl Sent<'_> {
    fn debit<'a>(&'a self, policy: &'a Policy, stream: impl Fn(u8) -> u128) -> Debit<'a> {
        let Self { debit, placed, number } = self;
        let form = &policy.forms[debit.limit];
        Debit {
            charge: Charge { key: &placed.names[debit.limit], form, cost: debit.cost },
            id: DebitId { stream: stream(debit.stream), number: *number },
            remember: debit.remember,
        }
    }
}

fn flight_of<'a>(
    policy: &'a Policy,
    sent: &'a [Sent<'_>],
    stream: impl Fn(u8) -> u128 + Copy,
) -> Vec<Debit<'a>> {
    sent.iter().map(|sent| sent.debit(policy, stream)).collect()
}

fn same_debited(want: &Result<Debited, StoreError>, got: &Result<Debited, StoreError>) -> Heard {
    match (want, got) {
        (Ok(want), Ok(got)) => {
            same(&("repeated", want.repeated), &("repeated", got.repeated))?;
            same_outcome(&want.outcome, &got.outcome)
        }
        (Ok(_), Err(error)) => Err(Fault::Error(error.clone())),
        _ => same(want, got),
    }
}

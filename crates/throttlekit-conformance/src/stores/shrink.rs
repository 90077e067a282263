//! Shrinking of scenarios to short counterexamples.

use super::scenario::{StoreOperation, StoreScenario};

impl StoreScenario {
    /// Returns every scenario that is smaller by one operation, one request of a batch, or one limit.
    pub fn smaller(&self) -> impl Iterator<Item = Self> {
        let operations = (0..self.operations.len()).rev();
        let limits = (0..self.specs.len()).rev().filter(|_| self.specs.len() > 1);
        let asks = operations.clone().flat_map(|index| {
            let asks = match &self.operations[index] {
                StoreOperation::Admit(asks) => asks.len(),
                StoreOperation::Lease(asks) => asks.len(),
                StoreOperation::Debit(debits) => debits.len(),
                _ => 0,
            };
            (0..asks).filter(move |_| asks > 1).map(move |ask| (index, ask))
        });
        operations
            .map(|index| self.without_operation(index))
            .chain(limits.map(|limit| self.without_limit(limit)))
            .chain(asks.map(|(index, ask)| self.without_ask(index, ask)))
    }

    fn without_operation(&self, index: usize) -> Self {
        let mut smaller = self.clone();
        smaller.operations.remove(index);
        smaller
    }

    fn without_ask(&self, index: usize, ask: usize) -> Self {
        let mut smaller = self.clone();
        match &mut smaller.operations[index] {
            StoreOperation::Admit(asks) => drop(asks.remove(ask)),
            StoreOperation::Lease(asks) => drop(asks.remove(ask)),
            StoreOperation::Debit(debits) => drop(debits.remove(ask)),
            _ => {}
        }
        smaller
    }

    fn without_limit(&self, limit: usize) -> Self {
        let mut smaller = self.clone();
        smaller.specs.remove(limit);
        smaller.home = self.home.and_then(|home| moved(home, limit));
        smaller.operations.retain_mut(|operation| forget_limit(operation, limit));
        smaller
    }
}

/// Removes one of the limits from an operation; returns false if it was about nothing else.
fn forget_limit(operation: &mut StoreOperation, gone: usize) -> bool {
    match operation {
        StoreOperation::Admit(asks) => asks.iter_mut().for_each(|ask| {
            ask.remove(gone);
        }),
        StoreOperation::Peek(keys) | StoreOperation::Reset(keys) => {
            keys.remove(gone);
        }
        StoreOperation::Settle { used, .. } => {
            used.remove(gone);
        }
        StoreOperation::Forecast { keys, limit, .. } => {
            keys.remove(gone);
            return moved(*limit, gone).is_some_and(|place| set(limit, place));
        }
        StoreOperation::Lease(asks) => {
            asks.retain_mut(|ask| {
                ask.keys.remove(gone);
                moved(ask.limit, gone).is_some_and(|place| set(&mut ask.limit, place))
            });
            return !asks.is_empty();
        }
        StoreOperation::Debit(debits) => {
            debits.retain_mut(|debit| {
                debit.keys.remove(gone);
                moved(debit.limit, gone).is_some_and(|place| set(&mut debit.limit, place))
            });
            return !debits.is_empty();
        }
        StoreOperation::WaitForReset(limit, _) => {
            return moved(*limit, gone).is_some_and(|place| set(limit, place));
        }
        StoreOperation::LeaseReturn { .. }
        | StoreOperation::GiveBackAgain(_)
        | StoreOperation::Wait(_)
        | StoreOperation::Retry(_)
        | StoreOperation::StepBack(_) => {}
    }
    true
}

fn set(limit: &mut usize, place: usize) -> bool {
    *limit = place;
    true
}

/// Returns the index of a limit after another is removed; `None` for the one itself.
fn moved(limit: usize, gone: usize) -> Option<usize> {
    match limit.cmp(&gone) {
        std::cmp::Ordering::Less => Some(limit),
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(limit - 1),
    }
}

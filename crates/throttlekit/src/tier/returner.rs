//! The task that returns idle units.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::lease::{Return, ReturnId, Term};

use super::engine::Tier;
use super::key_state::{KeySlot, KeyState};
use super::table::Place;
use crate::LeaseClock;
use crate::hash::random_u64;
use crate::store::{LeaseReturn, Store, StoreError};

/// Maximum number of returns in one call.
const RETURNS_MAX: usize = 128;

/// Ensures that a task returns the units of idle keys, as long as the limiter exists. Only units of windows go back.
pub(super) fn ensure<S: Store, C: LeaseClock + 'static>(tier: &Arc<Tier<S, C>>) {
    let Some(idle) = tier.chosen.return_after else { return };
    if tier.authority.is_some() && tier.plan.term == Term::Window {
        tier.keeps.ensure(&tier.background, || keep(Arc::downgrade(tier), idle));
    }
}

async fn keep<S: Store, C: LeaseClock + 'static>(tier: Weak<Tier<S, C>>, idle: Duration) {
    loop {
        tokio::time::sleep(idle).await;
        let Some(tier) = tier.upgrade() else { return };
        // Units that could not be given back lapse with their window.
        let _ = give_back(&tier, |slot, state, now| state.idle(slot, now)).await;
    }
}

/// Takes from each key what `from` returns, and gives it back to the store. A return is sent once: without a response
/// it is unknown whether it was counted, and then its units lapse.
pub(super) async fn give_back<S: Store, C: LeaseClock + 'static>(
    tier: &Tier<S, C>,
    from: impl Fn(&KeySlot, &mut KeyState, Timestamp) -> Option<Return>,
) -> Result<(), StoreError> {
    let take = |place: Place<'_>| {
        let mut state = place.slot.state.lock();
        let back = if place.is_mine() { from(place.slot, &mut state, tier.clock.now()) } else { None };
        back.zip(state.key.clone())
    };
    let returns: Vec<_> = tier.table.places().filter_map(take).collect();
    let mut result = Ok(());
    for part in returns.chunks(RETURNS_MAX) {
        result = send(tier, part).await.and(result);
    }
    result
}

async fn send<S: Store, C: LeaseClock + 'static>(
    tier: &Tier<S, C>,
    returns: &[(Return, Arc<str>)],
) -> Result<(), StoreError> {
    let form = tier.shared.form();
    let id = || ReturnId(u128::from(random_u64()) << 64 | u128::from(random_u64()));
    let backs: Vec<_> =
        returns.iter().map(|(back, key)| LeaseReturn { key, form, id: id(), back: *back }).collect();
    tier.counters.returns.fetch_add(1, Relaxed);
    tier.shared.store().give_back(&backs).await?;
    tier.counters.units_returned.fetch_add(returns.iter().map(|(back, _)| back.units).sum(), Relaxed);
    Ok(())
}

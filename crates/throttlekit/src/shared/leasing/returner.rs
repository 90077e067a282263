//! The task that returns idle units.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::lease::{Return, ReturnId, Term};

use super::engine::Engine;
use super::key_state::{KeySlot, KeyState};
use super::table::Place;
use crate::clock::LeaseClock;
use crate::hash::random_u64;
use crate::store::{LeaseReturn, Store, StoreError};

/// Maximum number of returns in one call.
const RETURNS_MAX: usize = 128;

/// Ensures that a task returns the units of idle keys, as long as the limiter exists. Only units of windows go back.
pub(super) fn ensure<S: Store, C: LeaseClock + 'static>(engine: &Arc<Engine<S, C>>) {
    let Some(idle) = engine.options.return_after else { return };
    if engine.authority.is_some() && engine.plan.term == Term::Window {
        engine.keeps.ensure(&engine.background, || keep(Arc::downgrade(engine), idle));
    }
}

async fn keep<S: Store, C: LeaseClock + 'static>(engine: Weak<Engine<S, C>>, idle: Duration) {
    loop {
        tokio::time::sleep(idle).await;
        let Some(engine) = engine.upgrade() else { return };
        // Units that could not be given back lapse with their window.
        let _ = give_back(&engine, |slot, state, now| state.idle(slot, now)).await;
    }
}

/// Takes from each key what `from` returns, and gives it back to the store. A return is sent once: without a response
/// it is unknown whether it was counted, and then its units lapse.
pub(super) async fn give_back<S: Store, C: LeaseClock + 'static>(
    engine: &Engine<S, C>,
    from: impl Fn(&KeySlot, &mut KeyState, Timestamp) -> Option<Return>,
) -> Result<(), StoreError> {
    let take = |place: Place<'_>| {
        let mut state = place.slot.state.lock();
        let back = if place.is_mine() { from(place.slot, &mut state, engine.clock.now()) } else { None };
        back.zip(state.key.clone())
    };
    let returns: Vec<_> = engine.table.places().filter_map(take).collect();
    let mut result = Ok(());
    for part in returns.chunks(RETURNS_MAX) {
        result = send(engine, part).await.and(result);
    }
    result
}

async fn send<S: Store, C: LeaseClock + 'static>(
    engine: &Engine<S, C>,
    returns: &[(Return, Arc<str>)],
) -> Result<(), StoreError> {
    let form = engine.strict.form(0);
    let id = || ReturnId(u128::from(random_u64()) << 64 | u128::from(random_u64()));
    let backs: Vec<_> =
        returns.iter().map(|(back, key)| LeaseReturn { key, form, id: id(), back: *back }).collect();
    engine.counters.returns.fetch_add(1, Relaxed);
    engine.strict.store().give_back(&backs).await?;
    engine.counters.units_returned.fetch_add(returns.iter().map(|(back, _)| back.units).sum(), Relaxed);
    Ok(())
}

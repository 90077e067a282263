//! The task that returns idle units.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Weak};
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::lease::{Return, ReturnId, Term};
use tokio::sync::Notify;

use super::engine::Engine;
use super::key_state::{KeySlot, KeyState};
use super::table::Place;
use crate::clock::LeaseClock;
use crate::hash::random_u64;
use crate::store::{Background, LeaseReturn, Store, StoreError};

/// Maximum number of returns in one call.
const RETURNS_MAX: usize = 128;
/// Deadlines of the store to wait for one call of the returner.
const CALL_DEADLINES: u32 = 2;

/// Rounds of the returner that have not ended, and their calls to the store.
///
/// Counted by the returner only. A wait for it is bounded, so a returner that stopped with its runtime, or with the process
/// that forked this one, delays a close and does not prevent it.
#[derive(Default)]
pub(super) struct Rounds {
    open: AtomicU32,
    call_ended: Notify,
}

struct Round<'a>(&'a Rounds);

impl Rounds {
    fn begin(&self) -> Round<'_> {
        self.open.fetch_add(1, Relaxed);
        Round(self)
    }

    /// Waits until no round is open, or until one of its calls has taken longer than it may.
    pub(super) async fn ended(&self, background: &Background) {
        loop {
            let call_ended = self.call_ended.notified();
            if self.open.load(Acquire) == 0 || background.wait(CALL_DEADLINES, call_ended).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Release);
        self.0.call_ended.notify_waiters();
    }
}

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
        let _round = engine.rounds.begin();
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
        engine.rounds.call_ended.notify_waiters();
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

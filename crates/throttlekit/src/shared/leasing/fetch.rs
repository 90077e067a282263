//! A lease request to the store, and its response.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use throttlekit_core::lease::{HolderRequest, Reply, Want};

use super::engine::Engine;
use super::table::Place;
use crate::clock::LeaseClock;
use crate::store::{LeaseRequest, Leased, Store, StoreError};

impl<S: Store, C: LeaseClock + 'static> Engine<S, C> {
    /// Sends one request for units of one key. However it ends, the state is updated, and all waiting callers wake up.
    pub(super) fn send(self: &Arc<Self>, place: &Place<'_>, key: Arc<str>, request: HolderRequest) {
        let (asks, lands, fingerprint) = (self.clone(), self.clone(), place.fingerprint());
        let lease = async move { asks.lease(&key, request.want).await };
        self.background.request(lease, move |answer| lands.land(fingerprint, request.id, answer));
    }

    async fn lease(&self, key: &str, want: Want) -> Result<Leased, StoreError> {
        let (form, term) = (self.strict.form(0), self.plan.term);
        self.counters.leases.fetch_add(1, Relaxed);
        let mut answers = self.strict.store().lease(&[LeaseRequest { key, form, term, want }]).await;
        answers.pop().unwrap_or_else(|| Err(StoreError::bad_state("the store returned too few results")))
    }

    fn land(&self, fingerprint: u64, id: u64, answer: Result<Leased, StoreError>) {
        let granted = answer.as_ref().map_or(0, |lent| lent.loan.granted);
        match &answer {
            Ok(lent) => self.strict.note_time(lent.now),
            Err(_) => _ = self.counters.failures.fetch_add(1, Relaxed),
        }
        self.counters.units_lent.fetch_add(granted, Relaxed);
        // A key with a request in flight keeps its slot.
        let Some(Place { slot, .. }) = self.table.find(fingerprint) else { return };
        match answer {
            Ok(lent) => {
                let reply = slot.state.lock().reply(slot, id, &lent, self.clock.now());
                if reply != Reply::Credited {
                    self.counters.units_lapsed.fetch_add(granted, Relaxed);
                }
            }
            Err(error) => slot.state.lock().failed(id, error),
        }
        slot.bell.notify_waiters();
    }
}

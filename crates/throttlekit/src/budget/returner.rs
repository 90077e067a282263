//! The task that returns the rest of ended streams, and the reservations of idle ones.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::ledger::{Ledger, Owed};
use crate::background::Mailbox;
use crate::clock::LeaseClock;
use crate::store::Store;

/// Maximum number of queued returns. Further ones expire with their window.
const QUEUED_MAX: usize = 65_536;
/// Maximum number of returns in one call.
const RETURNS_MAX: usize = 128;
/// Checks for idle streams per idle timeout: an idle stream is found after at most a quarter more of it.
const LOOKS: u32 = 4;

/// The mailbox of the returner.
pub(super) type Returns = Arc<Mailbox<Owed>>;

/// Creates the mailbox of a returner: opening or ending a stream starts the returner, if there is none.
pub(super) fn mailbox<S: Store, C: LeaseClock + 'static>(ledger: &Arc<Ledger<S, C>>) -> Mailbox<Owed> {
    let ledger = ledger.clone();
    Mailbox::new(QUEUED_MAX, move |queue| {
        ledger.background().spawn(keep(ledger.clone(), queue));
    })
}

/// Runs until the budget and all its streams are dropped, and everything they left has been returned.
async fn keep<S: Store, C: LeaseClock>(ledger: Arc<Ledger<S, C>>, mut queue: mpsc::Receiver<Owed>) {
    let look_every = ledger.idle_timeout / LOOKS;
    let mut looked_at = ledger.clock.now();
    let mut owed = Vec::with_capacity(RETURNS_MAX);
    loop {
        if let Ok(0) = timeout(look_every, queue.recv_many(&mut owed, RETURNS_MAX)).await {
            return;
        }
        let now = ledger.clock.now();
        if now.since(looked_at) >= look_every {
            looked_at = now;
            owed.extend(ledger.silent(now));
        }
        for part in owed.chunks(RETURNS_MAX) {
            // Tokens that could not be returned expire with their window.
            let _ = ledger.give_back(part).await;
        }
        owed.clear();
    }
}

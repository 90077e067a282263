//! The task that returns what streams leave, and what is set aside for those that have fallen silent.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::ledger::{Ledger, Owed};
use crate::LeaseClock;
use crate::background::Mailbox;
use crate::store::Store;

/// How many returns wait for the returner. What comes beyond lapses with its window.
const QUEUED_MAX: usize = 65_536;
/// How many returns go in one call.
const RETURNS_MAX: usize = 128;
/// How often silence is looked for while it may last: so a silent stream is found after at most a quarter more of it.
const LOOKS: u32 = 4;

/// The way to the returner.
pub(super) type Returns = Arc<Mailbox<Owed>>;

/// The way to a returner: whoever opens or leaves a stream starts it, if there is none.
pub(super) fn mailbox<S: Store, C: LeaseClock + 'static>(ledger: &Arc<Ledger<S, C>>) -> Mailbox<Owed> {
    let ledger = ledger.clone();
    Mailbox::new(QUEUED_MAX, move |queue| {
        ledger.background().spawn(keep(ledger.clone(), queue));
    })
}

/// Runs until nobody holds the budget or a stream of it, and all that they left has gone back.
async fn keep<S: Store, C: LeaseClock>(ledger: Arc<Ledger<S, C>>, mut queue: mpsc::Receiver<Owed>) {
    let look_every = ledger.silence_max / LOOKS;
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
            // What could not be given back lapses with its window.
            let _ = ledger.give_back(part).await;
        }
        owed.clear();
    }
}

//! The task that renews permits, and fences those that it could not renew.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};
use throttlekit::internals::Mutex;
use throttlekit::leasing::Margin;
use throttlekit::rate::Timestamp;
use throttlekit::store::Background;
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::{HeartbeatRequest, HeartbeatResponse};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::Client;
use crate::client::{Inner, Server};

/// Number of renewals within a lease's duration: two heartbeats may be lost.
const HEARTBEATS: u32 = 3;
/// Maximum number of permits that one heartbeat renews.
const AT_ONCE_MAX: usize = 1_000;
const PAUSE_MIN: Duration = Duration::from_millis(5);

/// The leases that this process holds from servers. One task for all, while there are some.
#[derive(Default)]
pub(crate) struct Renewer {
    held: Mutex<Held>,
    /// Notified when there is one more to renew.
    more: Arc<Notify>,
}

#[derive(Default)]
struct Held {
    holds: HashMap<String, Arc<Hold>>,
    /// The task that renews them. It ends when none is left.
    task: Option<JoinHandle<()>>,
}

impl Held {
    fn is_kept(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }
}

/// One lease.
pub(crate) struct Hold {
    pub(crate) id: String,
    pub(crate) server: Arc<Server>,
    lives: Duration,
    /// Time at which it is fenced, in nanoseconds of the boot clock. Zero: it is fenced.
    until: AtomicU64,
    bell: Notify,
    background: Background,
}

impl Hold {
    /// Creates a lease. Its duration counts from when the request was sent, so that it ends here before it ends at the
    /// server.
    pub(crate) fn new(
        id: String,
        server: Arc<Server>,
        lives: Duration,
        sent: Timestamp,
        background: Background,
    ) -> Arc<Self> {
        let until = AtomicU64::new(Margin::default().deadline(sent, lives).as_nanos());
        Arc::new(Self { id, server, lives, until, bell: Notify::new(), background })
    }

    fn left(&self) -> Duration {
        Timestamp::from_nanos(self.until.load(Relaxed)).since(BootClock.now())
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.left().is_zero()
    }

    pub(crate) async fn fenced(&self) {
        loop {
            let bell = self.bell.notified();
            let left = self.left();
            if left.is_zero() {
                return;
            }
            let _ = self.background.within(left, bell).await;
        }
    }

    /// Records the response to a heartbeat sent at `sent`. A lease that was fenced in the meantime stays so: its work
    /// has stopped.
    fn renew(&self, sent: Timestamp) {
        let until = Margin::default().deadline(sent, self.lives).as_nanos();
        if !self.is_fenced() {
            self.until.fetch_max(until, Relaxed);
        }
    }

    fn fence(&self) {
        self.until.store(0, Relaxed);
        self.bell.notify_waiters();
    }
}

// The id grants access to the slot, so it is left out.
throttlekit::debug_fields!([] Hold, |it| left = it.left());

impl Renewer {
    pub(crate) fn forget(&self, hold: &Hold) {
        self.held.lock().holds.remove(&hold.id);
    }

    /// Returns the pause until the next renewal. `None` if no lease is left: then the task ends.
    fn pause(&self) -> Option<Duration> {
        let mut held = self.held.lock();
        held.holds.retain(|_, hold| !hold.is_fenced());
        let shortest = held.holds.values().map(|hold| hold.lives).min();
        if shortest.is_none() {
            held.task = None;
        }
        shortest.map(|lives| (lives / HEARTBEATS).max(PAUSE_MIN))
    }

    /// Returns the leases by server, in batches for one heartbeat each.
    fn parts(&self) -> Vec<Vec<Arc<Hold>>> {
        let mut servers: Vec<Vec<Arc<Hold>>> = Vec::new();
        for hold in self.held.lock().holds.values() {
            match servers.iter_mut().find(|part| Arc::ptr_eq(&part[0].server, &hold.server)) {
                Some(part) => part.push(hold.clone()),
                None => servers.push(vec![hold.clone()]),
            }
        }
        servers.iter().flat_map(|part| part.chunks(AT_ONCE_MAX).map(<[_]>::to_vec)).collect()
    }
}

impl Client {
    /// Renews a lease until it is forgotten.
    pub(crate) fn keep(&self, hold: &Arc<Hold>) {
        let mut held = self.inner.renewer.held.lock();
        held.holds.insert(hold.id.clone(), hold.clone());
        // It may have to be renewed sooner than those that the task sleeps for.
        self.inner.renewer.more.notify_one();
        if !held.is_kept() {
            held.task = Some(self.inner.background.spawn(keep(Arc::downgrade(&self.inner))));
        }
    }
}

async fn keep(client: Weak<Inner>) {
    let mut renewed = Instant::now();
    loop {
        let Some(pause) = client.upgrade().and_then(|inner| inner.renewer.pause()) else { return };
        let Some(more) = client.upgrade().map(|inner| inner.renewer.more.clone()) else { return };
        tokio::select! {
            // From the last heartbeat: however many are admitted in the meantime, those that are held wait no longer.
            () = sleep_until(renewed + pause) => {}
            () = more.notified() => continue,
        }
        renewed = Instant::now();
        let Some(inner) = client.upgrade() else { return };
        let mut heartbeats = JoinSet::new();
        for part in inner.renewer.parts() {
            heartbeats.spawn(heartbeat(Client { inner: inner.clone() }, part));
        }
        heartbeats.join_all().await;
    }
}

async fn heartbeat(client: Client, part: Vec<Arc<Hold>>) {
    let sent = BootClock.now();
    let request = HeartbeatRequest { lease_ids: part.iter().map(|hold| hold.id.clone()).collect() };
    let call = |channel, request| async move { RateLimiterClient::new(channel).heartbeat(request).await };
    // Without a response they are fenced when their time is over.
    let Ok(HeartbeatResponse { live_ids, reclaimed_ids, .. }) =
        client.ask_at(&part[0].server, request, call).await
    else {
        return;
    };
    let by_id: HashMap<&str, &Arc<Hold>> = part.iter().map(|hold| (hold.id.as_str(), hold)).collect();
    live_ids.iter().filter_map(|id| by_id.get(id.as_str())).for_each(|hold| hold.renew(sent));
    reclaimed_ids.iter().filter_map(|id| by_id.get(id.as_str())).for_each(|hold| hold.fence());
}

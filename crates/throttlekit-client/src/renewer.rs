//! The task that renews permits, and fences those that it could not renew.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use throttlekit::store::Background;
use throttlekit::tier::Margin;
use throttlekit::{BootClock, Clock, Timestamp};
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_proto::v1::{HeartbeatRequest, HeartbeatResponse};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::Client;
use crate::client::{Inner, Server};

/// How often a permit is renewed within its life: two beats may be lost.
const BEATS: u32 = 3;
/// How many permits one heartbeat renews.
const AT_ONCE_MAX: usize = 1_000;
const PAUSE_MIN: Duration = Duration::from_millis(5);

/// What this process holds under leases of servers. One task for all, while there are some.
#[derive(Default)]
pub(crate) struct Renewer {
    held: Mutex<Held>,
    /// Rings when there is one more to renew.
    more: Arc<Notify>,
}

#[derive(Default)]
struct Held {
    holds: HashMap<String, Arc<Hold>>,
    /// The task that renews them. It ends when there is none left.
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
    /// When it is fenced, in nanoseconds of the boot clock. Zero: it is.
    until: AtomicU64,
    bell: Notify,
    background: Background,
}

impl Hold {
    /// The life counts from when the request was sent, so that it ends here before it ends at the server.
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

    /// A beat that was sent then has been answered. One that was fenced meanwhile stays so: its work has stopped.
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

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The id is worth as much as the slot.
        f.debug_struct("Hold").field("left", &self.left()).finish_non_exhaustive()
    }
}

impl Renewer {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn forget(&self, hold: &Hold) {
        self.held().holds.remove(&hold.id);
    }

    /// Those to renew, and after how long. Nothing, if none is left: then the task ends.
    fn pause(&self) -> Option<Duration> {
        let mut held = self.held();
        held.holds.retain(|_, hold| !hold.is_fenced());
        let shortest = held.holds.values().map(|hold| hold.lives).min();
        if shortest.is_none() {
            held.task = None;
        }
        shortest.map(|lives| (lives / BEATS).max(PAUSE_MIN))
    }

    /// The holds by their servers, in parts that one heartbeat carries.
    fn parts(&self) -> Vec<Vec<Arc<Hold>>> {
        let mut servers: Vec<Vec<Arc<Hold>>> = Vec::new();
        for hold in self.held().holds.values() {
            match servers.iter_mut().find(|part| Arc::ptr_eq(&part[0].server, &hold.server)) {
                Some(part) => part.push(hold.clone()),
                None => servers.push(vec![hold.clone()]),
            }
        }
        servers.iter().flat_map(|part| part.chunks(AT_ONCE_MAX).map(<[_]>::to_vec)).collect()
    }
}

impl Client {
    /// Keeps a lease alive until it is forgotten.
    pub(crate) fn keep(&self, hold: &Arc<Hold>) {
        let mut held = self.inner.renewer.held();
        held.holds.insert(hold.id.clone(), hold.clone());
        // It may have to be renewed sooner than those that the task sleeps for.
        self.inner.renewer.more.notify_one();
        if !held.is_kept() {
            held.task = Some(self.inner.background.spawn(keep(Arc::downgrade(&self.inner))));
        }
    }
}

async fn keep(client: Weak<Inner>) {
    let mut beaten = Instant::now();
    loop {
        let Some(pause) = client.upgrade().and_then(|inner| inner.renewer.pause()) else { return };
        let Some(more) = client.upgrade().map(|inner| inner.renewer.more.clone()) else { return };
        tokio::select! {
            // From the last beat: however many are admitted meanwhile, those that are held wait no longer.
            () = sleep_until(beaten + pause) => {}
            () = more.notified() => continue,
        }
        beaten = Instant::now();
        let Some(inner) = client.upgrade() else { return };
        let mut beats = JoinSet::new();
        for part in inner.renewer.parts() {
            beats.spawn(beat(Client { inner: inner.clone() }, part));
        }
        beats.join_all().await;
    }
}

async fn beat(client: Client, part: Vec<Arc<Hold>>) {
    let sent = BootClock.now();
    let request = HeartbeatRequest { lease_ids: part.iter().map(|hold| hold.id.clone()).collect() };
    let call = |channel, request| async move { RateLimiterClient::new(channel).heartbeat(request).await };
    // Without an answer they are fenced when their time is over.
    let Ok(HeartbeatResponse { live_ids, reclaimed_ids, .. }) =
        client.ask_at(&part[0].server, request, call).await
    else {
        return;
    };
    let by_id: HashMap<&str, &Arc<Hold>> = part.iter().map(|hold| (hold.id.as_str(), hold)).collect();
    live_ids.iter().filter_map(|id| by_id.get(id.as_str())).for_each(|hold| hold.renew(sent));
    reclaimed_ids.iter().filter_map(|id| by_id.get(id.as_str())).for_each(|hold| hold.fence());
}

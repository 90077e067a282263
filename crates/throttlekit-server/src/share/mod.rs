//! Fair use of the server itself: no caller takes resources that others need for decisions.
//!
//! A request is identified by its headers, its body is read, it gets its turn, and then it is decided. Processor time,
//! capacity for bodies, capacity of the queue and turns are shared by weight: between principals, or addresses where
//! callers have no name, and then between the connections of each.

mod crowd;
mod processor;
mod requests;
mod tally;
mod turns;
mod who;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use throttlekit::internals::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

pub(crate) use processor::Account;
pub use processor::Processor;
pub(crate) use requests::{Requests, Running};
pub use tally::PrincipalSeen;
use tally::{Tallies, Tally};
use turns::{Asked, Turns};
pub(crate) use who::Who;

use crate::limits::Limits;
use crowd::Crowd;

/// A map for a bounded number of callers. Several are read for each request, so its hash is fast; its seed is random.
type CallerMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// Maximum number of streams that report changes, over all listeners.
const STREAMS_MAX: u64 = 1_024;
/// Maximum number of sessions, over all listeners.
const SESSIONS_MAX: u64 = 1_024;
/// Maximum number of requests that wait for a limit, over all listeners.
const WAITS_MAX: u64 = 1_024;
/// Maximum number of streams of denials, over all listeners.
pub(crate) const WATCHERS_MAX: usize = 64;

/// Error: the maximum number of streams of denials is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyWatchers;

/// The load of a server at one moment, over all listeners. All 0 on an idle server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Decisions in progress.
    pub deciding: u64,
    /// Requests that wait for their turn.
    pub waiting: u64,
    /// Bytes held for requests whose bodies are incomplete.
    pub body_bytes: u64,
    /// Open health streams.
    pub health_streams: u64,
    /// Open sessions.
    pub sessions: u64,
}

/// Capacities that all listeners of a server share.
#[derive(Debug)]
pub(crate) struct Shares {
    turns: Mutex<Turns<oneshot::Sender<()>>>,
    bodies: Mutex<Crowd>,
    streams: Mutex<Crowd>,
    watchers: Mutex<Crowd>,
    sessions: Mutex<Crowd>,
    waits: Mutex<Crowd>,
    tallies: Tallies,
    limits: Limits,
}

impl Shares {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            turns: Mutex::new(Turns::new(limits.requests_max as u64, limits.queue_max as u64)),
            bodies: Mutex::new(Crowd::new(limits.bodies_bytes_max)),
            streams: Mutex::new(Crowd::new(STREAMS_MAX)),
            watchers: Mutex::new(Crowd::new(WATCHERS_MAX as u64)),
            sessions: Mutex::new(Crowd::new(SESSIONS_MAX)),
            waits: Mutex::new(Crowd::new(WAITS_MAX)),
            tallies: Tallies::default(),
            limits,
        })
    }

    /// Returns the load at this moment.
    pub(crate) fn load(&self) -> Load {
        let (deciding, waiting) = self.turns.lock().load();
        let (body_bytes, health_streams) = (self.bodies.lock().taken(), self.streams.lock().taken());
        let sessions = self.sessions.lock().taken();
        Load { deciding, waiting, body_bytes, health_streams, sessions }
    }

    /// Returns the limits that the capacities are based on.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes capacity for bytes of an incomplete body, if there is enough for its caller.
    pub(crate) fn take_body_bytes(&self, who: &Who, bytes: u64) -> bool {
        self.bodies.lock().enter(who, bytes)
    }

    /// Releases capacity of an incomplete body.
    pub(crate) fn give_back_body_bytes(&self, who: &Who, bytes: u64) {
        self.bodies.lock().leave(who, bytes);
    }

    /// Returns the counts of each principal.
    pub(crate) fn principals(&self) -> Vec<PrincipalSeen> {
        self.tallies.seen()
    }

    /// Takes capacity for a stream that stays open; `None` if its caller has too many.
    pub(crate) fn stream(self: &Arc<Self>, who: Who) -> Option<OpenStream> {
        OpenStream::enter(self, who, |shares| &shares.streams)
    }

    /// Takes capacity for a session; `None` if its caller has too many.
    pub(crate) fn session(self: &Arc<Self>, who: Who) -> Option<OpenStream> {
        OpenStream::enter(self, who, |shares| &shares.sessions)
    }

    /// Waits for the turn of a request; `None` if its caller has too many in the queue, or if it did not come in time.
    pub(crate) async fn turn(self: &Arc<Self>, who: Who) -> Option<Turn> {
        self.turn_for(who, 1).await
    }

    /// Begins the turn of a request, if it need not wait.
    pub(crate) fn turn_now(self: &Arc<Self>, who: &Who) -> Option<Turn> {
        let begins = self.turns.lock().begin_now(who, 1);
        begins.then(|| self.begun(who.clone(), 1, self.tallies.of(&who.group)))
    }

    /// Waits for the turn of several requests of one decision each, which a connection sent together.
    pub(crate) async fn turn_for(self: &Arc<Self>, who: Who, requests: u64) -> Option<Turn> {
        let tally = self.tallies.of(&who.group);
        if !self.comes(&who, requests).await {
            tally.shed(requests);
            return None;
        }
        Some(self.begun(who, requests, tally))
    }

    fn begun(self: &Arc<Self>, who: Who, requests: u64, tally: Arc<Tally>) -> Turn {
        tally.begun(requests);
        let (shares, units, is_used) = (self.clone(), AtomicU64::new(requests), AtomicBool::new(false));
        Turn { shares, who, tally, units, is_used }
    }

    /// Waits for the turn of `units` units. Returns whether it came.
    async fn comes(&self, who: &Who, units: u64) -> bool {
        let mut turn = None;
        let asked = self.turns.lock().ask(who, units, || {
            let (tell, told) = oneshot::channel();
            turn = Some(told);
            tell
        });
        let (ticket, turn) = match (asked, turn) {
            (Asked::Begins, _) => return true,
            (Asked::Waits(ticket), Some(turn)) => (ticket, turn),
            (Asked::Waits(_) | Asked::Full, _) => return false,
        };
        let mut waiting = Waiting { shares: self, who, units, ticket, is_over: false };
        waiting.is_over = timeout(self.limits.queue_for, turn).await.is_ok();
        waiting.is_over
    }

    fn end(&self, who: &Who, units: u64) {
        let told = self.turns.lock().end(who, units);
        // A request that stopped waiting meanwhile finds its turn begun, and ends it.
        for next in told {
            let _ = next.send(());
        }
    }
}

/// A request in the queue. On drop it leaves the queue, or ends the turn that began in that instant.
struct Waiting<'a> {
    shares: &'a Shares,
    who: &'a Who,
    units: u64,
    ticket: u64,
    /// True once its turn has come, and is owned elsewhere.
    is_over: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let was_in_line = self.shares.turns.lock().give_up(self.who, self.ticket);
        if !was_in_line {
            self.shares.end(self.who, self.units);
        }
    }
}

/// Capacity for a stream, released on drop.
#[derive(Debug)]
pub(crate) struct OpenStream {
    shares: Arc<Shares>,
    who: Who,
    of: fn(&Shares) -> &Mutex<Crowd>,
}

impl OpenStream {
    fn enter(shares: &Arc<Shares>, who: Who, of: fn(&Shares) -> &Mutex<Crowd>) -> Option<Self> {
        let enters = of(shares).lock().enter(&who, 1);
        enters.then(|| Self { shares: shares.clone(), who, of })
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        (self.of)(&self.shares).lock().leave(&self.who, 1);
    }
}

/// The turn of one request, which ends on drop.
#[derive(Debug)]
pub(crate) struct Turn {
    shares: Arc<Shares>,
    who: Who,
    tally: Arc<Tally>,
    /// Units that it holds now.
    units: AtomicU64,
    /// True once something was decided in it. It begins with one unit, as the cost of the request is not known yet.
    is_used: AtomicBool,
}

impl Turn {
    /// Adds the units of a request with several decisions at once: its caller waits longer for its next turn.
    pub(crate) fn weigh(&self, decisions: usize) {
        let more = (decisions as u64).saturating_sub(1);
        if more > 0 {
            self.units.fetch_add(more, Relaxed);
            self.tally.weighed(more);
            self.shares.turns.lock().weigh(&self.who, more);
        }
    }

    /// Ends the part that was decided so far, and waits for the turn of the next `decisions`. Returns whether it came.
    ///
    /// The first part waits too, unless it is the one decision that the turn began with: 128 requests that turn out to
    /// be batches once they have begun would be 4,096 decisions ahead of all others.
    pub(crate) async fn next(&self, decisions: usize) -> bool {
        let units = decisions as u64;
        let begun = u64::from(!self.is_used.swap(true, Relaxed));
        if units == begun {
            return true;
        }
        self.shares.end(&self.who, self.units.swap(0, Relaxed));
        let comes = self.shares.comes(&self.who, units).await;
        if comes {
            self.units.store(units, Relaxed);
            self.tally.weighed(units - begun);
        } else {
            self.tally.shed(1);
        }
        comes
    }

    /// Takes capacity for a request of the same caller that waits for a limit; `None` if it has too many.
    pub(crate) fn waits(&self) -> Option<OpenStream> {
        OpenStream::enter(&self.shares, self.who.clone(), |shares| &shares.waits)
    }

    /// Ends the turn of a request that begins to wait, so that others have theirs meanwhile.
    pub(crate) fn pause(&self) {
        self.shares.end(&self.who, self.units.swap(0, Relaxed));
    }

    /// Takes capacity for a stream of denials of the same caller, which outlasts its turn; `None` if it has too many.
    pub(crate) fn watcher(&self) -> Option<OpenStream> {
        OpenStream::enter(&self.shares, self.who.clone(), |shares| &shares.watchers)
    }

    /// Counts decisions that denied.
    pub(crate) fn denied(&self, decisions: u64) {
        self.tally.denied(decisions);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.shares.end(&self.who, self.units.load(Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::num::NonZeroU32;
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::future::join_all;

    use super::who::Group;
    use super::*;

    /// Returns a connection of a group.
    pub(super) fn who(group: u64, weight: u32, connection: u64) -> Who {
        let group = Group::At(IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(group).unwrap())));
        Who { group, weight: NonZeroU32::new(weight).unwrap(), connection }
    }

    pub(super) fn account(processor: &Arc<Processor>, group: u64, weight: u32) -> Arc<Account> {
        Account::of(who(group, weight, group), processor)
    }

    fn load(shares: &Shares) -> (u64, u64) {
        let load = shares.load();
        (load.deciding, load.waiting)
    }

    fn shares() -> Arc<Shares> {
        let queue_for = Duration::from_secs(1);
        Shares::new(Limits { requests_max: 1, queue_max: 100, queue_for, ..Limits::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_ends_when_it_is_dropped_and_the_next_begins() {
        let shares = shares();
        let first = shares.turn(who(1, 1, 1)).await.unwrap();
        first.weigh(10);
        assert_eq!(load(&shares), (10, 0));
        let second = tokio::spawn({
            let shares = shares.clone();
            async move { shares.turn(who(2, 1, 2)).await.is_some() }
        });
        tokio::task::yield_now().await;
        assert_eq!(load(&shares), (10, 1));
        drop(first);
        assert!(second.await.unwrap());
        assert_eq!(load(&shares), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_or_leaves_holds_up_nobody() {
        let shares = shares();
        let first = shares.turn(who(1, 1, 1)).await.unwrap();
        assert!(shares.turn(who(2, 1, 2)).await.is_none(), "its time is over");
        let left = timeout(Duration::from_millis(1), shares.turn(who(3, 1, 3))).await;
        assert!(left.is_err());
        assert_eq!(load(&shares), (1, 0));
        drop(first);
        assert!(shares.turn(who(1, 1, 1)).await.is_some());
        assert_eq!(load(&shares), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_turn_out_to_be_batches_stay_within_the_capacity() {
        let shares = Shares::new(Limits { requests_max: 4, ..Limits::default() });
        let turns = join_all((0..4).map(|n| shares.turn(who(1, 1, n)))).await;
        let turns: Vec<_> = turns.into_iter().flatten().collect();
        let mut batches: Vec<_> = turns.iter().map(|turn| Box::pin(turn.next(3))).collect();
        let begun = batches.iter_mut().filter_map(FutureExt::now_or_never).count();
        assert_eq!((begun, load(&shares)), (1, (6, 2)), "the last to begin may go beyond it");
        drop(batches);
        drop(turns);
        assert_eq!(load(&shares), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_in_the_instant_of_its_turn_ends_it() {
        let shares = shares();
        let first = shares.turn(who(1, 1, 1)).await.unwrap();
        let mut second = Box::pin(shares.turn(who(2, 1, 2)));
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        drop(first);
        assert_eq!(load(&shares), (1, 0), "it was told");
        drop(second);
        assert_eq!(load(&shares), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_ends_its_turn_and_counts_for_its_caller() {
        let shares = shares();
        let turn = shares.turn(who(1, 1, 1)).await.unwrap();
        let waits: Vec<_> = std::iter::from_fn(|| turn.waits()).collect();
        assert!(
            (WAITS_MAX / 4..WAITS_MAX).contains(&(waits.len() as u64)),
            "{} of one connection",
            waits.len()
        );
        turn.pause();
        assert_eq!(load(&shares), (0, 0), "others have their turn");
        let other = shares.turn(who(2, 1, 2)).await.unwrap();
        assert!(other.waits().is_some(), "no caller takes all of it");
        drop(waits);
        assert!(turn.waits().is_some());
        drop((turn, other));
        assert_eq!(load(&shares), (0, 0));
    }
}

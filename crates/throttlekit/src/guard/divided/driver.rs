//! The task of a divided limit: drives the [`Node`] and applies its grants.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::division::{Node, NodeLoad, NodeReport, Rebalancer, ReportResponse};
use tokio::sync::watch;
use tokio::time::sleep;

use super::demand::Meter;
use super::node::Shared;
use super::select::{Either, either};
use super::stats::DivisionStats;
use crate::clock::{BootClock, LeaseClock};
use crate::guard::single::Single;
use crate::guard::stats::GuardStats;
use crate::hash::random_u64;
use crate::store::{HeartbeatReply, MembershipStore, StoreError, heartbeat};

/// A node reports its inferred limit after this many samples: before, it would only report the initial value.
const SAMPLES_MIN: u64 = 32;

/// Maximum demand, as a multiple of the shared limit, however often the same request is retried. A smaller value would
/// be unfair to a node with most of the demand: its requests would have less of a chance than those of others.
const WANTS_MAX: u32 = 8;

pub(super) struct Driver<R, C> {
    pub(super) store: R,
    pub(super) key: String,
    pub(super) rebalancer: Rebalancer,
    pub(super) keeps: Duration,
    pub(super) deadline: Duration,
    pub(super) spacing: Duration,
    pub(super) node: Node,
    pub(super) meter: Meter,
    pub(super) infers: bool,
    /// `true` if the guard admits no more than the local share.
    pub(super) fenced: bool,
    pub(super) guard: Arc<Single<BootClock>>,
    pub(super) shared: Arc<Shared<C>>,
    pub(super) leaves: watch::Receiver<bool>,
}

impl<R: MembershipStore, C: LeaseClock> Driver<R, C> {
    pub(super) async fn run(mut self) {
        let mut leaving = false;
        while !self.node.gone() {
            if !leaving && *self.leaves.borrow_and_update() {
                leaving = true;
                self.node.leave();
            }
            let now = self.shared.clock.now();
            self.fence(now, leaving);
            let occupancy = self.occupancy(now);
            match self.node.poll_report(occupancy, random_u64() as u32, now) {
                Some(report) => self.heartbeat(&report, now).await,
                None => self.rest(now).await,
            }
        }
    }

    /// Stops admissions, if the grant has expired, before anything is reported: from then on the report is of a node
    /// that enforces nothing, and its number in flight only falls.
    fn fence(&mut self, now: Timestamp, leaving: bool) {
        if leaving {
            self.guard.cap(0);
        } else if !self.fenced && self.shared.is_dead(now) {
            self.guard.cap(self.shared.local);
            self.fenced = true;
            self.shared.stats.lock().fences += 1;
        }
    }

    /// Reads the number in flight in one load, after the last share was applied.
    fn occupancy(&mut self, now: Timestamp) -> NodeLoad {
        let seen = self.guard.stats();
        let in_flight = self.guard.in_flight();
        let asked = in_flight.saturating_add(seen.waiting);
        let wants = self.meter.wants(&self.shared.demand, asked, now);
        let wants = wants.min(self.rebalancer.most.saturating_mul(WANTS_MAX));
        let limit = if self.infers { inferred(&seen) } else { 0 };
        let mut stats = self.shared.stats.lock();
        (stats.wants, stats.inferred) = (wants, limit);
        NodeLoad { in_flight, limit, wants }
    }

    async fn heartbeat(&mut self, report: &NodeReport, sent: Timestamp) {
        // The deadline first: a process that was paused for long must not continue with an outdated report.
        let heard = heartbeat(&self.store, &self.key, &self.rebalancer, self.keeps, report);
        // And it must not arrive after the grant that it names has expired: that would look like a lost membership
        // record.
        let left = self.node.standing(sent).map(|_| self.node.dies().since(sent));
        let deadline = left.map_or(self.deadline, |left| left.min(self.deadline));
        let answer = match either(sleep(deadline), caught(heard)).await {
            Either::This(()) => Err(StoreError::Deadline(deadline)),
            Either::That(answer) => answer,
        };
        self.shared.stats.lock().heartbeats += 1;
        match answer {
            Ok(HeartbeatReply { response: ReportResponse::Grant(grant), races, nodes, .. }) => {
                // Read after the response: if the previous grant is still valid, the store had not given it away.
                let now = self.shared.clock.now();
                let counts = self.node.handle_grant(grant, sent, now);
                let mut stats = self.shared.stats.lock();
                stats.races += u64::from(races);
                stats.nodes = nodes;
                if counts {
                    (stats.grants, stats.grant) = (stats.grants + 1, Some(grant));
                    drop(stats);
                    self.put_in_force(grant.ceiling, now);
                } else {
                    stats.stale += 1;
                }
            }
            Ok(HeartbeatReply { response: ReportResponse::Stale, .. }) => {
                self.failed(sent, |stats| stats.stale += 1);
            }
            Ok(HeartbeatReply { response: ReportResponse::Full, .. }) | Err(_) => {
                self.failed(sent, |stats| stats.failed += 1);
            }
        }
    }

    /// Applies the share first, then the row, then its expiry; see `Lease`.
    fn put_in_force(&mut self, ceiling: u32, now: Timestamp) {
        let broken = self.shared.is_dead(now);
        if broken && !self.fenced {
            self.shared.stats.lock().fences += 1;
        }
        match self.infers {
            true => self.guard.cap_of(self.node.share(now), ceiling),
            false => self.guard.cap(self.node.share(now)),
        }
        self.shared.lease.extend(self.node.dies(), broken);
        self.fenced = false;
    }

    fn failed(&mut self, sent: Timestamp, count: impl FnOnce(&mut DivisionStats)) {
        self.node.handle_failure(sent);
        count(&mut self.shared.stats.lock());
    }

    /// Waits until the next heartbeat is due; but checks a few times in between for ended work and new demand, which
    /// may make one due earlier, and for the end of the grant.
    async fn rest(&mut self, now: Timestamp) {
        let due = self.node.next_deadline().since(now);
        let mut wait = due.clamp(self.spacing / 4, self.spacing);
        if !self.fenced {
            wait = wait.min(self.shared.lease.dies().since(now));
        }
        // The owner of the guard signals that it leaves, or nothing; without an owner this task is aborted.
        let _ = either(self.leaves.changed(), sleep(wait.max(Duration::from_millis(1)))).await;
    }
}

/// Treats a panic of the store as a failed call. The task must outlive it: nothing else sends heartbeats for this node.
async fn caught<T>(heartbeat: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let mut heartbeat = pin!(heartbeat);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| heartbeat.as_mut().poll(context)));
        polled.unwrap_or_else(|_| Poll::Ready(Err(StoreError::unavailable("the store panicked"))))
    })
    .await
}

fn inferred(seen: &GuardStats) -> u32 {
    if seen.samples + seen.dropped < SAMPLES_MIN { 0 } else { seen.own_limit }
}

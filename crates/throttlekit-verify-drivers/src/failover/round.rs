//! One round: callers charge one window, a primary fails in one of four ways, callers go on.

use std::time::Duration;

use anyhow::Result;
use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit::{Call, Limit, SharedLimiter};
use throttlekit_redis::Failover;
use tokio::time::sleep;

use super::load::{self, Heard, Load, WINDOW};
use super::servers::Server;
use super::signpost::Signpost;

/// An hour of the year 2027.
const BEGIN: Timestamp = Timestamp::from_micros(500_000 * 3_600_000_000);
/// The maximum time for which callers go on after the fault.
const AFTER_MAX: Duration = Duration::from_millis(400);

/// A fault of the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The primary is killed with `kill -9`; its replica, in sync except for writes in flight, takes over.
    Kill,
    /// The replica stops and is partitioned for a while; then the primary is killed, and the replica takes
    /// over with the writes it has.
    Stall,
    /// The replica takes over while the primary lives, and half of the callers stay with it.
    Split,
    /// The primary is killed and started again, empty.
    Restart,
}

impl Fault {
    pub(super) const ALL: [Self; 4] = [Self::Kill, Self::Stall, Self::Split, Self::Restart];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stall => "stall + kill",
            Self::Split => "split brain",
            Self::Restart => "restart",
        }
    }
}

/// The servers, the current primary, and the callers' signposts.
pub(super) struct Deployment {
    servers: [Server; 2],
    primary: usize,
    posts: [Signpost; 2],
    clock: ManualClock,
    rounds: u64,
}

impl Deployment {
    pub(super) async fn start(program: &str) -> Result<Self> {
        let servers = [Server::start(program).await?, Server::start(program).await?];
        let at = servers[0].address();
        let posts = [Signpost::to(at.clone()).await?, Signpost::to(at).await?];
        Ok(Self { servers, primary: 0, posts, clock: ManualClock::at(BEGIN), rounds: 0 })
    }

    /// Returns the units that pass in this time when nothing fails.
    pub(super) async fn pace(&mut self, failover: Failover, of: Duration) -> Result<u64> {
        self.prepare(failover).await?;
        let load = self.load(failover, 1 << 40).await?;
        sleep(of).await;
        Ok(load.finish().await.admitted)
    }

    /// Runs one round on a window of its own.
    pub(super) async fn play(&mut self, failover: Failover, fault: Fault, limit: u64) -> Result<Heard> {
        self.prepare(failover).await?;
        let load = self.load(failover, limit).await?;
        // Somewhere between a tenth and seven tenths of the limit.
        let dice = self.rounds.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let begin_at = limit / 10 + dice % (limit * 6 / 10).max(1);
        for _ in 0..1_000 {
            if load.admitted() >= begin_at / 2 {
                break;
            }
            sleep(Duration::from_millis(1)).await;
        }
        self.servers[self.primary].replicas_hear(1_000).await?;
        for _ in 0..1_000 {
            if load.admitted() >= begin_at {
                break;
            }
            sleep(Duration::from_millis(1)).await;
        }
        self.break_by(fault, 50 + dice % 151).await?;
        load.exhaust(AFTER_MAX).await;
        Ok(load.finish().await)
    }

    async fn load(&mut self, failover: Failover, limit: u64) -> Result<Load> {
        self.rounds += 1;
        let policy = format!("round{}", self.rounds);
        Load::start(&self.posts, failover, &self.clock, &policy, limit).await
    }

    pub(super) fn primary(&self) -> &Server {
        &self.servers[self.primary]
    }

    pub(super) fn post(&self) -> &Signpost {
        &self.posts[0]
    }

    pub(super) fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Prepares a primary with a replica in sync, points all callers at it, and begins a new window.
    pub(super) async fn prepare(&mut self, failover: Failover) -> Result<()> {
        for server in &mut self.servers {
            if !server.runs() {
                server.up().await?;
            }
        }
        let (primary, replica) = (&self.servers[self.primary], &self.servers[1 - self.primary]);
        replica.follow(primary).await?;
        self.posts.iter().for_each(|post| post.point_at(primary.address()));
        // A fenced server must have been seen before the window begins.
        let store = load::connect(&self.posts[0], failover, &self.clock).await?;
        let greeter = SharedLimiter::new(store, "greeter", Limit::fixed_window(1, WINDOW)?)?;
        greeter.check(Call::by("hello")).await?;
        self.clock.advance(WINDOW);
        Ok(())
    }

    async fn break_by(&mut self, fault: Fault, stall_ms: u64) -> Result<()> {
        let (old, new) = (self.primary, 1 - self.primary);
        match fault {
            Fault::Kill => {
                self.servers[old].kill();
                self.take_over(new, &[0, 1]).await?;
            }
            Fault::Stall => {
                self.servers[new].signal("STOP")?;
                self.servers[old].ask::<u64>("CLIENT KILL TYPE replica").await?;
                sleep(Duration::from_millis(stall_ms)).await;
                self.servers[old].kill();
                self.servers[new].signal("CONT")?;
                self.take_over(new, &[0, 1]).await?;
            }
            Fault::Split => {
                self.take_over(new, &[0]).await?;
                // Disconnected callers look up the new primary.
                self.servers[old].ask::<u64>("CLIENT KILL TYPE normal").await?;
            }
            Fault::Restart => {
                self.servers[old].kill();
                self.servers[old].up().await?;
            }
        }
        Ok(())
    }

    async fn take_over(&mut self, new: usize, known_to: &[usize]) -> Result<()> {
        self.servers[new].ask::<()>("REPLICAOF NO ONE").await?;
        known_to.iter().for_each(|&post| self.posts[post].point_at(self.servers[new].address()));
        // A replaced primary that lives on is demoted in the next round.
        self.primary = new;
        Ok(())
    }
}

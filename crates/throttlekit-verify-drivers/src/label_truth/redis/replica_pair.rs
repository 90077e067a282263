//! A primary and its replica, and one round on them: callers charge a window, the primary loses charges, callers go on.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use redis::Value;
use throttlekit::clock::{Clock, ManualClock};
use throttlekit::rate::Timestamp;
use throttlekit::{Answer, Guarantee, Limit, SharedLimiter};
use throttlekit_redis::{ADMIT_SCRIPT, RedisStore};
use tokio::time::sleep;

use super::Mode;
use super::bugs::Bug;
use super::faults::Fault;
use super::load::{self, Load, WINDOW, is_fenced};
use crate::failover::servers::Server;
use crate::failover::signpost::Signpost;
use crate::label_row::Round;

const PROGRAM: &str = "redis-server";
const LIMIT: u64 = 120;
/// Half past an hour of the year 2027.
const BEGIN: Timestamp = Timestamp::from_micros(500_000 * 3_600_000_000 + 1_800_000_000);
const TICK: Duration = Duration::from_micros(1);
/// Longer than the isolation of the fence.
const ISOLATED: Duration = Duration::from_secs(2);
const SPEND_MAX: Duration = Duration::from_secs(10);
/// The maximum time for which callers go on after the fault.
const AFTER_MAX: Duration = Duration::from_millis(1_500);
const ANSWERS_MAX: usize = 2_000;
const RECORD: &str = "tk:{%since}";

pub(super) struct ReplicaPair {
    servers: [Server; 2],
    primary: usize,
    post: Signpost,
    clock: ManualClock,
    rounds: u64,
}

impl ReplicaPair {
    pub(super) async fn start() -> Result<Self> {
        let servers = [Server::start(PROGRAM).await?, Server::start(PROGRAM).await?];
        let post = Signpost::to(servers[0].address()).await?;
        Ok(Self { servers, primary: 0, post, clock: ManualClock::at(BEGIN), rounds: 0 })
    }

    pub(super) fn primary(&self) -> &Server {
        &self.servers[self.primary]
    }

    pub(super) fn replica(&self) -> &Server {
        &self.servers[1 - self.primary]
    }

    /// Kills the primary and starts it again on the same port.
    pub(super) async fn restart(&mut self, options: &[&str]) -> Result<()> {
        self.servers[self.primary].kill();
        self.servers[self.primary].up_with(options).await
    }

    /// Stops the replica, so that it receives no charges from now on.
    async fn cut_off(&self) -> Result<()> {
        self.replica().signal("STOP")?;
        self.primary().ask::<u64>("CLIENT KILL TYPE replica").await?;
        Ok(())
    }

    /// Kills the primary and promotes the replica with the writes it has.
    pub(super) async fn fail_over(&mut self) -> Result<()> {
        self.servers[self.primary].kill();
        self.replica().signal("CONT")?;
        self.replica().ask::<()>("REPLICAOF NO ONE").await?;
        self.primary = 1 - self.primary;
        Ok(())
    }

    /// Runs one round on a window of its own.
    pub(super) async fn play(&mut self, mode: Mode, fault: Fault, bug: Option<Bug>) -> Result<Round> {
        self.prepare(mode).await?;
        if bug == Some(Bug::AlwaysBounded) {
            self.write_record(self.now()).await?;
        }
        if fault == Fault::Promote && !mode.waits() {
            self.cut_off().await?;
        }
        let policy = format!("round{}", self.rounds);
        let mut load =
            Load::start(&self.post, mode.failover, &self.clock, &policy, LIMIT, mode.busy, bug).await?;
        let info_before = self.info_calls().await?;
        load.release();
        let (healthy, healthy_exact) = self.spend(&load).await;
        let (new_keys, info_calls) = (load.new_keys(), self.info_calls().await? - info_before);
        self.strike(fault, bug, &load).await?;
        load.exhaust(AFTER_MAX).await;
        let (admitted, exact) = load.finish().await;
        if mode.waits() {
            self.pair_up().await?;
        }
        let came_back = self.comes_back(mode, fault, &load).await?;
        Ok(Round {
            limit: LIMIT,
            admitted,
            exact,
            healthy,
            healthy_exact,
            came_back,
            new_keys,
            info_calls: if mode.busy { info_calls } else { 0 },
            ..Round::default()
        })
    }

    /// Returns how often `INFO` was called on the primary.
    async fn info_calls(&self) -> Result<u64> {
        let said: String = self.primary().ask("INFO commandstats").await?;
        let calls = said.lines().find_map(|line| line.strip_prefix("cmdstat_info:calls="));
        Ok(calls.and_then(|calls| calls.split(',').next()).unwrap_or("0").parse()?)
    }

    /// Lets callers spend: in every other round everything, so that one more is beyond the limit.
    async fn spend(&self, load: &Load) -> (u64, u64) {
        let dice = self.rounds.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        if self.rounds.is_multiple_of(2) {
            load.exhaust(SPEND_MAX).await;
        } else {
            load.until_admitted(1 + dice % (LIMIT - 1), SPEND_MAX).await;
        }
        load.counted()
    }

    /// Prepares a primary with a replica in sync. All stores point at it and first saw it a window ago.
    async fn prepare(&mut self, mode: Mode) -> Result<()> {
        self.rounds += 1;
        self.pair_up().await?;
        self.post.point_at(self.primary().address());
        let store = load::connect(&self.post, mode.failover, &self.clock).await?;
        let greeter = SharedLimiter::new(store, "greeter", Limit::fixed_window(1, WINDOW)?)?;
        greeter.check("hello").await?;
        self.clock.advance(WINDOW + ISOLATED);
        Ok(())
    }

    /// Starts dead servers, and makes the one that is not the primary a replica.
    async fn pair_up(&mut self) -> Result<()> {
        for server in &mut self.servers {
            if !server.runs() {
                server.up().await?;
            }
        }
        self.primary().ask::<()>("CONFIG SET appendonly no").await?;
        self.replica().follow(self.primary()).await
    }

    async fn strike(&mut self, fault: Fault, bug: Option<Bug>, load: &Load) -> Result<()> {
        let (now, window) = (self.now(), WINDOW.as_micros() as u64);
        match bug {
            Some(Bug::LossBelieved) => self.flush_but_record(now - 2 * window).await?,
            Some(Bug::BackTooEarly) => self.flush_but_record(now - window / 2).await?,
            Some(Bug::NeverBack) => self.flush_but_record(now + 10 * window).await?,
            Some(Bug::Uncounted) => self.lose_states().await?,
            _ if fault == Fault::EvictUnchecked => {
                load.hold(SPEND_MAX).await;
                self.evict_and_write_anew(bug).await?;
                load.release();
            }
            _ => fault.strike(self).await?,
        }
        if bug == Some(Bug::PromotionBelieved) {
            self.write_record(now - 2 * window).await?;
        }
        self.post.point_at(self.primary().address());
        Ok(())
    }

    fn now(&self) -> u64 {
        self.clock.now().as_micros()
    }

    /// Returns a lineage record that states that nothing was lost since an instant.
    async fn record(&self, since: u64) -> Result<String> {
        let said: String = self.primary().ask("INFO all").await?;
        let field = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let swaps = field("cmdstat_swapdb:calls=").split(',').next().filter(|count| !count.is_empty());
        let (id, evicted) = (field("master_replid:").trim(), field("evicted_keys:").trim());
        Ok(format!("{id} {since} {} {evicted}", swaps.unwrap_or("0")))
    }

    async fn write_record(&self, since: u64) -> Result<()> {
        let value = self.record(since).await?;
        let mut connection = self.primary().connection().await?;
        Ok(redis::cmd("SET").arg(RECORD).arg(value).query_async(&mut connection).await?)
    }

    /// Flushes everything and writes such a record, in one step.
    async fn flush_but_record(&self, since: u64) -> Result<()> {
        let value = self.record(since).await?;
        let mut connection = self.primary().connection().await?;
        let mut both = redis::pipe();
        both.atomic().cmd("FLUSHALL").ignore().cmd("SET").arg(RECORD).arg(value).ignore();
        Ok(both.query_async(&mut connection).await?)
    }

    /// Evicts the state of the round, and charges it as a process does that checks for evictions afterwards.
    async fn evict_and_write_anew(&mut self, bug: Option<Bug>) -> Result<()> {
        let record: String = self.primary().ask(&format!("GET {RECORD}")).await?;
        let known = record.trim_end_matches('?');
        let keys: Vec<String> =
            self.primary().ask(&format!("KEYS tk:*round{}/key}}*w:", self.rounds)).await?;
        let [key] = &keys[..] else { bail!("the state of the round is one of {keys:?}") };
        let mut is_there = true;
        for _ in 0..ANSWERS_MAX {
            Fault::EvictUnchecked.strike(self).await?;
            is_there = self.primary().ask(&format!("EXISTS {key}")).await?;
            if !is_there {
                break;
            }
        }
        ensure!(!is_there, "the state of the round is not evicted");
        let mut connection = self.primary().connection().await?;
        let mut charge = redis::cmd("EVAL");
        charge.arg(ADMIT_SCRIPT).arg(1).arg(key).arg(self.now()).arg(10_000);
        charge
            .arg(1)
            .arg("w")
            .arg(1)
            .arg(LIMIT)
            .arg(WINDOW.as_micros() as u64)
            .arg(0)
            .arg(format!("+{known}"));
        let mut all = redis::pipe();
        all.atomic().add_command(charge).cmd("GET").arg(RECORD);
        if bug == Some(Bug::MarkIgnored) {
            all.cmd("SET").arg(RECORD).arg(known).ignore();
        }
        let ((status, _), marked): ((String, Value), String) = all.query_async(&mut connection).await?;
        ensure!(status == "%unchecked", "the charge is not unchecked: {status}");
        ensure!(marked == format!("{known}?"), "the record is not marked: {marked}");
        Ok(())
    }

    /// Deletes every state without a trace.
    async fn lose_states(&self) -> Result<()> {
        const LOSE: &str = "for _, key in ipairs(redis.call('KEYS', 'tk:*')) do \
                            if key ~= KEYS[1] then redis.call('DEL', key) end end return 1";
        let mut connection = self.primary().connection().await?;
        Ok(redis::cmd("EVAL").arg(LOSE).arg(1).arg(RECORD).query_async::<()>(&mut connection).await?)
    }

    /// Returns `true` if each store's label is exact one window after the fault, and was not one microsecond
    /// before.
    async fn comes_back(&self, mode: Mode, fault: Fault, load: &Load) -> Result<bool> {
        let stores = load.limiters.iter().map(|limiter| limiter.store().clone());
        let limiters =
            stores.map(|store| SharedLimiter::new(store, "after", Limit::fixed_window(LIMIT, WINDOW)?));
        let limiters: Vec<_> = limiters.collect::<Result<_, _>>()?;
        let mut as_told = true;
        // All stores must see the server in its current state before its time advances: on a busy machine
        // some callers may not have yet.
        for limiter in &limiters {
            self.answer(limiter).await?;
        }
        self.clock.advance(WINDOW - TICK);
        for limiter in limiters.iter().filter(|_| !mode.stays_exact(fault)) {
            as_told &= self.answer(limiter).await?.guarantee != Guarantee::Exact;
        }
        self.clock.advance(if mode.is_fence() { WINDOW + ISOLATED } else { TICK });
        for limiter in &limiters {
            let answer = self.answer(limiter).await?;
            as_told &= answer.guarantee == Guarantee::Exact && answer.decision.allowed;
        }
        Ok(as_told)
    }

    /// Returns the first response of the store itself.
    async fn answer(&self, limiter: &SharedLimiter<RedisStore>) -> Result<Answer> {
        for _ in 0..ANSWERS_MAX {
            match limiter.check("after").await {
                Ok(answer) if answer.outage.as_ref().is_none_or(is_fenced) => return Ok(answer),
                _ => sleep(Duration::from_millis(5)).await,
            }
        }
        bail!("the store does not answer again")
    }
}

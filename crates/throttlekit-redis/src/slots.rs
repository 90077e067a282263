//! Slots under leases: one script call acquires; one for each slot index renews or releases.

use std::time::Duration;

use futures_util::future::join_all;
use redis::{Cmd, Value};
use throttlekit::forward_store;
use throttlekit::store::{HeartbeatOutcome, LeaseId, Occupancy, Owner, SlotStep};
use throttlekit::store::{SlotAnswer, SlotLease, SlotRequest, SlotStore, StoreError};

use crate::RedisStore;
use crate::store::{Flight, each_in_order};
use crate::wire::{By, Call, each, instant, numbers, refused, split, unexpected};

impl SlotStore for RedisStore {
    async fn acquire(&self, ask: &SlotRequest<'_>) -> Result<SlotAnswer, StoreError> {
        let lives = ask.lives_micros()?;
        let slot = self.slot(ask.key);
        let call = self.fenced_call(slot, &self.scripts.acquire, &self.scripts.fenced_acquire);
        let reply = self.route.charge(slot, 1, |by| acquire(call, by, ask, lives)).await?;
        let answer = acquired(ask, &reply.value)?;
        self.answered_for(answer.now, lives, reply.since);
        let taken = u64::from(matches!(answer.step, SlotStep::Admit { .. }));
        reply.spend(taken).map_or(Ok(answer), Err)
    }

    async fn heartbeat(
        &self,
        leases: &[SlotLease<'_>],
        lives: Duration,
    ) -> Vec<Result<HeartbeatOutcome, StoreError>> {
        let flights = self.flights(leases, |lease| lease.key);
        let answers = join_all(flights.iter().map(|flight| self.heartbeat_flight(flight, lives))).await;
        each_in_order(&flights, answers)
    }

    async fn release(&self, leases: &[SlotLease<'_>]) -> Vec<Result<bool, StoreError>> {
        let flights = self.flights(leases, |lease| lease.key);
        let answers = join_all(flights.iter().map(|flight| self.release_flight(flight))).await;
        each_in_order(&flights, answers)
    }

    async fn occupancy(&self, keys: &[&str]) -> Result<Vec<Occupancy>, StoreError> {
        let flights = self.flights(keys, |key| key);
        let answers = join_all(flights.iter().map(|flight| self.occupancy_flight(flight))).await;
        each_in_order(&flights, answers).into_iter().collect()
    }

    forward_store!(Store for self => *self; guarantee, background);
}

impl RedisStore {
    /// A heartbeat that a failover loses leaves the lease to end earlier than its owner assumes, so it waits for
    /// replicas as an acquisition does.
    async fn heartbeat_flight(
        &self,
        flight: &Flight<'_, SlotLease<'_>>,
        lives: Duration,
    ) -> Result<Vec<Result<HeartbeatOutcome, StoreError>>, StoreError> {
        let (leases, lives) = (&flight.items, SlotLease::lives_micros(lives)?);
        let call = self.fenced_call(flight.slot, &self.scripts.heartbeat, &self.scripts.fenced_heartbeat);
        let cmd = |by| heartbeat(call, by, leases, lives);
        let reply = self.route.charge(flight.slot, leases.len() as u64, cmd).await?;
        let heartbeats = each(leases, &reply.value, |lease, reply, _| match reply_numbers(reply)?[..] {
            [now, ends] => lease.heartbeat(instant(now)?, ends),
            _ => Err(unexpected()),
        })?;
        let held = |(_, heartbeat): (usize, &HeartbeatOutcome)| {
            u64::from(matches!(heartbeat, HeartbeatOutcome::Held(_)))
        };
        Ok(reply.spend_each(heartbeats, held))
    }

    async fn release_flight(
        &self,
        flight: &Flight<'_, SlotLease<'_>>,
    ) -> Result<Vec<Result<bool, StoreError>>, StoreError> {
        let (call, leases) = (self.call(&self.scripts.release), &flight.items);
        let answer = self.route.call(flight.slot, |by| release(call, by, leases)).await?;
        each(leases, &answer, |_, reply, _| match reply_numbers(reply)?[..] {
            [held @ (0 | 1)] => Ok(held == 1),
            _ => Err(unexpected()),
        })
    }

    async fn occupancy_flight(
        &self,
        flight: &Flight<'_, &str>,
    ) -> Result<Vec<Result<Occupancy, StoreError>>, StoreError> {
        let (call, keys) = (self.call(&self.scripts.occupancy), &flight.items);
        let cmd = |by| call.begin(by, keys.iter().map(|key| **key));
        let answer = self.route.call(flight.slot, cmd).await?;
        each(keys, &answer, |_, reply, _| match reply_numbers(reply)?[..] {
            [now, held] => {
                let held = u32::try_from(held).map_err(|_| unexpected())?;
                Ok(Occupancy { now: instant(now)?, held })
            }
            _ => Err(unexpected()),
        })
    }
}

/// Encodes lease and owner as one string: a caller must present both.
fn member(lease: LeaseId, owner: Owner) -> String {
    format!("{:032x}{:032x}", lease.0, owner.0)
}

fn acquire(call: Call<'_>, by: By, ask: &SlotRequest<'_>, lives: u64) -> Cmd {
    let mut cmd = call.begin(by, std::iter::once(ask.key));
    cmd.arg("h").arg(member(ask.lease, ask.owner)).arg(ask.ceiling()).arg(lives);
    call.end(cmd)
}

fn heartbeat(call: Call<'_>, by: By, leases: &[&SlotLease<'_>], lives: u64) -> Cmd {
    let mut cmd = call.begin(by, leases.iter().map(|lease| lease.key));
    cmd.arg(lives);
    members(&mut cmd, leases);
    call.end(cmd)
}

fn release(call: Call<'_>, by: By, leases: &[&SlotLease<'_>]) -> Cmd {
    let mut cmd = call.begin(by, leases.iter().map(|lease| lease.key));
    members(&mut cmd, leases);
    cmd
}

fn members(cmd: &mut Cmd, leases: &[&SlotLease<'_>]) {
    leases.iter().for_each(|at| {
        cmd.arg(member(at.lease, at.owner));
    });
}

fn acquired(ask: &SlotRequest<'_>, answer: &Value) -> Result<SlotAnswer, StoreError> {
    let (_, replies) = split(answer)?;
    let [reply] = replies else { return Err(unexpected()) };
    match reply_numbers(reply)?[..] {
        [taken @ (0 | 1), now, held, own, room_at] => {
            SlotAnswer::of(ask, [held, own, room_at], instant(now)?, taken == 1)
        }
        _ => Err(unexpected()),
    }
}

/// Returns the numbers of a reply, unless it names a key that holds a foreign value.
fn reply_numbers(reply: &Value) -> Result<Vec<i64>, StoreError> {
    if let Value::Array(parts) = reply
        && let [Value::Int(-1), Value::BulkString(said)] = &parts[..]
    {
        return Err(refused(said));
    }
    numbers(reply)
}

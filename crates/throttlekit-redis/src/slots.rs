//! Slots under leases: one script call acquires, one for each place beats or releases.

use std::time::Duration;

use futures_util::future::join_all;
use redis::{Cmd, Value};
use throttlekit::Guarantee;
use throttlekit::store::{Background, Beat, LeaseId, Occupancy, Owner, SlotStep, Store};
use throttlekit::store::{SlotAnswer, SlotAsk, SlotLease, SlotStore, StoreError};

use crate::RedisStore;
use crate::fence::Fence;
use crate::script::ScriptText;
use crate::store::{Flight, each_in_order};
use crate::wire::{By, Preamble, begin, instant, numbers, refused, split, unexpected};

impl SlotStore for RedisStore {
    async fn acquire(&self, ask: &SlotAsk<'_>) -> Result<SlotAnswer, StoreError> {
        let lives = ask.lives_micros()?;
        let (scripts, head, slot) = (&self.scripts, self.preamble(), self.slot(ask.key));
        let cmd = |by| match &self.fences {
            None => acquire(&scripts.acquire, by, head, ask, lives, None),
            Some(fences) => acquire(&scripts.fenced_acquire, by, head, ask, lives, Some(&fences.at(slot))),
        };
        let reply = self.route.charge(slot, 1, cmd).await?;
        let answer = acquired(ask, &reply.value)?;
        self.answered_for(answer.now, lives, reply.since);
        let taken = u64::from(matches!(answer.step, SlotStep::Admit { .. }));
        reply.spend(taken).map_or(Ok(answer), Err)
    }

    async fn heartbeat(&self, leases: &[SlotLease<'_>], lives: Duration) -> Vec<Result<Beat, StoreError>> {
        let flights = self.flights(leases, |lease| lease.key);
        let answers = join_all(flights.iter().map(|flight| self.beat_flight(flight, lives))).await;
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

    fn guarantee(&self) -> Guarantee {
        Store::guarantee(self)
    }

    fn background(&self) -> Background {
        Store::background(self)
    }
}

impl RedisStore {
    /// A beat that a failover loses leaves the lease to end earlier than its owner heard, so it is waited for as an ask is.
    async fn beat_flight(
        &self,
        flight: &Flight<'_, SlotLease<'_>>,
        lives: Duration,
    ) -> Result<Vec<Result<Beat, StoreError>>, StoreError> {
        let (scripts, head, leases) = (&self.scripts, self.preamble(), &flight.items);
        let lives = SlotLease::lives_micros(lives)?;
        let cmd = |by| match &self.fences {
            None => beat(&scripts.beat, by, head, leases, lives, None),
            Some(fences) => {
                beat(&scripts.fenced_beat, by, head, leases, lives, Some(&fences.at(flight.slot)))
            }
        };
        let reply = self.route.charge(flight.slot, leases.len() as u64, cmd).await?;
        let beats = each(leases, &reply.value, |lease, numbers| match numbers {
            [now, ends] => lease.beat(instant(*now)?, *ends),
            _ => Err(unexpected()),
        })?;
        let held = |beat: &Result<Beat, StoreError>| matches!(beat, Ok(Beat::Held(_)));
        match reply.spend(beats.iter().filter(|beat| held(beat)).count() as u64) {
            None => Ok(beats),
            Some(why) => {
                Ok(beats.into_iter().map(|beat| if held(&beat) { Err(why.clone()) } else { beat }).collect())
            }
        }
    }

    async fn release_flight(
        &self,
        flight: &Flight<'_, SlotLease<'_>>,
    ) -> Result<Vec<Result<bool, StoreError>>, StoreError> {
        let (script, head, leases) = (&self.scripts.release, self.preamble(), &flight.items);
        let answer = self.route.call(flight.slot, |by| release(script, by, head, leases)).await?;
        each(leases, &answer, |_, numbers| match numbers {
            [held @ (0 | 1)] => Ok(*held == 1),
            _ => Err(unexpected()),
        })
    }

    async fn occupancy_flight(
        &self,
        flight: &Flight<'_, &str>,
    ) -> Result<Vec<Result<Occupancy, StoreError>>, StoreError> {
        let (script, head, keys) = (&self.scripts.occupancy, self.preamble(), &flight.items);
        let cmd = |by| begin(script, by, head, keys.iter().map(|key| **key), None);
        let answer = self.route.call(flight.slot, cmd).await?;
        each(keys, &answer, |_, numbers| match *numbers {
            [now, held] => {
                let held = u32::try_from(held).map_err(|_| unexpected())?;
                Ok(Occupancy { now: instant(now)?, held })
            }
            _ => Err(unexpected()),
        })
    }
}

/// Lease and owner as one word: whoever does not know both names nothing.
fn member(lease: LeaseId, owner: Owner) -> String {
    format!("{:032x}{:032x}", lease.0, owner.0)
}

fn acquire(
    script: &ScriptText,
    by: By,
    head: Preamble,
    ask: &SlotAsk<'_>,
    lives: u64,
    fence: Option<&Fence>,
) -> Cmd {
    let mut cmd = begin(script, by, head, std::iter::once(ask.key), fence);
    cmd.arg("h").arg(member(ask.lease, ask.owner)).arg(ask.ceiling()).arg(lives);
    if let Some(fence) = fence {
        cmd.arg(fence.isolation_micros);
    }
    cmd
}

fn beat(
    script: &ScriptText,
    by: By,
    head: Preamble,
    leases: &[&SlotLease<'_>],
    lives: u64,
    fence: Option<&Fence>,
) -> Cmd {
    let mut cmd = begin(script, by, head, leases.iter().map(|lease| lease.key), fence);
    cmd.arg(lives);
    members(&mut cmd, leases);
    if let Some(fence) = fence {
        cmd.arg(fence.isolation_micros);
    }
    cmd
}

fn release(script: &ScriptText, by: By, head: Preamble, leases: &[&SlotLease<'_>]) -> Cmd {
    let mut cmd = begin(script, by, head, leases.iter().map(|lease| lease.key), None);
    members(&mut cmd, leases);
    cmd
}

fn members(cmd: &mut Cmd, leases: &[&SlotLease<'_>]) {
    leases.iter().for_each(|at| {
        cmd.arg(member(at.lease, at.owner));
    });
}

fn acquired(ask: &SlotAsk<'_>, answer: &Value) -> Result<SlotAnswer, StoreError> {
    let (_, replies) = split(answer)?;
    let [reply] = replies else { return Err(unexpected()) };
    match reply_numbers(reply)?[..] {
        [taken @ (0 | 1), now, held, own, room_at] => {
            SlotAnswer::of(ask, [held, own, room_at], instant(now)?, taken == 1)
        }
        _ => Err(unexpected()),
    }
}

/// The answer for each item, or why it has none.
fn each<T, A>(
    items: &[&T],
    answer: &Value,
    read: impl Fn(&T, &[i64]) -> Result<A, StoreError>,
) -> Result<Vec<Result<A, StoreError>>, StoreError> {
    let (_, replies) = split(answer)?;
    if replies.len() != items.len() {
        return Err(unexpected());
    }
    let one = |(item, reply): (&&T, &Value)| read(item, &reply_numbers(reply)?);
    Ok(items.iter().zip(replies).map(one).collect())
}

/// The numbers of a reply, unless it names a key that holds something foreign.
fn reply_numbers(reply: &Value) -> Result<Vec<i64>, StoreError> {
    if let Value::Array(parts) = reply
        && let [Value::Int(-1), Value::BulkString(said)] = &parts[..]
    {
        return Err(refused(said));
    }
    numbers(reply)
}

//! Slots under leases: one function call acquires; one renews or releases any number.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::forward_store;
use throttlekit::store::{
    HeartbeatOutcome, Occupancy, SlotAnswer, SlotLease, SlotRequest, SlotStore, StoreError,
};
use tokio_postgres::types::Type;

use crate::PostgresStore;
use crate::batch::{Reply, slot, sorted};
use crate::error::Failure;
use crate::store::Inner;
use crate::store_connections::Param;

impl SlotStore for PostgresStore {
    async fn acquire(&self, ask: &SlotRequest<'_>) -> Result<SlotAnswer, StoreError> {
        let lives = ask.lives_micros()? as i64;
        self.inner.lineage.uses_for(lives as u64);
        let reply = self.call(self.inner.acquire(ask, lives)).await?;
        let mut reply = Reply(&reply);
        let (taken, now) = (reply.number()? == 1, reply.instant()?);
        let seen = [reply.number()?, reply.number()?, reply.number()?];
        SlotAnswer::of(ask, seen, now, taken)
    }

    async fn heartbeat(
        &self,
        leases: &[SlotLease<'_>],
        lives: Duration,
    ) -> Vec<Result<HeartbeatOutcome, StoreError>> {
        let heartbeat = async {
            let lives = SlotLease::lives_micros(lives)? as i64;
            let reply = self.call(self.inner.heartbeat(leases, lives)).await?;
            let mut reply = Reply(&reply);
            let each = leases.iter().map(|lease| lease.heartbeat(reply.instant()?, reply.number()?));
            Ok(each.collect())
        };
        each(leases, heartbeat.await)
    }

    async fn release(&self, leases: &[SlotLease<'_>]) -> Vec<Result<bool, StoreError>> {
        let release = async {
            let reply = self.call(self.inner.release(leases)).await?;
            let mut reply = Reply(&reply);
            Ok(leases.iter().map(|_| Ok(reply.number()? == 1)).collect())
        };
        each(leases, release.await)
    }

    async fn occupancy(&self, keys: &[&str]) -> Result<Vec<Occupancy>, StoreError> {
        let reply = self.call(self.inner.occupancy(keys)).await?;
        let mut reply = Reply(&reply);
        let held = |number: i64| u32::try_from(number).map_err(|_| StoreError::bad_state("slots"));
        let each = keys.iter().map(|_| Ok(Occupancy { now: reply.instant()?, held: held(reply.number()?)? }));
        each.collect()
    }

    forward_store!(Store for self => *self; guarantee, background);
}

/// Returns the result for each, or one error for all.
fn each<A: Clone>(
    leases: &[SlotLease<'_>],
    answers: Result<Vec<Result<A, StoreError>>, StoreError>,
) -> Vec<Result<A, StoreError>> {
    answers.unwrap_or_else(|error| vec![Err(error); leases.len()])
}

/// Leases as arrays for the server.
struct Leases<'a> {
    keys: Vec<&'a str>,
    slots: Vec<i32>,
    leases: Vec<String>,
    owners: Vec<String>,
}

impl<'a> Leases<'a> {
    fn of(leases: &[SlotLease<'a>]) -> Self {
        let keys = sorted(leases.iter().map(|at| at.key));
        Self {
            slots: leases.iter().map(|at| slot(&keys, at.key)).collect(),
            leases: leases.iter().map(|at| uuid(at.lease.0)).collect(),
            owners: leases.iter().map(|at| uuid(at.owner.0)).collect(),
            keys,
        }
    }

    fn params<'p>(&'p self, now: &'p Option<i64>) -> Vec<Param<'p>> {
        vec![
            (now, Type::INT8),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.slots, Type::INT4_ARRAY),
            (&self.leases, Type::TEXT_ARRAY),
            (&self.owners, Type::TEXT_ARRAY),
        ]
    }
}

fn uuid(name: u128) -> String {
    format!("{name:032x}")
}

impl Inner {
    async fn acquire(self: &Arc<Self>, ask: &SlotRequest<'_>, lives: i64) -> Result<Vec<i64>, Failure> {
        let (now, most) = (self.now(), ask.ceiling() as i32);
        let (lease, owner) = (uuid(ask.lease.0), uuid(ask.owner.0));
        let params: [Param<'_>; 6] = [
            (&now, Type::INT8),
            (&ask.key, Type::TEXT),
            (&lease, Type::TEXT),
            (&owner, Type::TEXT),
            (&most, Type::INT4),
            (&lives, Type::INT8),
        ];
        self.numbers(&self.statements.acquire_slot, &params).await
    }

    async fn heartbeat(self: &Arc<Self>, leases: &[SlotLease<'_>], lives: i64) -> Result<Vec<i64>, Failure> {
        let (now, leases) = (self.now(), Leases::of(leases));
        let mut params = leases.params(&now);
        params.push((&lives, Type::INT8));
        self.numbers(&self.statements.heartbeat_slots, &params).await
    }

    async fn release(self: &Arc<Self>, leases: &[SlotLease<'_>]) -> Result<Vec<i64>, Failure> {
        let (now, leases) = (self.now(), Leases::of(leases));
        let params = leases.params(&now);
        self.numbers(&self.statements.release_slots, &params).await
    }

    async fn occupancy(self: &Arc<Self>, keys: &[&str]) -> Result<Vec<i64>, Failure> {
        let now = self.now();
        let params: [Param<'_>; 2] = [(&now, Type::INT8), (&keys, Type::TEXT_ARRAY)];
        self.numbers(&self.statements.slot_occupancy, &params).await
    }
}

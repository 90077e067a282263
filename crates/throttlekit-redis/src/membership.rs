//! Membership records: one script loads or swaps.

use std::time::Duration;

use redis::{Cmd, Value};
use throttlekit::forward_store;
use throttlekit::store::{MEMBERSHIP_BYTES_MAX, MembershipRecord, MembershipStore, StoreError, Swapped};

use crate::RedisStore;
use crate::wire::{By, Call, refused, split, unexpected};

/// Script arguments for one membership record.
#[derive(Clone, Copy)]
struct Swap<'a> {
    key: &'a str,
    /// The version that must be stored, or `None` to load.
    version: Option<u64>,
    bytes: &'a [u8],
    keeps: Duration,
}

/// A heartbeat whose membership record is lost in a failover loses one grant, whatever its share.
const GRANTS: u64 = 1;

impl MembershipStore for RedisStore {
    async fn load(&self, key: &str) -> Result<MembershipRecord, StoreError> {
        let swap = Swap { key, version: None, bytes: &[], keeps: Duration::ZERO };
        let (slot, call) = self.membership_call(key);
        let answer = self.route.track(slot, |by| cmd(call, by, swap)).await?;
        match swapped(&answer)? {
            Swapped::Newer(kept) => Ok(kept),
            Swapped::Done => Err(unexpected()),
        }
    }

    /// Under [`Failover::Wait`](crate::Failover::Wait) the swap is complete when the replicas have acknowledged it;
    /// before that, nothing that it grants may be used.
    async fn swap(
        &self,
        key: &str,
        version: u64,
        bytes: &[u8],
        keeps: Duration,
    ) -> Result<Swapped, StoreError> {
        if bytes.len() > MEMBERSHIP_BYTES_MAX {
            return Err(StoreError::misconfigured("the membership record is too long"));
        }
        let swap = Swap { key, version: Some(version), bytes, keeps };
        let (slot, call) = self.membership_call(key);
        let reply = self.route.charge(slot, GRANTS, |by| cmd(call, by, swap)).await?;
        let swapped = swapped(&reply.value)?;
        let granted = if swapped == Swapped::Done { GRANTS } else { 0 };
        reply.spend(granted).map_or(Ok(swapped), Err)
    }

    forward_store!(Store for self => *self; guarantee, background);
}

impl RedisStore {
    fn membership_call(&self, key: &str) -> (u16, Call<'_>) {
        let slot = self.slot(key);
        (slot, self.fenced_call(slot, &self.scripts.membership, &self.scripts.fenced_membership))
    }
}

fn cmd(call: Call<'_>, by: By, swap: Swap<'_>) -> Cmd {
    let mut cmd = call.begin(by, std::iter::once(swap.key));
    match swap.version {
        None => cmd.arg(""),
        Some(version) => cmd.arg(version),
    };
    let keeps_ms = u64::try_from(swap.keeps.as_millis()).unwrap_or(u64::MAX).clamp(1, KEEPS_MS_MAX);
    cmd.arg(swap.bytes).arg(keeps_ms);
    call.end(cmd)
}

/// A century: the server can add it to its time without overflow.
const KEEPS_MS_MAX: u64 = 100 * 366 * 86_400_000;

fn swapped(answer: &Value) -> Result<Swapped, StoreError> {
    let (now, replies) = split(answer)?;
    let [Value::Array(parts)] = replies else { return Err(unexpected()) };
    match &parts[..] {
        [Value::Int(1)] => Ok(Swapped::Done),
        [Value::Int(-1), Value::BulkString(said)] => Err(refused(said)),
        [Value::Int(0), Value::Int(version), Value::BulkString(bytes)] => {
            let version = u64::try_from(*version).map_err(|_| unexpected())?;
            Ok(Swapped::Newer(MembershipRecord { bytes: bytes.clone(), version, now }))
        }
        _ => Err(unexpected()),
    }
}

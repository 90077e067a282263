//! Membership records of fleets: one script loads or swaps.

use std::time::Duration;

use redis::{Cmd, Value};
use throttlekit::Guarantee;
use throttlekit::store::{Background, Kept, ROLL_BYTES_MAX, RollStore, Store, StoreError, Swapped};

use crate::RedisStore;
use crate::fence::Fence;
use crate::script::ScriptText;
use crate::wire::{By, Preamble, begin, refused, split, unexpected};

/// What a script is told of one roll.
#[derive(Clone, Copy)]
struct Swap<'a> {
    key: &'a str,
    /// The version that must lie there, or nothing to look.
    version: Option<u64>,
    bytes: &'a [u8],
    keeps: Duration,
}

/// A beat whose roll a failover loses loses one grant, whatever its share.
const GRANTS: u64 = 1;

impl RollStore for RedisStore {
    async fn load(&self, key: &str) -> Result<Kept, StoreError> {
        let swap = Swap { key, version: None, bytes: &[], keeps: Duration::ZERO };
        let answer = self.route.track(self.slot(key), |by| self.roll_cmd(by, swap)).await?;
        match swapped(&answer)? {
            Swapped::Newer(kept) => Ok(kept),
            Swapped::Done => Err(unexpected()),
        }
    }

    /// Under [`Failover::Wait`](crate::Failover::Wait) it is done when the replicas have it; before, nothing that it
    /// grants may be used.
    async fn swap(
        &self,
        key: &str,
        version: u64,
        bytes: &[u8],
        keeps: Duration,
    ) -> Result<Swapped, StoreError> {
        if bytes.len() > ROLL_BYTES_MAX {
            return Err(StoreError::misconfigured("this is too long to be a roll"));
        }
        let swap = Swap { key, version: Some(version), bytes, keeps };
        let reply = self.route.charge(self.slot(key), GRANTS, |by| self.roll_cmd(by, swap)).await?;
        let swapped = swapped(&reply.value)?;
        let granted = if swapped == Swapped::Done { GRANTS } else { 0 };
        reply.spend(granted).map_or(Ok(swapped), Err)
    }

    fn guarantee(&self) -> Guarantee {
        Store::guarantee(self)
    }

    fn background(&self) -> Background {
        Store::background(self)
    }
}

impl RedisStore {
    fn roll_cmd(&self, by: By, swap: Swap<'_>) -> Cmd {
        let (scripts, head) = (&self.scripts, self.preamble());
        match &self.fences {
            None => cmd(&scripts.roll, by, head, swap, None),
            Some(fences) => cmd(&scripts.fenced_roll, by, head, swap, Some(&fences.at(self.slot(swap.key)))),
        }
    }
}

fn cmd(script: &ScriptText, by: By, head: Preamble, swap: Swap<'_>, fence: Option<&Fence>) -> Cmd {
    let mut cmd = begin(script, by, head, std::iter::once(swap.key), fence);
    match swap.version {
        None => cmd.arg(""),
        Some(version) => cmd.arg(version),
    };
    let keeps_ms = u64::try_from(swap.keeps.as_millis()).unwrap_or(u64::MAX).clamp(1, KEEPS_MS_MAX);
    cmd.arg(swap.bytes).arg(keeps_ms);
    if let Some(fence) = fence {
        cmd.arg(fence.isolation_micros);
    }
    cmd
}

/// A century: what a server adds to its time without overflow.
const KEEPS_MS_MAX: u64 = 100 * 366 * 86_400_000;

fn swapped(answer: &Value) -> Result<Swapped, StoreError> {
    let (now, replies) = split(answer)?;
    let [Value::Array(parts)] = replies else { return Err(unexpected()) };
    match &parts[..] {
        [Value::Int(1)] => Ok(Swapped::Done),
        [Value::Int(-1), Value::BulkString(said)] => Err(refused(said)),
        [Value::Int(0), Value::Int(version), Value::BulkString(bytes)] => {
            let version = u64::try_from(*version).map_err(|_| unexpected())?;
            Ok(Swapped::Newer(Kept { bytes: bytes.clone(), version, now }))
        }
        _ => Err(unexpected()),
    }
}

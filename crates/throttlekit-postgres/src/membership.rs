//! Membership records: one function loads or swaps.

use std::sync::Arc;
use std::time::Duration;

use throttlekit::forward_store;
use throttlekit::rate::Timestamp;
use throttlekit::store::{MEMBERSHIP_BYTES_MAX, MembershipRecord, MembershipStore, StoreError, Swapped};
use tokio_postgres::types::Type;

use crate::PostgresStore;
use crate::batch::cut_short;
use crate::error::Failure;
use crate::store::Inner;
use crate::store_connections::Param;

/// A century.
const KEEPS_MICROS_MAX: i64 = 100 * 366 * 86_400_000_000;

impl MembershipStore for PostgresStore {
    async fn load(&self, key: &str) -> Result<MembershipRecord, StoreError> {
        match self.call(self.inner.swap(key, None, &[], Duration::ZERO)).await? {
            Swapped::Newer(kept) => Ok(kept),
            Swapped::Done => Err(cut_short()),
        }
    }

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
        self.call(self.inner.swap(key, Some(version), bytes, keeps)).await
    }

    forward_store!(Store for self => *self; guarantee, background);
}

impl Inner {
    async fn swap(
        self: &Arc<Self>,
        key: &str,
        version: Option<u64>,
        bytes: &[u8],
        keeps: Duration,
    ) -> Result<Swapped, Failure> {
        // A version that does not fit is never stored.
        let version = version.map(|version| i64::try_from(version).unwrap_or(i64::MAX));
        let keeps = i64::try_from(keeps.as_micros()).unwrap_or(i64::MAX).min(KEEPS_MICROS_MAX);
        let now = self.now();
        let params: [Param<'_>; 5] = [
            (&now, Type::INT8),
            (&key, Type::TEXT),
            (&version, Type::INT8),
            (&bytes, Type::BYTEA),
            (&keeps, Type::INT8),
        ];
        self.ready().await?;
        let row = self.row(&self.statements.swap_membership, &params).await?;
        let reply: Vec<u8> = row.try_get(row.len() - 1).map_err(StoreError::misconfigured)?;
        Ok(swapped(&reply)?)
    }
}

fn swapped(reply: &[u8]) -> Result<Swapped, StoreError> {
    let (done, rest) = number(reply)?;
    let (now, rest) = number(rest)?;
    if done == 1 {
        return Ok(Swapped::Done);
    }
    let (version, bytes) = number(rest)?;
    Ok(Swapped::Newer(MembershipRecord { bytes: bytes.to_vec(), version, now: Timestamp::from_micros(now) }))
}

/// Decodes the first number, and returns the rest.
fn number(bytes: &[u8]) -> Result<(u64, &[u8]), StoreError> {
    let (number, rest) = bytes.split_first_chunk().ok_or_else(cut_short)?;
    let number = u64::try_from(i64::from_be_bytes(*number)).map_err(|_| cut_short())?;
    Ok((number, rest))
}

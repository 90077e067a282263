//! Records that all servers of a store share: changed only if nobody else changed them meanwhile.

use std::time::Duration;

use throttlekit::store::{
    KeySpace, MEMBERSHIP_BYTES_MAX, MembershipRecord, MembershipStore, StoreError, Swapped,
};

use super::Refusal;
use super::backend::Counted;
use super::lender::PREFIX;

/// Maximum number of attempts to change a record that others change at the same time.
const TRIES_MAX: usize = 16;
/// Time for which a record is kept that has no expiry: a century.
pub(super) const KEPT: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The next content of a record, and the time for which it is kept.
pub(super) struct Next {
    pub(super) bytes: Vec<u8>,
    pub(super) keeps: Duration,
}

/// Returns the key of a record with this name. Names of our records begin with `throttlekit.`.
pub(super) fn key(name: &str) -> String {
    KeySpace::membership(PREFIX, name)
}

/// Changes a record. `change` gets the current one, and returns a result with the next content, if there is one; it is
/// called again if another server was first.
pub(super) async fn update<R>(
    store: &Counted,
    key: String,
    mut change: impl FnMut(&MembershipRecord) -> Result<(R, Option<Next>), Refusal>,
) -> Result<R, Refusal> {
    let mut record = store.load(&key).await?;
    for _ in 0..TRIES_MAX {
        let (result, next) = change(&record)?;
        let Some(Next { bytes, keeps }) = next else { return Ok(result) };
        if bytes.len() > MEMBERSHIP_BYTES_MAX {
            let full = "the record on the store that this entry belongs to is full: remove entries";
            return Err(Refusal::TooMany(full.into()));
        }
        match store.swap(&key, record.version, &bytes, keeps).await? {
            Swapped::Done => return Ok(result),
            Swapped::Newer(newer) => record = newer,
        }
    }
    Err(StoreError::Overloaded.into())
}

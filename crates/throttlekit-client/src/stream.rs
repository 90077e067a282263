//! Numbered debits of one stream.

use throttlekit::store::random_name;

use crate::{ClientError, DebitId, RemoteAnswer, RemotePolicy};

/// A stream of debits of one key. Each counts once, however often the network delivers it.
#[derive(Debug)]
pub struct RemoteStream {
    limiter: RemotePolicy,
    key: String,
    last: DebitId,
}

impl RemoteStream {
    pub(crate) fn new(limiter: RemotePolicy, key: &str) -> Self {
        Self { limiter, key: key.into(), last: DebitId { stream: random_name(), number: 0 } }
    }

    /// Charges tokens, and returns whether the stream may continue.
    ///
    /// If the future is dropped, or ends in an outage, it is unknown whether the tokens were counted; the next debit
    /// has a number of its own.
    pub async fn debit(&mut self, tokens: u64) -> Result<RemoteAnswer, ClientError> {
        self.last.number += 1;
        self.limiter.debit(&self.key, tokens, Some(self.last)).await
    }

    /// Returns the id of the last debit.
    pub fn last(&self) -> DebitId {
        self.last
    }
}

//! Debits of one stream, numbered.

use throttlekit::store::random_name;

use crate::{ClientError, Cost, DebitId, RemoteAnswer, RemoteLimiter};

/// A stream of debits of one key. Each counts once, however often the network makes it arrive.
#[derive(Debug)]
pub struct RemoteStream {
    limiter: RemoteLimiter,
    key: String,
    last: DebitId,
}

impl RemoteStream {
    pub(crate) fn new(limiter: RemoteLimiter, key: &str) -> Self {
        Self { limiter, key: key.into(), last: DebitId { stream: random_name(), number: 0 } }
    }

    /// Counts tokens, and says whether the stream may go on.
    ///
    /// If this is dropped, or ends in an outage, whether the tokens were counted is not known; the next debit has a number
    /// of its own.
    pub async fn debit(&mut self, tokens: Cost) -> Result<RemoteAnswer, ClientError> {
        self.last.number += 1;
        self.limiter.debit(&self.key, tokens, Some(self.last)).await
    }

    /// The name of the last debit.
    pub fn last(&self) -> DebitId {
        self.last
    }
}

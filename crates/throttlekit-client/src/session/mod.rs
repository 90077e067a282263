//! Calls of concurrent callers over one stream for each connection.
//!
//! A session is opened in the background when a connection is first used; until it is open, and if the server offers
//! none, calls are made without it. Calls that are queued when a message has left are the next message, so nothing waits
//! for others. All of it runs on the client's background: callers may be on any runtime.

mod outgoing;
mod slot;
mod state;

use std::sync::Arc;
use std::time::Duration;

use throttlekit::StoreError;
use throttlekit_proto::v1::Decision;
use throttlekit_proto::v1::session_call::Call;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::Status;

pub(crate) use slot::SessionSlot;
use state::Session;

/// The result of a call.
#[derive(Clone, Debug)]
enum Reply {
    /// The server's decision, or why there is none.
    Decided(Result<Decision, Status>),
    /// The session ended before the call was decided: it may be made again.
    Undecided,
    /// The connection was lost.
    Lost(StoreError),
}

/// A session that accepts calls. Dropping the last handle ends it when its calls have their results.
pub(crate) struct OpenSession(Arc<Session>);

impl OpenSession {
    /// Makes one call. Returns `None` if it was not decided, and may be made again. Dropped, it leaves nothing behind.
    pub(crate) fn call(
        &self,
        call: Call,
        time: Duration,
    ) -> impl Future<Output = Result<Option<Result<Decision, Status>>, StoreError>> + use<> {
        let (reply, replied) = oneshot::channel();
        let queued = self.0.queue(call, Instant::now() + time, reply).map(|id| Queued(self.0.clone(), id));
        async move {
            let _queued = queued;
            match replied.await.unwrap_or(Reply::Undecided) {
                Reply::Decided(decision) => Ok(Some(decision)),
                Reply::Undecided => Ok(None),
                Reply::Lost(error) => Err(error),
            }
        }
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A call in a session, forgotten on drop.
struct Queued(Arc<Session>, u64);

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.forget(self.1);
    }
}

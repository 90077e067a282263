//! The request stream of a session.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use throttlekit_proto::v1::SessionRequest;
use tonic::codegen::tokio_stream::Stream;

use super::state::Session;

/// The messages of a session. The connection takes the next one when it can send it.
pub(super) struct Outgoing(pub(super) Arc<Session>);

impl Stream for Outgoing {
    type Item = SessionRequest;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<SessionRequest>> {
        self.0.poll_message(cx)
    }
}

//! The response of a session: its messages, and its status in the end.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::HeaderMap;
use hyper::body::{Body, Bytes, Frame};
use throttlekit::internals::Mutex;
use tonic::{Code, Status};

use super::run::Session;

/// A session from its first message to its last.
type Running = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

/// A body that runs its session whenever it is polled.
pub(super) struct SessionBody {
    /// `None` once the status was sent.
    running: Option<Running>,
    outbox: Outbox,
}

/// The message that a session sends next.
#[derive(Clone, Default)]
pub(super) struct Outbox(Arc<Mutex<Option<Bytes>>>);

impl Outbox {
    /// Sends a message. Returns when the next one may be sent: a client that does not read its results keeps its session
    /// from running.
    pub(super) async fn send(&self, message: Bytes) {
        *self.0.lock() = Some(message);
        // The body takes the message after this poll, and polls again when it was sent.
        let mut is_taken = false;
        poll_fn(|_| if std::mem::replace(&mut is_taken, true) { Poll::Ready(()) } else { Poll::Pending })
            .await;
    }
}

impl SessionBody {
    pub(super) fn of<B>(session: Session<B>) -> Self
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
    {
        let outbox = Outbox::default();
        Self { running: Some(Box::pin(session.run(outbox.clone()))), outbox }
    }
}

impl Body for SessionBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(running) = &mut self.running else { return Poll::Ready(None) };
        let polled = running.as_mut().poll(cx);
        if let Some(message) = self.outbox.0.lock().take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        let Poll::Ready(ended) = polled else { return Poll::Pending };
        self.running = None;
        Poll::Ready(Some(Ok(Frame::trailers(trailers(&ended)))))
    }

    fn is_end_stream(&self) -> bool {
        self.running.is_none()
    }
}

fn trailers(ended: &Result<(), Status>) -> HeaderMap {
    let ok = Status::new(Code::Ok, "");
    let mut trailers = HeaderMap::new();
    // Fails for a message that is no header: then the code is there.
    let _ = ended.as_ref().err().unwrap_or(&ok).add_header(&mut trailers);
    trailers
}

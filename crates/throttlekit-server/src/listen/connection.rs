//! One connection, from its first byte to its last.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use throttlekit::internals::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tonic::Status;
use tower::Service;

use super::body::Delivery;
use super::counters::count;
use super::deadline::deadline;
use super::replayed::Replayed;
use super::supervise::supervise;
use super::watchdog::{Activity, CountedIo, Exchange};
use super::within::within;
use super::{ListenOptions, Peer, Speaks};
use crate::share::{Account, Requests, Running};

/// The path at which proxies check requests. The headers that come with it are those of their clients.
pub(crate) const FORWARD_AUTH: &str = "/v1/forward-auth/";

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// Creates the HTTP configuration, with every limit set: defaults may change with the version of a dependency.
///
/// A connection that has begun with HTTP/1 stays with it, also where a request of HTTP/2 would be read first.
fn http(options: &ListenOptions, requests: Requests, is_http1: bool) -> auto::Builder<Requests> {
    let limits = &options.limits;
    let builder = auto::Builder::new(requests);
    let mut builder = match options.speaks {
        Speaks::Http2 => builder.http2_only(),
        _ if is_http1 => builder.http1_only(),
        _ => builder,
    };
    builder
        .http1()
        // Timeouts need a timer.
        .timer(TokioTimer::new())
        // Slow headers (slowloris) are detected by `Watchdog`: this timer also runs between two requests, where a
        // connection may be idle for longer. It is the last resort, for heads that began within the bytes of the
        // previous request.
        .header_read_timeout(limits.idle_max + limits.header_read_max)
        // Header floods, by number and by bytes; the library requires at least 8 KiB.
        .max_headers(limits.headers_max)
        .max_buf_size((limits.header_bytes_max as usize).max(8 * 1024))
        // A client that closes its side is done: no half-open connections.
        .half_close(false)
        .keep_alive(true)
        // Responses to pipelined requests are sent one by one, so that they cannot accumulate.
        .pipeline_flush(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        // Concurrent streams: bounds the memory of one connection.
        .max_concurrent_streams(limits.streams_max)
        // Rapid reset (CVE-2023-44487): streams reset by the client before they were accepted, then GOAWAY.
        .max_pending_accept_reset_streams(limits.pending_resets_max)
        // MadeYouReset (CVE-2025-8671): streams reset by us for the client's errors, then GOAWAY.
        .max_local_error_reset_streams(limits.error_resets_max)
        // CONTINUATION floods and header bombs: the size of a decompressed header list. The decompression table keeps
        // the initial 4 KiB of HTTP/2.
        .max_header_list_size(limits.header_bytes_max)
        // Bytes of one frame.
        .max_frame_size(limits.frame_bytes_max)
        // Bytes sent ahead of our reading: multiplied by the connections, this bounds all that can accumulate. Fixed,
        // since an adaptive window grows to 16 MiB.
        .adaptive_window(false)
        .initial_stream_window_size(limits.stream_window)
        .initial_connection_window_size(limits.connection_window)
        // Responses that a client does not read (zero window).
        .max_send_buf_size(limits.send_buffer_bytes)
        // Dead clients, and those that stopped in the middle of a header block.
        .keep_alive_interval(limits.keepalive_every)
        .keep_alive_timeout(limits.keepalive_max);
    builder
}

/// A protocol, over TCP or TLS.
pub(crate) trait Protocol: Clone + Send + 'static {
    /// Serves one connection until it ends, or has to.
    fn speak<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self,
        io: I,
        whose: (Peer, Arc<Account>),
        shared: &Arc<ListenOptions>,
        closing: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send;
}

/// HTTP, with the service that answers requests.
#[derive(Clone)]
pub(super) struct Http<S>(pub(super) S);

impl<S, B> Protocol for Http<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Default + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    async fn speak<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self,
        io: I,
        whose: (Peer, Arc<Account>),
        shared: &Arc<ListenOptions>,
        closing: watch::Receiver<bool>,
    ) {
        let activity = Activity::new(&shared.limits);
        let poll = serve_http(io, Vec::new(), whose, self.0, shared, &activity);
        if let Some(Err(error)) = supervise(&activity, shared, closing, poll).await {
            blame(shared, &*error);
        }
    }
}

/// Serves one connection until it ends, or has to.
pub(super) async fn run<P: Protocol>(
    tcp: TcpStream,
    (peer, account): (Peer, Arc<Account>),
    protocol: P,
    shared: &Arc<ListenOptions>,
    closing: watch::Receiver<bool>,
) {
    // Responses are small and awaited: Nagle's algorithm would delay them.
    let _ = tcp.set_nodelay(true);
    let ListenOptions { tls, limits, speaks, counters, .. } = &**shared;
    let Some(tls) = tls else {
        return protocol.speak(tcp, (peer, account), shared, closing).await;
    };
    match timeout(limits.handshake_max, tls.acceptor(*speaks).accept(tcp)).await {
        Err(_) => count(&counters.handshake_timeouts),
        Ok(Err(error)) => {
            count(&counters.handshake_failures);
            tracing::debug!(peer = %peer.address, %error, "TLS handshake failed");
        }
        Ok(Ok(stream)) => {
            let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let peer = match certificate {
                Some(certificate) => peer.with_certificate(certificate),
                None => peer,
            };
            protocol.speak(stream, (peer, account), shared, closing).await;
        }
    }
}

/// Serves HTTP on a connection, which has received these bytes already. Returns what [`supervise`] polls.
pub(super) fn serve_http<I, S, B>(
    io: I,
    received: Vec<u8>,
    (peer, account): (Peer, Arc<Account>),
    service: S,
    shared: &Arc<ListenOptions>,
    activity: &Arc<Activity>,
) -> impl FnMut(&mut Context<'_>, bool) -> Poll<Result<(), BoxError>> + Send + use<I, S, B>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Default + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let io = TokioIo::new(Replayed::new(received, CountedIo::new(io, activity.clone())));
    let (answering, leaving) = ((shared.clone(), activity.clone()), peer.leaving.clone());
    // A clone of the service for each request would be a dozen reference counts.
    let service = Arc::new(Mutex::new(service));
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (shared, activity) = answering.clone();
        request.extensions_mut().insert(peer.clone());
        let service = service.clone();
        async move {
            let answering = Answering::begin(&mut *service.lock(), request, &shared, activity);
            Ok::<_, Infallible>(answering.end(&shared).await)
        }
    });
    let shed = shared.counters.clone();
    let requests = Requests::of(account, move || shed.count_shed());
    let mut running = Running::of(&requests);
    let connection = http(shared, requests, activity.is_http1()).serve_connection(io, service).into_owned();
    let (mut connection, activity) = (Box::pin(connection), activity.clone());
    move |cx, leaves| {
        if leaves {
            leaving.begin();
            // GOAWAY, or `connection: close`.
            connection.as_mut().graceful_shutdown();
        }
        activity.begin_turn();
        running.poll_with(connection.as_mut(), cx)
    }
}

/// Counts a connection that ended with an error.
pub(super) fn blame(options: &ListenOptions, error: &(dyn Error + 'static)) {
    let counters = &options.counters;
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<h2::Error>().is_some_and(|error| error.is_go_away() && error.is_library()) {
            return count(&counters.sent_away);
        }
        cause = error.source();
    }
    count(&counters.broken);
}

/// A request that is being answered.
struct Answering<F> {
    exchange: Exchange,
    is_grpc: bool,
    /// Maximum time for the response.
    time: Duration,
    response: F,
}

impl<F> Answering<F> {
    /// Calls the service.
    fn begin<S: Service<Request<Incoming>, Future = F>>(
        service: &mut S,
        request: Request<Incoming>,
        options: &ListenOptions,
        activity: Arc<Activity>,
    ) -> Self {
        let exchange = Exchange::begin(activity);
        count(&options.counters.requests);
        let is_grpc = is_grpc(&request);
        let time_max = options.limits.request_max;
        // A proxy forwards its client's headers; the client must not determine how long the proxy waits.
        let time = match asks_for_another(&request) {
            true => time_max,
            false => deadline(request.headers(), time_max),
        };
        Self { exchange, is_grpc, time, response: service.call(request) }
    }

    /// Returns the response, or an error once its time is over.
    async fn end<B: Body + Default>(self, options: &ListenOptions) -> Response<Delivery<B>>
    where
        F: Future<Output = Result<Response<B>, Infallible>>,
    {
        let Self { exchange, is_grpc, time, response } = self;
        let response = match within(|| Instant::now() + time, response).await {
            Ok(Ok(response)) => response,
            Err(_) => {
                count(&options.counters.late);
                say(is_grpc, Status::deadline_exceeded("request timed out"))
            }
        };
        response.map(|body| Delivery::new(body, exchange))
    }
}

/// Checks whether a request uses gRPC, and so needs gRPC errors. A forward-auth proxy does not, whatever headers it
/// forwards: a gRPC error is a 200, which allows the request.
pub(crate) fn is_grpc<B>(request: &Request<B>) -> bool {
    let kind = request.headers().get(http::header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) && !asks_for_another(request)
}

/// Checks whether a request is that of a forward-auth proxy, which forwards its client's headers.
fn asks_for_another<B>(request: &Request<B>) -> bool {
    request.uri().path().starts_with(FORWARD_AUTH)
}

/// Creates an error response, in the format of gRPC or of HTTP.
pub(crate) fn say<B: Default>(is_grpc: bool, status: Status) -> Response<B> {
    if is_grpc {
        return status.into_http();
    }
    let mut response = Response::new(B::default());
    *response.status_mut() = match status.code() {
        tonic::Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        tonic::Code::PermissionDenied => StatusCode::FORBIDDEN,
        tonic::Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        tonic::Code::Cancelled => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let (name, value) = match status.code() {
        tonic::Code::Unauthenticated => (http::header::WWW_AUTHENTICATE, "Bearer"),
        tonic::Code::Unavailable => (http::header::RETRY_AFTER, "1"),
        _ => return response,
    };
    response.headers_mut().insert(name, http::HeaderValue::from_static(value));
    response
}

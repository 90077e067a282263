//! One connection, from its first byte to its last.

use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tonic::Status;
use tower::{Service, ServiceExt};

use super::body::Delivery;
use super::counters::count;
use super::deadline::deadline;
use super::watchdog::{Activity, CountedIo, Exchange, Verdict, Watchdog};
use super::{ListenOptions, Peer, Speaks};
use crate::share::{Account, Requests};

/// The path at which proxies check requests. The headers that come with it are those of their clients.
pub(crate) const FORWARD_AUTH: &str = "/v1/forward-auth/";

type BoxError = Box<dyn Error + Send + Sync>;

/// How HTTP is spoken, every limit set: what is not set here is up to the versions of others.
fn http(options: &ListenOptions, requests: Requests) -> auto::Builder<Requests> {
    let limits = &options.limits;
    let builder = auto::Builder::new(requests);
    let mut builder = if options.speaks == Speaks::Http2 { builder.http2_only() } else { builder };
    builder
        .http1()
        // Time-outs need a clock.
        .timer(TokioTimer::new())
        // Slow headers (slowloris) are judged by `Watchdog`: this clock also runs between two requests, where a connection
        // may be idle for longer. It comes last, for heads that began within the bytes of the request before.
        .header_read_timeout(limits.idle_max + limits.header_read_max)
        // A flood of headers, by number and by bytes; the library wants 8 KiB at least.
        .max_headers(limits.headers_max)
        .max_buf_size((limits.header_bytes_max as usize).max(8 * 1024))
        // A client that is done sending is done: no half-open connections.
        .half_close(false)
        .keep_alive(true)
        // Answers to pipelined requests go out one by one, so that they cannot pile up.
        .pipeline_flush(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        // Streams at a time: what one connection can make us hold.
        .max_concurrent_streams(limits.streams_max)
        // Rapid reset (CVE-2023-44487): streams taken back before they were accepted, then GOAWAY.
        .max_pending_accept_reset_streams(limits.pending_resets_max)
        // Made-you-reset (CVE-2025-8671): streams we end for the client's errors, then GOAWAY.
        .max_local_error_reset_streams(limits.error_resets_max)
        // CONTINUATION floods and header bombs: what a header list may come to once unpacked. The table that unpacks
        // it keeps the 4 KiB that HTTP/2 begins with.
        .max_header_list_size(limits.header_bytes_max)
        // Bytes in one piece.
        .max_frame_size(limits.frame_bytes_max)
        // Bytes sent ahead of our reading: these times the connections is all that can pile up. Fixed, since a window
        // that adapts grows to 16 MiB.
        .adaptive_window(false)
        .initial_stream_window_size(limits.stream_window)
        .initial_connection_window_size(limits.connection_window)
        // Answers that a client does not take (zero window).
        .max_send_buf_size(limits.send_buffer_bytes)
        // The dead and those who stopped in the middle of a header block.
        .keep_alive_interval(limits.keepalive_every)
        .keep_alive_timeout(limits.keepalive_max);
    builder
}

/// Serves one connection until it ends, or has to.
pub(super) async fn run<S, B>(
    tcp: TcpStream,
    (peer, account): (Peer, Arc<Account>),
    service: S,
    shared: &Arc<ListenOptions>,
    closing: watch::Receiver<bool>,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Default + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    // Answers are small and awaited: they are not held back to be sent together.
    let _ = tcp.set_nodelay(true);
    let ListenOptions { tls, limits, speaks, counters, .. } = &**shared;
    let Some(tls) = tls else {
        return speak(tcp, (peer, account), service, shared, closing).await;
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
            speak(stream, (peer, account), service, shared, closing).await;
        }
    }
}

async fn speak<I, S, B>(
    io: I,
    (peer, account): (Peer, Arc<Account>),
    service: S,
    shared: &Arc<ListenOptions>,
    mut closing: watch::Receiver<bool>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Default + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let ListenOptions { limits, counters, .. } = &**shared;
    let activity = Activity::new(limits);
    let io = TokioIo::new(CountedIo { io, activity: activity.clone() });
    let mut watch = Watchdog::new(activity.clone(), Instant::now());
    let answering = (shared.clone(), activity.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (shared, activity) = answering.clone();
        request.extensions_mut().insert(peer.clone());
        let service = service.clone();
        async move { Ok::<_, Infallible>(answer(service, request, &shared, activity).await) }
    });
    let shed = counters.clone();
    let http = http(shared, Requests { account, refused: Arc::new(move || shed.count_shed()) });
    let mut connection = pin!(http.serve_connection(io, service));
    let mut looks = interval(Watchdog::every(limits));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut age = pin!(sleep(limits.age()));
    // Set once it was told to go.
    let mut until: Option<Instant> = None;
    loop {
        let leave = tokio::select! {
            ended = activity.in_turns(connection.as_mut()) => {
                return ended.err().iter().for_each(|error| blame(shared, &**error));
            }
            () = activity.offended() => return count(&counters.abandoning),
            () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {
                return count(&counters.cut_off);
            }
            _ = closing.changed(), if until.is_none() => None,
            () = age.as_mut(), if until.is_none() => Some(&counters.aged),
            now = looks.tick() => match watch.judge(now, limits) {
                Verdict::Mute => return count(&counters.handshake_timeouts),
                Verdict::SlowHead => return count(&counters.slow_heads),
                Verdict::Stalled => return count(&counters.stalled),
                Verdict::Idle if until.is_none() => Some(&counters.idle),
                Verdict::Idle | Verdict::Fine => continue,
            },
        };
        leave.into_iter().for_each(count);
        // GOAWAY, or `connection: close`: what is under way may end.
        connection.as_mut().graceful_shutdown();
        until = Some(Instant::now() + limits.grace);
    }
}

/// Counts an end that was not a good one.
fn blame(options: &ListenOptions, error: &(dyn Error + 'static)) {
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

async fn answer<S, B>(
    service: S,
    request: Request<Incoming>,
    options: &ListenOptions,
    activity: Arc<Activity>,
) -> Response<Delivery<B>>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body + Default,
{
    let ListenOptions { limits, counters, .. } = options;
    let exchange = Exchange::begin(activity);
    count(&counters.requests);
    let is_grpc = is_grpc(&request);
    // A proxy passes on what its client sent, who has no say in how long the proxy waits.
    let time = match asks_for_another(&request) {
        true => limits.request_max,
        false => deadline(request.headers(), limits.request_max),
    };
    let response = match timeout(time, service.oneshot(request)).await {
        Ok(Ok(response)) => response,
        Err(_) => {
            count(&counters.late);
            say(is_grpc, Status::deadline_exceeded("not answered in time"))
        }
    };
    response.map(|body| Delivery::new(body, exchange))
}

/// Whether a request speaks gRPC, and so wants its errors. A proxy that asks for its client does not, whatever that one
/// sent along: an error of gRPC is a 200, which lets pass.
pub(crate) fn is_grpc<B>(request: &Request<B>) -> bool {
    let kind = request.headers().get(http::header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) && !asks_for_another(request)
}

/// Whether it is a proxy's, that asks for its client and sends what that one sent along.
fn asks_for_another<B>(request: &Request<B>) -> bool {
    request.uri().path().starts_with(FORWARD_AUTH)
}

/// An answer that is an error, in the words of gRPC or in those of HTTP.
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

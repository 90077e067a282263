//! Stopping: what is under way ends, what is new is refused.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use throttlekit_server::internals::listen::{Limits, ListenOptions, Stats, serve};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::client::Client;

/// Answers after as many milliseconds as the path says.
pub(crate) async fn slow(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let wait = request.uri().path().trim_start_matches('/').parse().unwrap_or(0);
    sleep(Duration::from_millis(wait)).await;
    let answer = Response::builder().header("grpc-status", "0").body(Full::from("done"));
    Ok(answer.expect("a response"))
}

pub(crate) async fn start(
    options: ListenOptions,
) -> (std::net::SocketAddr, oneshot::Sender<()>, JoinHandle<Stats>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let serving = serve(listener, tower::service_fn(slow), options, async {
        let _ = stopped.await;
    });
    (address, stop, tokio::spawn(serving))
}

#[tokio::test]
async fn what_is_under_way_ends_and_nothing_new_begins() {
    let (address, stop, done) = start(ListenOptions::default()).await;
    let client = Client::connect(address).await.unwrap();
    let asking = client.clone();
    let under_way = tokio::spawn(async move { asking.raw("/400", &[], Bytes::new()).await });
    sleep(Duration::from_millis(100)).await;
    stop.send(()).unwrap();
    sleep(Duration::from_millis(100)).await;
    assert!(TcpStream::connect(address).await.is_err(), "a connection was taken while stopping");
    assert!(client.raw("/0", &[], Bytes::new()).await.is_err(), "a request was taken while stopping");
    // Its status is in the headers, as it has no trailers.
    let ended = under_way.await.unwrap();
    assert_eq!(ended.unwrap_err().code(), tonic::Code::Ok);
    let stats = timeout(Duration::from_secs(2), done).await.unwrap().unwrap();
    assert_eq!((stats.requests, stats.cut_off), (1, 0));
}

#[tokio::test]
async fn what_does_not_end_within_the_grace_is_cut_off() {
    let limits = Limits { grace: Duration::from_millis(200), ..Limits::default() };
    let (address, stop, done) = start(ListenOptions { limits, ..ListenOptions::default() }).await;
    let client = Client::connect(address).await.unwrap();
    let under_way = tokio::spawn(async move { client.raw("/5000", &[], Bytes::new()).await });
    sleep(Duration::from_millis(100)).await;
    stop.send(()).unwrap();
    let stats = timeout(Duration::from_secs(2), done).await.unwrap().unwrap();
    assert_eq!(stats.cut_off, 1);
    assert!(under_way.await.unwrap().is_err());
}

#[tokio::test]
async fn the_idle_do_not_hold_a_server_up() {
    let (address, stop, done) = start(ListenOptions::default()).await;
    let client = Client::connect(address).await.unwrap();
    assert_eq!(client.raw("/0", &[], Bytes::new()).await.unwrap_err().code(), tonic::Code::Ok);
    stop.send(()).unwrap();
    let stats = timeout(Duration::from_secs(2), done).await.unwrap().unwrap();
    assert_eq!((stats.accepted, stats.cut_off), (1, 0));
}

/// The system accepts connections before the server does. Those that it has accepted are served, or rejected: a reset
/// would leave their clients in doubt.
#[tokio::test]
async fn a_connection_that_waits_to_be_accepted_at_the_end_is_not_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let early = TcpStream::connect(address).await.unwrap();
    let serving = serve(listener, tower::service_fn(slow), ListenOptions::default(), async {});
    let serving = tokio::spawn(serving);
    let (send, connection) = h2::client::handshake(early).await.unwrap();
    let connection = tokio::spawn(connection);
    let asked = Client::with(send).raw("/0", &[], Bytes::new()).await;
    let stats = timeout(Duration::from_secs(5), serving).await.unwrap().unwrap();
    // Served, or reported as not processed.
    let ended = connection.await.unwrap();
    assert!(ended.is_ok(), "{ended:?}, {asked:?}");
    assert_eq!((stats.accepted, stats.cut_off), (1, 0));
}

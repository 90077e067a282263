//! Seeded bugs in a wrapper around the HTTP service. The fuzzer must detect each of them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use hyper::body::{Bytes, Incoming};
use throttlekit_server::Server;
use throttlekit_server::internals::api::http::HttpApi;
use throttlekit_server::internals::listen::{Limits, ListenOptions, Speaks, serve};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

/// A bug that a request with a `%` in its path triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The handler panics.
    Panic,
    /// The process ends.
    Abort,
    /// The handler blocks its thread.
    Block,
    /// The response never ends.
    Endless,
    /// A connection to the gRPC listener stays open, with a stream on it, so that it never becomes idle.
    Leak,
}

impl Bug {
    pub(crate) const ALL: [Self; 5] = [Self::Panic, Self::Abort, Self::Block, Self::Endless, Self::Leak];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bug| format!("{bug:?}") == name)
    }

    async fn trigger(self, grpc: SocketAddr) -> Option<Response<Body>> {
        match self {
            Self::Panic => panic!("a seeded bug"),
            Self::Abort => std::process::abort(),
            Self::Block => std::thread::sleep(Duration::from_secs(600)),
            Self::Endless => {
                let never = futures_util::stream::pending::<Result<Bytes, Infallible>>();
                return Some(Response::new(Body::from_stream(never)));
            }
            Self::Leak => drop(tokio::spawn(leak(grpc))),
        }
        None
    }
}

/// Serves the HTTP API of this server, with the bug, on another port.
pub(crate) async fn http(server: &Server, bug: Bug, limits: Limits) -> SocketAddr {
    let (router, grpc) = (HttpApi::new(server.engine().clone()).into_router(), server.grpc());
    let service = tower::service_fn(move |request: Request<Incoming>| {
        let router = router.clone();
        async move {
            if request.uri().path().contains('%')
                && let Some(response) = bug.trigger(grpc).await
            {
                return Ok::<_, Infallible>(response);
            }
            router.oneshot(request).await
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let options = ListenOptions { limits, speaks: Speaks::Http, ..ListenOptions::default() };
    tokio::spawn(serve(listener, service, options, std::future::pending()));
    address
}

async fn leak(grpc: SocketAddr) {
    let tcp = TcpStream::connect(grpc).await.expect("a connection");
    let (mut send, connection) = h2::client::handshake(tcp).await.expect("HTTP/2");
    tokio::spawn(connection);
    let request = Request::post("http://server/grpc.health.v1.Health/Watch");
    let request = request.header("content-type", "application/grpc").body(()).expect("a request");
    let (response, mut body) = send.send_request(request, false).expect("a stream");
    body.send_data(Bytes::from_static(&[0; 5]), true).expect("a message");
    let _response = response.await;
    std::future::pending::<()>().await;
}

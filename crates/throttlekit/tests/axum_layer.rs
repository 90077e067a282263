//! The layer in an axum server over a real socket: the peer's address comes from axum's connect info.
#![cfg(feature = "axum")]

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use throttlekit::http::{AdmissionLayer, client_ip};
use throttlekit::{Limiter, Rate};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn app() -> Router {
    let limiter = Limiter::new(Rate::per_minute(60).burst(1)).unwrap();
    let layer = AdmissionLayer::new(limiter, client_ip().behind_proxies(1)).unwrap();
    Router::new().route("/", get(async || "hello")).layer(layer)
}

/// Sends a request for a client behind one proxy, and returns the whole response.
async fn ask(address: SocketAddr, client: &str) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request =
        format!("GET / HTTP/1.1\r\nhost: x\r\nx-forwarded-for: {client}\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn clients_behind_a_proxy_are_counted_apart_without_further_setup() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = app().into_make_service_with_connect_info::<SocketAddr>();
    let server = tokio::spawn(async move { axum::serve(listener, service).await });
    assert!(ask(address, "192.0.2.7").await.starts_with("HTTP/1.1 200"));
    assert!(ask(address, "192.0.2.7").await.starts_with("HTTP/1.1 429"));
    assert!(ask(address, "192.0.2.8").await.starts_with("HTTP/1.1 200"));
    server.abort();
}

#[tokio::test]
async fn a_server_without_connect_info_reports_the_missing_part() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, app()).await });
    let response = ask(address, "192.0.2.7").await;
    assert!(response.starts_with("HTTP/1.1 500") && response.contains("no peer address"), "{response}");
    server.abort();
}

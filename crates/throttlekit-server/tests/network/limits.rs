//! Limits on connections and requests that are not attacks.

use std::time::Duration;

use hyper::body::Bytes;
use throttlekit_server::internals::listen::{Limits, ListenOptions, Speaks};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::client::Client;
use crate::drain::start;

fn with(limits: Limits) -> ListenOptions {
    ListenOptions { limits, ..ListenOptions::default() }
}

async fn code(client: &Client, path: &str, headers: &[(&'static str, &str)]) -> Code {
    client.raw(path, headers, Bytes::new()).await.unwrap_err().code()
}

#[tokio::test]
async fn a_request_has_the_servers_time_or_its_clients_if_that_is_less() {
    let limits = Limits { request_max: Duration::from_millis(300), ..Limits::default() };
    let (address, stop, done) = start(with(limits)).await;
    let client = Client::connect(address).await.unwrap();
    assert_eq!(code(&client, "/2000", &[]).await, Code::DeadlineExceeded);
    assert_eq!(code(&client, "/150", &[("grpc-timeout", "50m")]).await, Code::DeadlineExceeded);
    assert_eq!(code(&client, "/2000", &[("grpc-timeout", "1H")]).await, Code::DeadlineExceeded);
    assert_eq!(code(&client, "/10", &[]).await, Code::Ok);
    stop.send(()).unwrap();
    assert_eq!(done.await.unwrap().late, 3);
}

#[tokio::test]
async fn beyond_so_many_connections_the_next_is_closed_and_a_place_comes_free() {
    let (address, stop, done) = start(with(Limits { connections_max: 1, ..Limits::default() })).await;
    let first = Client::connect(address).await.unwrap();
    assert_eq!(code(&first, "/0", &[]).await, Code::Ok);
    let mut second = TcpStream::connect(address).await.unwrap();
    let read = timeout(Duration::from_secs(1), second.read(&mut [0; 1])).await.expect("closed at once");
    assert!(!matches!(read, Ok(1)));
    drop(first);
    sleep(Duration::from_millis(200)).await;
    let third = Client::connect(address).await.unwrap();
    assert_eq!(code(&third, "/0", &[]).await, Code::Ok);
    stop.send(()).unwrap();
    assert_eq!(done.await.unwrap().over_cap, 1);
}

#[tokio::test]
async fn a_connection_goes_at_its_age_and_when_it_is_idle() {
    let short = Duration::from_millis(300);
    for limits in
        [Limits { age_max: short, ..Limits::default() }, Limits { idle_max: short, ..Limits::default() }]
    {
        let is_aged = limits.age_max == short;
        let (address, stop, done) = start(with(limits)).await;
        let client = Client::connect(address).await.unwrap();
        assert_eq!(code(&client, "/0", &[]).await, Code::Ok);
        sleep(short * 3).await;
        assert!(client.raw("/0", &[], Bytes::new()).await.is_err());
        stop.send(()).unwrap();
        let stats = done.await.unwrap();
        assert_eq!((stats.aged, stats.idle), if is_aged { (1, 0) } else { (0, 1) });
    }
}

#[tokio::test]
async fn http_1_is_answered_in_its_own_words() {
    let limits = Limits { request_max: Duration::from_millis(100), ..Limits::default() };
    let (address, _stop, _done) = start(ListenOptions { speaks: Speaks::Http, ..with(limits) }).await;
    for (path, status) in [("/0", "200 OK"), ("/1000", "504 Gateway Timeout")] {
        let mut tcp = TcpStream::connect(address).await.unwrap();
        let text = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        tcp.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
}

//! How sessions end: by the client, its death, its silence, the age of its connection, and the end of the server.

use std::time::Duration;

use hyper::body::Bytes;
use throttlekit_server::Server;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::attack;
use crate::client::Client;
use crate::fair::{metric, serve};
use crate::session::{is_idle, serve_hung};
use crate::session_stream::{Stream, check, code};

const SOON: Duration = Duration::from_secs(10);

/// The number of connections that ended for this reason.
async fn closed(server: &Server, reason: &str) -> f64 {
    let page = attack::get(server.metrics().unwrap(), "/metrics").await.unwrap();
    let label = format!("listener=\"grpc\",reason=\"{reason}\"");
    let line = page.lines().find(|line| line.contains("connections") && line.contains(&label));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("a metric")
}

/// Waits for the goaway, closes this side, and waits for the end.
async fn leaves(session: &mut Stream) {
    let goaway = timeout(SOON, session.next()).await.expect("a goaway").unwrap().expect("a response");
    assert!(goaway.goaway && goaway.results.is_empty(), "{goaway:?}");
    session.close();
    assert_eq!(timeout(SOON, session.next()).await.expect("an end").unwrap(), None);
}

#[tokio::test]
async fn a_client_that_closes_its_side_gets_all_results_and_then_ok() {
    let (server, _file) = serve(|_| ()).await;
    let mut session = Stream::open(&Client::connect(server.grpc()).await.unwrap()).await.unwrap();
    let sent = (0..5).map(|_| session.send((0..50).map(|_| check("api", "k")).collect(), 0).unwrap().len());
    let sent: usize = sent.sum();
    session.close();
    let mut results = 0;
    while let Some(response) = timeout(SOON, session.next()).await.expect("in time").unwrap() {
        assert!(!response.goaway);
        results += response.results.len();
    }
    assert_eq!((results, sent), (250, 250));
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_stops_under_load_decides_what_was_sent() {
    let (server, _file) = serve(|_| ()).await;
    let mut busy = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let client = Client::connect(server.grpc()).await.unwrap();
        let mut session = Stream::open(&client).await.unwrap();
        busy.spawn(async move {
            let (mut sent, mut decided, mut goaways) = (0, 0, 0);
            // Three messages are always on their way.
            for _ in 0..3 {
                sent += session.send((0..20).map(|_| check("api", "k")).collect(), 0).unwrap().len();
            }
            while let Some(response) = timeout(SOON, session.next()).await.expect("in time").unwrap() {
                decided += response.results.len();
                if response.goaway && goaways == 0 {
                    session.close();
                }
                goaways += u32::from(response.goaway);
                while goaways == 0 && sent < decided + 60 {
                    sent += session.send((0..20).map(|_| check("api", "k")).collect(), 0).unwrap().len();
                }
            }
            (sent, decided, goaways > 0)
        });
    }
    sleep(Duration::from_millis(300)).await;
    let begun = Instant::now();
    let (_, all) = tokio::join!(server.stop(), busy.join_all());
    for (sent, decided, was_told) in all {
        assert!(sent == decided && sent > 60 && was_told, "{sent} sent, {decided} decided, {was_told}");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_client_that_ignores_the_goaway_holds_no_server_up() {
    let (server, _file) = serve(|_| ()).await;
    let client = Client::connect(server.grpc()).await.unwrap();
    let mut session = Stream::open(&client).await.unwrap();
    session.call(vec![check("api", "k")], 0).await.unwrap();
    timeout(SOON, server.stop()).await.expect("the server stops");
    assert!(session.next().await.unwrap().unwrap().goaway);
    assert_eq!(session.next().await.unwrap(), None, "what is not decided then never is");
}

#[tokio::test]
async fn a_client_that_is_killed_leaves_no_turn_behind() {
    let (server, _file, redis) = serve_hung(|options| options.limits.requests_max = 4).await;
    let mut killed = Vec::new();
    for _ in 0..3 {
        let tcp = TcpStream::connect(server.grpc()).await.unwrap();
        let (send, connection) = h2::client::handshake(tcp).await.unwrap();
        let connection = tokio::spawn(connection);
        let client = Client::with(send);
        let mut session = Stream::open(&client).await.unwrap();
        session.send((0..40).map(|_| check("api", "k")).collect(), 0).unwrap();
        killed.push((connection, session));
    }
    let busy = async {
        while metric(&server, "throttlekit_deciding").await == 0.0
            || metric(&server, "throttlekit_waiting").await == 0.0
        {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, busy).await.expect("some decide and some wait");
    killed.iter().for_each(|(connection, _)| connection.abort());
    drop(killed);
    is_idle(&server).await;
    drop(redis);
    server.stop().await;
}

#[tokio::test]
async fn idle_sessions_end_with_a_goaway() {
    let (server, _file) = serve(|options| options.limits.idle_max = Duration::from_millis(300)).await;
    let mut session = Stream::open(&Client::connect(server.grpc()).await.unwrap()).await.unwrap();
    // Busy for longer than that.
    for _ in 0..10 {
        assert_eq!(code(&session.call(vec![check("api", "k")], 0).await.unwrap()[0]), Code::Ok);
        sleep(Duration::from_millis(50)).await;
    }
    leaves(&mut session).await;
    is_idle(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn sessions_end_with_the_age_of_their_connection() {
    let (server, _file) = serve(|options| options.limits.age_max = Duration::from_millis(500)).await;
    let client = Client::connect(server.grpc()).await.unwrap();
    let mut session = Stream::open(&client).await.unwrap();
    leaves(&mut session).await;
    drop((client, session));
    is_idle(&server).await;
    let ended = async {
        while closed(&server, "max_age").await == 0.0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, ended).await.expect("the connection is closed");
    assert_eq!(closed(&server, "forced").await, 0.0);
    server.stop().await;
}

#[tokio::test]
async fn a_message_that_does_not_come_whole_is_counted_and_ended() {
    let (server, _file) = serve(|options| options.limits.body_for = Duration::from_millis(500)).await;
    let mut session = Stream::open(&Client::connect(server.grpc()).await.unwrap()).await.unwrap();
    session.send.send_data(Bytes::from_static(&[0, 0, 0, 0, 100, 1, 2, 3]), false).unwrap();
    let counted = async {
        while metric(&server, "throttlekit_body_bytes").await == 0.0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, counted).await.expect("it is counted");
    let end = timeout(SOON, session.next()).await.expect("it is ended");
    assert_eq!(end.err().unwrap().code(), Code::DeadlineExceeded);
    is_idle(&server).await;
    server.stop().await;
}

/// Sends calls and reads no results.
#[tokio::test]
async fn a_client_that_does_not_read_is_closed_by_the_watchdog() {
    let (server, _file) = serve(|options| options.limits.stall_max = Duration::from_millis(400)).await;
    let tcp = TcpStream::connect(server.grpc()).await.unwrap();
    // Room for the first response and little else.
    let handshake = h2::client::Builder::new().initial_window_size(64).handshake::<_, Bytes>(tcp).await;
    let (send, connection) = handshake.unwrap();
    let connection = tokio::spawn(connection);
    let mut session = Stream::open(&Client::with(send)).await.unwrap();
    for _ in 0..20 {
        session.send((0..50).map(|_| check("api", "k")).collect(), 0).unwrap();
    }
    assert!(timeout(SOON, connection).await.is_ok(), "the server closes the connection");
    assert_eq!(closed(&server, "stalled").await, 1.0);
    is_idle(&server).await;
    server.stop().await;
}

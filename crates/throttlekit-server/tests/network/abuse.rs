//! Each attack is ended by the limit that is meant for it, and others are served meanwhile.

use std::time::Duration;

use hyper::body::Bytes;
use prost::Message;
use throttlekit_proto::v1::{
    AdmitRequest, AdmitResponse, CheckManyRequest, CheckManyResponse, HeartbeatRequest, HeartbeatResponse,
};
use throttlekit_server::internals::access::Access;
use throttlekit_server::internals::listen::{Limits, ListenOptions, Speaks, Stats};
use throttlekit_server::policy::AccessSpec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Code;

use crate::attack;
use crate::client::{CHECK, Client, framed};
use crate::target::Target;

/// A server whose patience is short.
async fn target() -> Target {
    let limits = Limits {
        handshake_max: Duration::from_millis(400),
        header_read_max: Duration::from_millis(400),
        stall_max: Duration::from_millis(400),
        keepalive_every: Duration::from_millis(400),
        keepalive_max: Duration::from_millis(400),
        ..Limits::default()
    };
    Target::open(speaking_http(limits)).await
}

fn speaking_http(limits: Limits) -> ListenOptions {
    ListenOptions { limits, speaks: Speaks::Http, ..ListenOptions::default() }
}

/// Asserts that others are served, and stops.
async fn survived(target: Target) -> Stats {
    let client = Client::connect(target.address).await.unwrap();
    assert!(client.check("api", "k").await.unwrap().decision.unwrap().allowed);
    drop(client);
    target.stop().await
}

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn rapid_reset_ends_the_connection() {
    let target = target().await;
    let ended = attack::rapid_reset(target.address, 200_000).await.unwrap();
    assert!(ended.is_some_and(|streams| streams < 200_000), "{ended:?}");
    let stats = survived(target).await;
    assert!(stats.abandoning + stats.sent_away >= 1, "{stats:?}");
}

#[tokio::test]
async fn streams_that_make_the_server_reset_them_end_the_connection() {
    let target = target().await;
    let ended = attack::made_reset(target.address, 50_000).await.unwrap();
    assert!(ended.is_some_and(|streams| streams < 50_000), "{ended:?}");
    assert!(survived(target).await.sent_away >= 1);
}

#[tokio::test]
async fn headers_without_an_end_are_ended() {
    let target = target().await;
    let ended = attack::continuation_flood(target.address, 64 << 20).await.unwrap();
    assert!(ended.is_some_and(|bytes| bytes < 64 << 20), "{ended:?}");
    assert!(survived(target).await.sent_away >= 1);
}

#[tokio::test]
async fn a_header_bomb_does_not_go_off() {
    let target = target().await;
    let before = target.stats().requests;
    let _ = attack::header_bomb(target.address, 50).await;
    assert_eq!(target.stats().requests, before, "a bomb reached the API");
    survived(target).await;
}

#[tokio::test]
async fn who_begins_and_does_not_go_on_is_closed() {
    let target = target().await;
    let pause = Duration::from_millis(100);
    for (number, bytes) in [attack::SLOW_PREFACE, attack::HEAD_BEGUN, &[]].into_iter().enumerate() {
        assert!(attack::drip(target.address, &[], bytes, pause, SOON).await.unwrap());
        assert_eq!(target.stats().handshake_timeouts, number as u64 + 1);
    }
    assert_eq!(survived(target).await.slow_heads, 0);
}

#[tokio::test]
async fn headers_of_http_1_that_go_on_and_on_are_ended_at_their_time() {
    let limits = Limits { header_read_max: Duration::from_millis(400), ..Limits::default() };
    let target = Target::open(speaking_http(limits)).await;
    let pause = Duration::from_millis(50);
    let (begun, goes_on) = (attack::HEAD_BEGUN, attack::HEAD_GOES_ON);
    assert!(attack::drip(target.address, begun, goes_on, pause, SOON).await.unwrap());
    // And those of a second request, after an answer.
    let asked = [begun, b"b\r\n\r\n"].concat();
    let mut tcp = tokio::net::TcpStream::connect(target.address).await.unwrap();
    tcp.write_all(&asked).await.unwrap();
    assert!(tcp.read(&mut [0; 1024]).await.unwrap() > 0);
    tcp.write_all(begun).await.unwrap();
    let ended = tokio::time::timeout(SOON, tcp.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok(), "still open");
    assert_eq!(survived(target).await.slow_heads, 2);
}

#[tokio::test]
async fn a_client_of_http_1_may_pause_between_requests_for_longer_than_headers_may_take() {
    let limits = Limits { header_read_max: Duration::from_millis(200), ..Limits::default() };
    let target = Target::open(speaking_http(limits)).await;
    let mut tcp = tokio::net::TcpStream::connect(target.address).await.unwrap();
    for _ in 0..3 {
        tcp.write_all(b"POST /0 HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody").await.unwrap();
        assert!(tcp.read(&mut [0; 1024]).await.unwrap() > 0);
        tokio::time::sleep(Duration::from_millis(800)).await;
    }
    assert_eq!(target.stats().requests, 3);
    drop(tcp);
    assert_eq!(survived(target).await.slow_heads, 0);
}

#[tokio::test]
async fn headers_of_http_2_that_never_end_are_ended_by_the_ping_that_cannot_be_answered() {
    let target = target().await;
    let mut silent = attack::unended_headers(target.address, false).await.unwrap();
    assert!(silent.ended_within(SOON).await);
    drop(silent);
    // It is counted once the client has closed its side.
    let counted = async {
        while target.stats().broken == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, counted).await.expect("it is counted");
    assert_eq!((target.stats().broken, target.stats().sent_away), (1, 0));
    let mut answering = attack::unended_headers(target.address, true).await.unwrap();
    assert!(answering.ended_within(SOON).await);
    assert_eq!(answering.pongs(), 1);
    let stats = survived(target).await;
    assert_eq!((stats.broken, stats.sent_away), (1, 1));
}

#[tokio::test]
async fn who_takes_no_answer_is_closed() {
    // Pings come and are answered well before, so that they are not what ends it.
    let limits = Limits {
        stall_max: Duration::from_secs(2),
        keepalive_every: Duration::from_millis(200),
        keepalive_max: Duration::from_secs(1),
        ..Limits::default()
    };
    let target = Target::open(speaking_http(limits)).await;
    let mut wire = attack::zero_window(target.address, 100).await.unwrap();
    assert!(wire.ended_within(SOON).await);
    assert!(wire.pongs() >= 1, "{} pings were answered", wire.pongs());
    let stats = survived(target).await;
    assert_eq!((stats.stalled, stats.broken), (1, 0));
}

#[tokio::test]
async fn long_messages_are_refused_by_their_length_alone() {
    let target = target().await;
    let client = Client::connect(target.address).await.unwrap();
    let says_4_gib: &[u8] = &[0, 255, 255, 255, 255, 1, 2, 3];
    let code = async |body: Bytes| client.raw(CHECK, &[], body).await.unwrap_err().code();
    assert_eq!(code(Bytes::from_static(says_4_gib)).await, Code::OutOfRange);
    assert_eq!(code(framed(&vec![0; 5 << 20])).await, Code::OutOfRange);
    survived(target).await;
}

#[tokio::test]
async fn deep_messages_are_refused() {
    let target = target().await;
    let client = Client::connect(target.address).await.unwrap();
    // Groups of field 15, opened and never closed: what is not known is read over, but not to any depth.
    let answer = client.raw(CHECK, &[], framed(&[0x7B; 60_000])).await;
    // The whole server answers INVALID_ARGUMENT: see `operations`.
    assert_eq!(answer.unwrap_err().code(), Code::Internal);
    survived(target).await;
}

#[tokio::test]
async fn too_many_keys_at_once_are_refused() {
    let target = target().await;
    let client = Client::connect(target.address).await.unwrap();
    let keys = (0..10_000).map(|n| format!("{n}")).collect();
    let ask = CheckManyRequest { policy: "api".into(), keys, ..CheckManyRequest::default() };
    assert!(ask.encoded_len() < 64 * 1024);
    let path = "/throttlekit.v1.RateLimiter/CheckMany";
    let answer = client.call::<CheckManyResponse>(path, &[], &ask).await;
    assert_eq!(answer.unwrap_err().code(), Code::InvalidArgument);
    survived(target).await;
}

#[tokio::test]
async fn leases_can_be_neither_guessed_nor_taken_from_another() {
    let foo = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
    let text = format!(
        "{{anonymous: [{{endpoints: [admit, check]}}], principals: {{foo: {{token_sha256: {foo}, allow: [{{endpoints: [admit]}}]}}}}}}"
    );
    let access = Access::of(&serde_saphyr::from_str::<AccessSpec>(&text).unwrap()).unwrap();
    let target = Target::start(ListenOptions::default(), access).await;
    let client = Client::connect(target.address).await.unwrap();
    let owner = [("authorization", "Bearer foo")];
    let ask = AdmitRequest { policy: "jobs".into(), key: "k".into(), ..AdmitRequest::default() };
    let path = "/throttlekit.v1.RateLimiter/Admit";
    let held: AdmitResponse = client.call(path, &owner, &ask).await.unwrap();
    let mut lease_ids: Vec<_> = (0..1_000_u32).map(|n| format!("{n:032x}")).collect();
    lease_ids.truncate(500);
    lease_ids.push(held.lease_id.clone());
    let guess = HeartbeatRequest { lease_ids };
    let path = "/throttlekit.v1.RateLimiter/Heartbeat";
    let heartbeat: HeartbeatResponse = client.call(path, &[], &guess).await.unwrap();
    assert!(heartbeat.live_ids.is_empty(), "{:?}", heartbeat.live_ids);
    let mine = HeartbeatRequest { lease_ids: vec![held.lease_id.clone()] };
    let heartbeat: HeartbeatResponse = client.call(path, &owner, &mine).await.unwrap();
    assert_eq!(heartbeat.live_ids, [held.lease_id]);
    survived(target).await;
}

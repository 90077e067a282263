use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

fn limits() -> Limits {
    Limits { abandoned_max: 4, ..Limits::default() }
}

fn watched(limits: &Limits) -> (Arc<Activity>, Watchdog, Instant) {
    let (activity, now) = (Activity::new(limits), Instant::now());
    activity.received_bytes.store(FIRST_BYTES, Ordering::Relaxed);
    (activity.clone(), Watchdog::new(activity, now), now)
}

#[test]
fn a_connection_that_says_nothing_is_closed_at_the_handshakes_time_and_not_before() {
    let limits = limits();
    let (activity, mut watch, now) = watched(&limits);
    activity.received_bytes.store(FIRST_BYTES - 1, Ordering::Relaxed);
    let tick = Duration::from_millis(1);
    assert_eq!(watch.judge(now + limits.handshake_max - tick, &limits), Verdict::Fine);
    assert_eq!(watch.judge(now + limits.handshake_max, &limits), Verdict::Mute);
}

#[test]
fn a_head_that_began_has_its_time_and_the_pause_before_it_has_the_time_of_the_idle() {
    let limits = limits();
    let (activity, tick) = (Activity::new(&limits), Duration::from_millis(1));
    let start = Instant::now();
    let mut watch = Watchdog::new(activity.clone(), start);
    activity.receive(b"GET / HTTP/1.1\r\nhost: a\r\n");
    assert_eq!(watch.judge(start, &limits), Verdict::Fine);
    assert_eq!(watch.judge(start + limits.header_read_max - tick, &limits), Verdict::Fine);
    assert_eq!(watch.judge(start + limits.header_read_max, &limits), Verdict::SlowHead);
    // It ends, and a body follows; then there is a pause.
    let asked = Exchange::begin(activity.clone());
    activity.receive(b"\r\na body");
    let later = start + limits.header_read_max * 2;
    assert_eq!(watch.judge(later, &limits), Verdict::Fine);
    activity.receive(b" and its end");
    drop(asked);
    assert_eq!(watch.judge(later + limits.header_read_max * 3, &limits), Verdict::Fine);
    activity.receive(b"G");
    let next = later + limits.header_read_max * 4;
    assert_eq!(watch.judge(next, &limits), Verdict::Fine);
    assert_eq!(watch.judge(next + limits.header_read_max, &limits), Verdict::SlowHead);
}

#[test]
fn bytes_of_http_2_are_no_head_however_they_are_cut() {
    let limits = limits();
    let (activity, start) = (Activity::new(&limits), Instant::now());
    let mut watch = Watchdog::new(activity.clone(), start);
    PREFACE.chunks(5).for_each(|bytes| activity.receive(bytes));
    activity.receive(b"frames");
    for seconds in [0, 20, 40] {
        assert_eq!(watch.judge(start + Duration::from_secs(seconds), &limits), Verdict::Fine);
    }
}

#[test]
fn a_connection_is_idle_only_while_nothing_is_asked() {
    let limits = limits();
    let (activity, mut watch, now) = watched(&limits);
    let asked = Exchange::begin(activity);
    let much_later = now + limits.idle_max * 3;
    assert_eq!(watch.judge(much_later, &limits), Verdict::Fine);
    drop(asked);
    assert_eq!(watch.judge(much_later + limits.idle_max / 2, &limits), Verdict::Fine);
    assert_eq!(watch.judge(much_later + limits.idle_max, &limits), Verdict::Idle);
}

#[test]
fn a_client_that_takes_nothing_stalls_and_one_that_waits_for_us_does_not() {
    let limits = limits();
    let (activity, mut watch, now) = watched(&limits);
    let mut asked = Exchange::begin(activity);
    asked.offer();
    assert_eq!(watch.judge(now + limits.stall_max / 2, &limits), Verdict::Fine);
    assert_eq!(watch.judge(now + limits.stall_max, &limits), Verdict::Stalled);
    asked.taken();
    assert_eq!(watch.judge(now + limits.stall_max * 3, &limits), Verdict::Fine);
}

#[test]
fn who_gives_up_most_of_what_it_asks_offends() {
    let activity = Activity::new(&limits());
    for _ in 0..3 {
        drop(Exchange::begin(activity.clone()));
    }
    assert!(activity.offended().now_or_never().is_none());
    drop(Exchange::begin(activity.clone()));
    assert!(activity.offended().now_or_never().is_some());
}

#[test]
fn who_gives_up_less_than_half_does_not_offend() {
    let activity = Activity::new(&limits());
    for turn in 0..300 {
        let mut asked = Exchange::begin(activity.clone());
        if turn % 3 != 0 {
            asked.finish();
        }
    }
    assert!(activity.offended().now_or_never().is_none());
}

/// Bytes that a client had sent before it saw the end. Left unread, they would reset its connection, and it would lose the
/// responses that it has not read.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_shut_down_reads_what_its_client_still_sends() {
    let (mut client, server) = tokio::io::duplex(16);
    let mut io = CountedIo::new(server, Activity::new(&Limits::default()));
    io.write_all(b"response").await.unwrap();
    let closing = tokio::spawn(async move { io.shutdown().await.map(|()| io) });
    // More than the pipe holds: this ends only if somebody reads.
    client.write_all(&[1; 1_000]).await.unwrap();
    let mut response = Vec::new();
    client.read_to_end(&mut response).await.unwrap();
    assert_eq!(response, b"response");
    assert!(!closing.is_finished(), "the client has not closed its side");
    drop(client);
    closing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_closes_nothing_or_sends_without_end_holds_no_connection_open() {
    let (_silent, server) = tokio::io::duplex(16);
    let begun = Instant::now();
    CountedIo::new(server, Activity::new(&Limits::default())).shutdown().await.unwrap();
    assert_eq!(begun.elapsed(), REST_FOR);

    let (mut busy, server) = tokio::io::duplex(4 << 10);
    let sending = tokio::spawn(async move { while busy.write_all(&[1; 1 << 10]).await.is_ok() {} });
    let begun = Instant::now();
    CountedIo::new(server, Activity::new(&Limits::default())).shutdown().await.unwrap();
    assert!(begun.elapsed() < REST_FOR);
    sending.await.unwrap();
}

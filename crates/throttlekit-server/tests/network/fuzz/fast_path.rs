//! The fast path of HTTP/1.1 answers as the library does.
//!
//! Each input is one to three requests, sent in one or two parts, on two connections: as the beginning of one, where the
//! fast path may answer it, and after a request that only the library serves.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use throttlekit_fuzz::mutate::Random;
use throttlekit_server::internals::engine::Backend;
use throttlekit_server::{Server, ServerOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::limits;
use super::replies::LAST_REQUEST;
use super::requests::{KEY, Requests};
use crate::fair::metric;

/// Reads of a response wait for the server, which may share two cores with whatever else runs.
const PATIENCE: Duration = Duration::from_secs(30);
const FOREIGN: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";
const TIMED: &[u8] = b"grpc-timeout";
const INPUTS: u64 = 4_000;
const AT_ONCE: usize = 32;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fast_path_answers_as_the_library_does() {
    let folder = tempfile::tempdir().unwrap();
    let policies = folder.path().join("policies.yaml");
    std::fs::write(&policies, file()).unwrap();
    let mut options = ServerOptions::new(policies, Backend::memory());
    let any = Some(([127, 0, 0, 1], 0).into());
    (options.http, options.metrics, options.limits) = (any, any, limits());
    let server = Server::start(options).await.unwrap();
    let at = server.http().unwrap();
    let (requests, mut running, mut seen) = (Requests::checks(), JoinSet::new(), [0; 2]);
    let mut note = |replies: String| {
        for (count, decided) in seen.iter_mut().zip(["\"allowed\":true", "429 Too Many Requests"]) {
            *count += replies.matches(decided).count();
        }
    };
    for number in 1..=INPUTS {
        let random = &mut Random::of(7, number);
        let mut input = requests.framed(random);
        match random.below(4) {
            0 => {}
            1 => input.extend(requests.framed(random)),
            2 => input = requests.mutated(random),
            _ => input = [input, requests.framed(random), requests.mutated(random)].concat(),
        }
        // The time that it takes decides about the response.
        if input.windows(TIMED.len()).any(|part| part.eq_ignore_ascii_case(TIMED)) {
            continue;
        }
        let split = if random.once_in(4) { random.place(input.len()) } else { input.len() };
        running.spawn(async move {
            let [ours, theirs] = [2 * number, 2 * number + 1].map(|key| keyed(&input, key));
            let (ours, theirs) = (ours.split_at(split), theirs.split_at(split));
            let (direct, late) = tokio::join!(replies(at, &[], ours), replies(at, FOREIGN, theirs));
            assert_eq!(direct, late, "input {number}: {:?}", String::from_utf8_lossy(&input));
            direct
        });
        if running.len() >= AT_ONCE {
            note(running.join_next().await.unwrap().unwrap());
        }
    }
    while let Some(replies) = running.join_next().await {
        note(replies.unwrap());
    }
    // Most mutations break a request, and one request in four is chunked.
    let [allowed, denied] = seen;
    let fast = metric(&server, "throttlekit_requests_fast_path_total{listener=\"http\"}").await as usize;
    println!("{allowed} checks were allowed and {denied} denied on each way, {fast} by the fast path");
    assert!(allowed > 500 && denied > 300 && fast > 1_000, "{allowed} {denied} {fast}");
    server.stop().await;
}

/// Returns an input with a key of its own, so that its decisions do not depend on other inputs.
fn keyed(input: &[u8], key: u64) -> Vec<u8> {
    let (mut input, key) = (input.to_vec(), format!("k{key:07}"));
    while let Some(at) = input.windows(KEY.len()).position(|part| part == KEY) {
        input[at..at + KEY.len()].copy_from_slice(key.as_bytes());
    }
    input
}

/// A policy for each letter that inputs name. One of them decides no checks.
fn file() -> String {
    let mut file = "version: 1\npolicies:\n  x: {concurrency: {limit: 5}}\n".to_owned();
    for letter in 'a'..='w' {
        writeln!(file, "  {letter}: {{rate: {{algorithm: fixed_window, limit: 1000000000, per: 1d}}}}")
            .unwrap();
    }
    file
}

/// Returns the responses to an input after the beginning of a connection, without the one to the beginning.
async fn replies(at: SocketAddr, begin: &[u8], (first, second): (&[u8], &[u8])) -> String {
    let mut tcp = TcpStream::connect(at).await.unwrap();
    tcp.set_nodelay(true).unwrap();
    // A server that rejects an input may close the connection before all of it was sent.
    let _ = tcp.write_all(&[begin, first].concat()).await;
    if !second.is_empty() {
        sleep(Duration::from_millis(2)).await;
    }
    let _ = tcp.write_all(&[second, LAST_REQUEST].concat()).await;
    let mut bytes = Vec::new();
    let _ = timeout(PATIENCE, tcp.read_to_end(&mut bytes)).await.expect("the server closes the connection");
    let text = String::from_utf8_lossy(&bytes);
    comparable(if begin.is_empty() { &text } else { text.split_once("\"memory\"}").expect("health").1 })
}

/// Returns responses without what time and other requests change: dates, waits, and the numbers in bodies. A length that
/// is not that of its body shows, as the next response is then no longer found.
fn comparable(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((head, after)) = rest.split_once("\r\n\r\n") {
        let mut length = 0;
        for line in head.split("\r\n") {
            match line.split_once(": ") {
                Some(("date", _)) => {}
                Some(("content-length", bytes)) => length = bytes.parse().unwrap(),
                Some((name @ "retry-after", _)) => plain.push_str(name),
                _ => plain.push_str(line),
            }
            plain.push('\n');
        }
        let (body, next) = after.split_at_checked(length).unwrap_or((after, ""));
        plain.extend(body.chars().filter(|letter| !letter.is_ascii_digit()));
        plain.push('\n');
        rest = next;
    }
    plain + rest
}

//! Sessions decide as the unary methods do: the same limits, rights and fair use.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message;
use throttlekit_conformance::Dice;
use throttlekit_proto::v1::session_call::Call;
use throttlekit_proto::v1::{
    CheckRequest, CheckResponse, DebitRequest, DebitResponse, PeekRequest, PeekResponse,
};
use throttlekit_server::{Server, ServerOptions, StoreOptions, StoreUrl};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::client::{Client, Failure};
use crate::fair::{metric, serve};
use crate::own_redis::OwnRedis;
use crate::session_stream::{Outcome, Stream, check, code};
use crate::target::POLICIES;

/// Nothing is replenished while a test runs.
const RANDOM: &str = "
version: 1
policies:
  api: {rate: {limit: 40, per: 100d}}
  window: {rate: {algorithm: fixed_window, limit: 30, per: 100d}}
  orgs: {rate: [{limit: 40, per: 100d}, {name: org, algorithm: fixed_window, limit: 60, per: 100d, by: 1}]}
  tokens: {cost: {budget: 500, per: 100d}}
  slots: {concurrency: {limit: 3}}
  shadow: {shadow: true, rate: {limit: 5, per: 100d}}
";
const MANY: usize = 1_100;
/// Longer than any test waits.
const HANGS: Duration = Duration::from_secs(20);

/// A server over a Redis that answers nothing from now on.
pub(crate) async fn serve_hung(
    change: impl FnOnce(&mut ServerOptions),
) -> (Server, tempfile::TempDir, OwnRedis) {
    let redis = OwnRedis::start().await;
    let mut within = StoreOptions::default();
    within.deadline = Some(HANGS);
    let store = StoreUrl::parse(&redis.url()).unwrap().connect(&within).await.unwrap();
    let (server, file) = serve(|options| {
        options.engine.backend = store;
        options.limits.grace = Duration::from_secs(2);
        change(options);
    })
    .await;
    let client = Client::connect(server.grpc()).await.unwrap();
    assert!(client.check("api", "k").await.is_ok(), "before it hangs");
    let mut tcp = TcpStream::connect(redis.url().trim_start_matches("redis://")).await.unwrap();
    tcp.write_all(b"CLIENT PAUSE 60000 ALL\r\n").await.unwrap();
    let mut answer = [0; 5];
    tcp.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"+OK\r\n");
    (server, file, redis)
}

fn random_call(dice: &mut Dice, round: u64) -> Call {
    let mut pick = |of: &[&str]| of[dice.below(of.len() as u64) as usize].to_owned();
    let kind = pick(&["check", "check", "check", "debit", "peek"]);
    let key = pick(&["a", "b", "c"]);
    match kind.as_str() {
        "check" => {
            let policy = pick(&["api", "window", "orgs", "slots", "shadow", "unknown"]);
            let keys = if pick(&["", "", "x"]).is_empty() { Vec::new() } else { vec![pick(&["x", "y"])] };
            let cost = [0, 1, 2, 5, 50, -1][dice.below(6) as usize];
            Call::Check(CheckRequest { policy, key, cost, keys })
        }
        "debit" => {
            let policy = pick(&["tokens", "tokens", "slots"]);
            let stream = vec![7; dice.below(2) as usize * 16].into();
            let tokens = [0, 1, 30, -5][dice.below(4) as usize];
            // Numbers go up with the rounds; within a round the same debit is repeated.
            Call::Debit(DebitRequest {
                policy,
                key,
                tokens,
                stream,
                number: round,
                ..DebitRequest::default()
            })
        }
        // Of a key that nothing charges: the order within a message is open between kinds.
        _ => Call::Peek(PeekRequest {
            policy: pick(&["api", "slots", "none"]),
            key: "peeked".into(),
            keys: Vec::new(),
        }),
    }
}

async fn unary(client: &Client, call: &Call) -> Outcome {
    let service = "/throttlekit.v1.RateLimiter";
    let decided = match call {
        Call::Check(ask) => {
            let answer = client.call::<CheckResponse>(&format!("{service}/Check"), &[], ask).await;
            answer.map(|answer| answer.decision)
        }
        Call::Debit(ask) => {
            let answer = client.call::<DebitResponse>(&format!("{service}/Debit"), &[], ask).await;
            answer.map(|answer| answer.decision)
        }
        Call::Peek(ask) => {
            let answer = client.call::<PeekResponse>(&format!("{service}/Peek"), &[], ask).await;
            answer.map(|answer| answer.decision)
        }
    };
    match decided {
        Ok(decision) => Ok(decision.expect("a decision")),
        Err(Failure::Status(code)) => Err((code, String::new())),
        Err(Failure::Lost(why)) => panic!("{why}"),
    }
}

/// An outcome without times and texts, which differ from server to server.
fn comparable(outcome: Outcome) -> Outcome {
    match outcome {
        Ok(mut decision) => {
            (decision.reset_at, decision.retry_after_ms) = (0, 0);
            Ok(decision)
        }
        Err((code, _)) => Err((code, String::new())),
    }
}

#[tokio::test]
async fn sessions_decide_random_calls_as_unary_methods_do() {
    let policies = |options: &mut ServerOptions| {
        std::fs::write(&options.policies, RANDOM).unwrap();
    };
    let ((one, _file), (other, _other_file)) = (serve(policies).await, serve(policies).await);
    let mut session = Stream::open(&Client::connect(one.grpc()).await.unwrap()).await.unwrap();
    let client = Client::connect(other.grpc()).await.unwrap();
    let (mut dice, mut seen) = (Dice::new(22), BTreeMap::<i32, u32>::new());
    for round in 1..=120 {
        let calls: Vec<_> = (0..1 + dice.below(70)).map(|_| random_call(&mut dice, round)).collect();
        let decided = session.call(calls.clone(), 0).await.unwrap();
        for (call, decided) in calls.iter().zip(decided) {
            *seen.entry(code(&decided) as i32).or_default() += 1;
            assert_eq!(comparable(decided), comparable(unary(&client, call).await), "{round}: {call:?}");
        }
    }
    let codes: Vec<_> = seen.keys().map(|code| Code::from_i32(*code)).collect();
    assert_eq!(codes, [Code::Ok, Code::InvalidArgument, Code::NotFound, Code::Unimplemented], "{seen:?}");
    one.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn calls_beyond_the_window_are_refused_and_the_session_goes_on() {
    let (server, _file) = serve(|_| ()).await;
    let mut session = Stream::open(&Client::connect(server.grpc()).await.unwrap()).await.unwrap();
    let window = usize::try_from(session.window).unwrap();
    assert_eq!(window, 1_000);
    let outcomes = session.call((0..MANY).map(|_| check("api", "k")).collect(), 0).await.unwrap();
    let (within, beyond) = outcomes.split_at(window);
    assert!(within.iter().all(|outcome| code(outcome) == Code::Ok));
    assert!(beyond.iter().all(|outcome| code(outcome) == Code::ResourceExhausted), "{:?}", beyond[0]);
    assert_eq!(code(&session.call(vec![check("api", "k")], 0).await.unwrap()[0]), Code::Ok);
    let decisions = metric(&server, "throttlekit_principal_decisions_total").await;
    assert_eq!(decisions, window as f64 + 1.0, "refused calls are not decided");
    server.stop().await;
}

#[tokio::test]
async fn a_reload_that_removes_a_right_or_a_caller_applies_to_the_next_message() {
    let digest = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
    let file = |policies: &str, name: &str, digest: &str| {
        format!(
            "{POLICIES}access: {{principals: {{{name}: {{token_sha256: {digest}, \
             allow: [{{endpoints: [check], policies: [{policies}]}}]}}}}}}\n"
        )
    };
    let (server, directory) =
        serve(|options| std::fs::write(&options.policies, file("api, chat", "foo", digest)).unwrap()).await;
    let path = directory.path().join("policies.yaml");
    let client = Client::connect(server.grpc()).await.unwrap();
    assert_eq!(Stream::open(&client).await.err().unwrap().code(), Code::Unauthenticated);
    let mut session = Stream::open_as(&client, &[("authorization", "Bearer foo")]).await.unwrap();
    let calls = || vec![check("api", "k"), check("chat", "k"), check("lent", "k")];
    let codes = |outcomes: Vec<Outcome>| outcomes.iter().map(code).collect::<Vec<_>>();
    let (ok, denied, unknown) = (Code::Ok, Code::PermissionDenied, Code::Unauthenticated);
    assert_eq!(codes(session.call(calls(), 0).await.unwrap()), [ok, ok, denied]);
    std::fs::write(&path, file("chat, lent", "foo", digest)).unwrap();
    server.look_now().await;
    assert_eq!(codes(session.call(calls(), 0).await.unwrap()), [denied, ok, ok]);
    std::fs::write(&path, file("chat", "bar", &"ab".repeat(32))).unwrap();
    server.look_now().await;
    assert_eq!(codes(session.call(calls(), 0).await.unwrap()), [unknown; 3]);
    assert_eq!(session.next().await.err().unwrap().code(), unknown, "and the session ends");
    server.stop().await;
}

#[tokio::test]
async fn calls_that_are_not_decided_by_their_deadline_get_no_decision() {
    let (server, _file, redis) = serve_hung(|_| ()).await;
    let mut session = Stream::open(&Client::connect(server.grpc()).await.unwrap()).await.unwrap();
    let begun = Instant::now();
    let outcomes = session.call((0..40).map(|_| check("api", "k")).collect(), 200).await.unwrap();
    assert!(outcomes.iter().all(|outcome| code(outcome) == Code::DeadlineExceeded), "{outcomes:?}");
    let took = begun.elapsed();
    assert!((Duration::from_millis(200)..Duration::from_secs(5)).contains(&took), "{took:?}");
    assert_eq!(metric(&server, "throttlekit_deciding").await, 0.0);
    drop((session, redis));
    server.stop().await;
}

/// A caller with as many calls as its sessions take, and another one that makes one at a time.
#[tokio::test]
async fn sessions_of_one_caller_keep_no_other_from_its_decisions() {
    let (server, _file) = serve(|options| options.limits.requests_max = 8).await;
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let client = Client::connect(server.grpc()).await.unwrap();
        for _ in 0..4 {
            let mut session = Stream::open(&client).await.unwrap();
            flood.spawn(async move {
                loop {
                    session.call((0..1_000).map(|_| check("api", "k")).collect(), 0).await.unwrap();
                }
            });
        }
    }
    let client = Client::connect(server.grpc()).await.unwrap();
    for turn in 0..200 {
        let answer = timeout(Duration::from_secs(5), client.check("chat", "honest")).await.expect("in time");
        assert!(answer.is_ok(), "check {turn} of an honest client: {:?}", answer.err());
    }
    assert!(metric(&server, "throttlekit_principal_decisions_total").await > 2_000.0, "they were busy");
    flood.shutdown().await;
    server.stop().await;
}

#[tokio::test]
async fn a_caller_has_a_limited_number_of_sessions_and_unary_methods_beyond() {
    let (server, _file) = serve(|_| ()).await;
    let (mut open, mut refused) = (Vec::new(), 0);
    for _ in 0..12 {
        let client = Client::connect(server.grpc()).await.unwrap();
        for _ in 0..100 {
            match Stream::open(&client).await {
                Ok(session) => open.push(session),
                Err(failure) => {
                    assert_eq!(failure.code(), Code::ResourceExhausted);
                    refused += 1;
                }
            }
        }
    }
    assert!((256..1_024).contains(&open.len()) && refused > 0, "{} open, {refused} refused", open.len());
    assert_eq!(metric(&server, "throttlekit_sessions").await, open.len() as f64);
    assert!(Client::connect(server.grpc()).await.unwrap().check("api", "k").await.is_ok());
    assert_eq!(code(&open[0].call(vec![check("api", "k")], 0).await.unwrap()[0]), Code::Ok);
    drop(open);
    is_idle(&server).await;
    server.stop().await;
}

/// Waits until nothing is held for anybody.
pub(crate) async fn is_idle(server: &Server) {
    let gauges = ["deciding", "waiting", "body_bytes", "sessions"];
    let idle = async {
        for name in gauges {
            while metric(server, &format!("throttlekit_{name}")).await > 0.0 {
                sleep(Duration::from_millis(10)).await;
            }
        }
    };
    timeout(Duration::from_secs(10), idle).await.expect("nothing is left");
}

#[tokio::test]
async fn what_cannot_be_decoded_ends_the_session() {
    let (server, _file) = serve(|_| ()).await;
    let client = Client::connect(server.grpc()).await.unwrap();
    let long = CheckRequest { key: "k".repeat(70_000), ..CheckRequest::default() };
    for (message, expected) in
        [(vec![0xff; 20], Code::InvalidArgument), (long.encode_to_vec(), Code::OutOfRange)]
    {
        let mut session = Stream::open(&client).await.unwrap();
        session.send.send_data(crate::client::framed(&message), false).unwrap();
        assert_eq!(session.next().await.err().unwrap().code(), expected);
    }
    is_idle(&server).await;
    server.stop().await;
}

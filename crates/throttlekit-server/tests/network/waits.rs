//! Waiting in `Admit`, over the wire: order, bounds, and clients that leave while they wait.

use std::net::SocketAddr;
use std::time::Duration;

use throttlekit_proto::v1::{
    AdmitRequest, AdmitResponse, Decision, PeekRequest, PeekResponse, ReleaseRequest, ReleaseResponse, Retry,
};
use throttlekit_server::{Server, ServerOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::client::{Client, Failure};
use crate::fair::serve;

const POLICIES: &str = "
version: 1
policies:
  paced: {rate: {limit: 10, per: 1s, burst: 1}, wait: {max: 5s}}
  slow: {rate: {limit: 1, per: 1h}, wait: {max: 5s}}
  slots: {concurrency: {limit: 1, lease_for: 60s}, wait: {max: 5s, queue: 30}}
  both: {concurrency: {limit: 1, lease_for: 60s}, rate: {limit: 100, per: 100d}, wait: {max: 5s}}
  short: {concurrency: {limit: 1, lease_for: 60s}, wait: {max: 50ms, queue: 2}}
  at_once: {concurrency: {limit: 1, lease_for: 60s}}
  other: {rate: {limit: 1000, per: 1s}}
";
const ADMIT: &str = "/throttlekit.v1.RateLimiter/Admit";
/// Longer than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(20);
const WAIT: i64 = 5_000;

async fn start(change: impl FnOnce(&mut ServerOptions)) -> (Server, tempfile::TempDir) {
    serve(|options| {
        std::fs::write(&options.policies, POLICIES).unwrap();
        change(options);
    })
    .await
}

fn work(policy: &str, key: &str, wait_ms: i64, priority: u32) -> AdmitRequest {
    let (policy, key) = (policy.into(), key.into());
    AdmitRequest { policy, key, wait_ms, priority, ..AdmitRequest::default() }
}

async fn admit(client: &Client, request: &AdmitRequest) -> AdmitResponse {
    client.call(ADMIT, &[], request).await.unwrap()
}

fn decision(response: &AdmitResponse) -> &Decision {
    response.decision.as_ref().unwrap()
}

fn allowed(response: &AdmitResponse) -> bool {
    decision(response).allowed
}

async fn release(client: &Client, admitted: &AdmitResponse, actual_cost: Option<i64>) {
    let lease_id = admitted.lease_id.clone();
    let request = ReleaseRequest { lease_id, actual_cost, ..ReleaseRequest::default() };
    let _: ReleaseResponse = client.call("/throttlekit.v1.RateLimiter/Release", &[], &request).await.unwrap();
}

/// Returns the number of calls that wait for a policy.
fn waiting(server: &Server, policy: &str) -> u64 {
    let policies = server.engine().policies();
    policies.iter().find(|known| known.name == policy).unwrap().waiting
}

async fn until_waiting(server: &Server, policy: &str, calls: u64) {
    let are = async {
        while waiting(server, policy) != calls {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let why = || format!("{} wait, not {calls}", waiting(server, policy));
    timeout(SOON, are).await.unwrap_or_else(|_| panic!("{}", why()));
}

/// Sends a call in a task of its own, and returns once it waits.
async fn waits(
    server: &Server,
    client: &Client,
    request: AdmitRequest,
) -> JoinHandle<Result<AdmitResponse, Failure>> {
    let (before, policy) = (waiting(server, &request.policy), request.policy.clone());
    let client = client.clone();
    let call = tokio::spawn(async move { client.call(ADMIT, &[], &request).await });
    until_waiting(server, &policy, before + 1).await;
    call
}

/// A client that can be killed with its connection.
struct Mortal {
    client: Client,
    connection: JoinHandle<()>,
}

impl Mortal {
    async fn connect(address: SocketAddr) -> Self {
        let tcp = TcpStream::connect(address).await.unwrap();
        let (send, connection) = h2::client::handshake(tcp).await.unwrap();
        let connection = tokio::spawn(async move { drop(connection.await) });
        Self { client: Client::with(send), connection }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_admitted_at_the_pace_of_the_rate() {
    let (server, _file) = start(|_| {}).await;
    let client = Client::connect(server.grpc()).await.unwrap();
    let start = Instant::now();
    assert!(allowed(&admit(&client, &work("paced", "a", WAIT, 0)).await));
    let (tell, mut told) = mpsc::unbounded_channel();
    for _ in 0..5 {
        let (client, tell) = (client.clone(), tell.clone());
        tokio::spawn(async move {
            let response = admit(&client, &work("paced", "a", WAIT, 0)).await;
            tell.send((response, start.elapsed())).unwrap();
        });
    }
    for number in 1..=5 {
        let (response, at) = timeout(SOON, told.recv()).await.unwrap().unwrap();
        assert!(allowed(&response), "{response:?}");
        let due = Duration::from_millis(100) * number - Duration::from_millis(1);
        assert!(at >= due, "number {number} after {at:?}");
        assert!(response.lease_id.is_empty(), "a rate holds nothing");
    }
    assert_eq!(waiting(&server, "paced"), 0);
    assert!(allowed(&admit(&client, &work("slow", "a", 0, 0)).await));
    let denied = admit(&client, &work("slow", "a", 0, 0)).await;
    assert!(!allowed(&denied) && denied.waited_ms == 0, "without a wait it is decided at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_most_urgent_class_goes_first_and_none_starves() {
    let (server, _file) = start(|_| {}).await;
    let client = Client::connect(server.grpc()).await.unwrap();
    let mut held = admit(&client, &work("slots", "x", 0, 0)).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    // The first one to wait has its turn at the slot; the others are in the queue behind it.
    let classes = [2, 2, 0, 0, 0, 0, 0, 0, 1];
    for (number, class) in classes.into_iter().enumerate() {
        let (client, tell) = (client.clone(), tell.clone());
        let before = waiting(&server, "slots");
        tokio::spawn(async move {
            let request = work("slots", &number.to_string(), WAIT, class);
            tell.send((number, admit(&client, &request).await)).unwrap();
        });
        until_waiting(&server, "slots", before + 1).await;
    }
    let mut order = Vec::new();
    for _ in classes {
        release(&client, &held, None).await;
        let (number, response) = timeout(SOON, told.recv()).await.unwrap().unwrap();
        assert!(allowed(&response), "{response:?}");
        order.push(number);
        held = response;
    }
    // One turn in four goes to the longest waiter: number 1 has left after four.
    assert_eq!(order, [0, 2, 3, 1, 4, 5, 6, 7, 8], "one queue for all keys of a limit that all share");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_clients_leave_nothing_behind() {
    let (server, _file) = start(|_| {}).await;
    let client = Client::connect(server.grpc()).await.unwrap();
    for policy in ["slots", "both"] {
        let held = admit(&client, &work(policy, "k", 0, 0)).await;
        let mut mortals = Vec::new();
        for _ in 0..20 {
            let mortal = Mortal::connect(server.grpc()).await;
            let call = waits(&server, &mortal.client, work(policy, "k", WAIT, 0)).await;
            mortals.push((mortal, call));
        }
        let (survivor, survives) = mortals.swap_remove(11);
        for (mortal, _) in &mortals {
            mortal.connection.abort();
        }
        until_waiting(&server, policy, 1).await;
        release(&client, &held, Some(0)).await;
        let admitted = timeout(SOON, survives).await.unwrap().unwrap().unwrap();
        assert!(allowed(&admitted), "{policy}: {admitted:?}");
        assert_eq!(waiting(&server, policy), 0);
        let guard = server.engine().guards().into_iter().find(|guard| guard.policy == policy).unwrap();
        assert_eq!(guard.in_flight, 1, "{policy}: only the survivor has a slot");
        release(&survivor.client, &admitted, Some(0)).await;
    }
    // Neither the killed ones nor those that returned what they reserved were charged.
    let next = admit(&client, &work("both", "k", 0, 0)).await;
    assert_eq!(decision(&next).remaining, 0, "of one slot");
    let peek = PeekRequest { policy: "both".into(), key: "k".into(), keys: vec![] };
    let left: PeekResponse = client.call("/throttlekit.v1.RateLimiter/Peek", &[], &peek).await.unwrap();
    let left = left.decision.unwrap().remaining;
    assert!((97..=99).contains(&left), "20 were killed, and {left} of 100 are left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_deadline_passes_leaves_the_queue() {
    let (server, _file) = start(|_| {}).await;
    let client = Client::connect(server.grpc()).await.unwrap();
    let held = admit(&client, &work("slots", "k", 0, 0)).await;
    let request = work("slots", "k", WAIT, 0);
    let late = client.call::<AdmitResponse>(ADMIT, &[("grpc-timeout", "100m")], &request);
    assert_eq!(late.await.unwrap_err().code(), Code::DeadlineExceeded);
    until_waiting(&server, "slots", 0).await;
    release(&client, &held, None).await;
    assert!(allowed(&admit(&client, &work("slots", "k", 0, 0)).await), "the slot is free");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_waiter_too_many_is_denied_at_once_and_a_wait_ends_at_the_maximum_of_the_policy() {
    let (server, _file) = start(|_| {}).await;
    let client = Client::connect(server.grpc()).await.unwrap();
    let _held = admit(&client, &work("short", "k", 0, 0)).await;
    let start = Instant::now();
    let over = admit(&client, &work("short", "k", WAIT, 0)).await;
    let (over, waited) = (decision(&over).clone(), over.waited_ms);
    assert!(!over.allowed && over.retry() == Retry::OnRelease && over.binding_axis == "concurrency");
    assert!(
        start.elapsed() >= Duration::from_millis(50) && waited >= 49,
        "the policy allows 50 ms: {waited}"
    );

    let _slot = admit(&client, &work("slots", "k", 0, 0)).await;
    let mut calls = Vec::new();
    for _ in 0..30 {
        calls.push(waits(&server, &client, work("slots", "k", WAIT, 0)).await);
    }
    let full = admit(&client, &work("slots", "k", WAIT, 0)).await;
    assert!(!allowed(&full) && full.waited_ms == 0, "{full:?}");
    assert_eq!((decision(&full).retry(), decision(&full).retry_after_ms), (Retry::OnRelease, 1_000));
    let eager = admit(&client, &work("slots", "k", 0, 0)).await;
    assert!(!allowed(&eager) && waiting(&server, "slots") == 30);
    calls.iter().for_each(JoinHandle::abort);
    until_waiting(&server, "slots", 0).await;

    // A wait that is known to be in vain is not begun.
    assert!(allowed(&admit(&client, &work("slow", "k", 0, 0)).await));
    let never = admit(&client, &work("slow", "k", WAIT, 0)).await;
    assert!(!allowed(&never) && never.waited_ms == 0, "{never:?}");
    let retry = decision(&never).retry_after_ms;
    assert!((3_500_000..=3_600_000).contains(&retry), "in an hour: {retry}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_without_wait_decides_at_once_whatever_a_call_asks_for() {
    let (server, _file) = start(|_| {}).await;
    let client = Client::connect(server.grpc()).await.unwrap();
    let _held = admit(&client, &work("at_once", "k", WAIT, 0)).await;
    let denied = timeout(Duration::from_secs(4), admit(&client, &work("at_once", "k", WAIT, 0))).await;
    assert!(!allowed(&denied.unwrap()));
    let rate = client.call::<AdmitResponse>(ADMIT, &[], &work("other", "k", WAIT, 0)).await;
    assert_eq!(rate.unwrap_err().code(), Code::Unimplemented, "a rate alone holds nothing");
    let wrong = client.call::<AdmitResponse>(ADMIT, &[], &work("slots", "k", -1, 0)).await;
    assert_eq!(wrong.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_calls_take_no_turns_from_others() {
    let (server, _file) = start(|options| options.limits.requests_max = 2).await;
    let client = Client::connect(server.grpc()).await.unwrap();
    let _held = admit(&client, &work("slots", "k", 0, 0)).await;
    let mut calls = Vec::new();
    for _ in 0..20 {
        calls.push(waits(&server, &client, work("slots", "k", WAIT, 0)).await);
    }
    let other = Client::connect(server.grpc()).await.unwrap();
    let decided = timeout(Duration::from_secs(4), other.check("other", "k")).await;
    assert!(decided.unwrap().unwrap().decision.unwrap().allowed, "20 wait, and 2 may be decided at a time");
    calls.iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_server_ends_waits() {
    let (server, _file) = start(|_| {}).await;
    let client = Client::connect(server.grpc()).await.unwrap();
    let _held = admit(&client, &work("slots", "k", 0, 0)).await;
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(waits(&server, &client, work("slots", "k", WAIT, 0)).await);
    }
    let start = Instant::now();
    server.begin_draining();
    for call in calls {
        let denied = timeout(SOON, call).await.unwrap().unwrap().unwrap();
        assert!(!allowed(&denied), "{denied:?}");
        assert_eq!(decision(&denied).retry(), Retry::OnRelease);
    }
    assert!(!allowed(&admit(&client, &work("slots", "k", WAIT, 0)).await), "nobody waits any more");
    assert!(start.elapsed() < Duration::from_secs(4), "before the maximum wait: {:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn http_calls_wait_as_well() {
    let (server, _file) = start(|_| {}).await;
    let client = Client::connect(server.grpc()).await.unwrap();
    let held = admit(&client, &work("slots", "k", 0, 0)).await;
    let address = server.http().unwrap();
    let post = tokio::spawn(async move {
        let mut tcp = TcpStream::connect(address).await.unwrap();
        let body = r#"{"policy":"slots","key":"k","wait_ms":5000,"priority":1}"#;
        let head = format!(
            "POST /v1/admit HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        tcp.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await.unwrap();
        answer
    });
    until_waiting(&server, "slots", 1).await;
    sleep(Duration::from_millis(20)).await;
    release(&client, &held, None).await;
    let answer = timeout(SOON, post).await.unwrap().unwrap();
    let body: serde_json::Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(body["decision"]["allowed"], true, "{answer}");
    assert!(body["waited_ms"].as_u64().unwrap() >= 20, "{answer}");
}

//! Calls of concurrent callers over one session per connection, and without one where there is none.

use std::net::SocketAddr;
use std::time::Duration;

use throttlekit::store::{DebitId, random_name};
use throttlekit::{Guarantee, StoreError};
use throttlekit_client::{Client, RemotePolicy};
use throttlekit_server::internals::engine::Backend;
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::common::{Running, client_of, runtime};
use crate::session_server::{Does, Stub};

const DEADLINE: Duration = Duration::from_millis(300);
const SOON: Duration = Duration::from_secs(20);

fn policy_at(address: SocketAddr) -> (Client, RemotePolicy) {
    let client = client_of(address).deadline(DEADLINE).breaker(1_000, DEADLINE).build().unwrap();
    (client.clone(), client.policy("api"))
}

/// Makes calls until one was sent over a session.
async fn warm_up(stub: &Stub, policy: &RemotePolicy) {
    let used = async {
        while stub.calls() == 0 {
            let _ = policy.check("first").await;
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, used).await.expect("a session is opened");
}

/// Waits until no call is in flight.
async fn is_idle(client: &Client) {
    let idle = async {
        while client.stats().in_flight > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, idle).await.expect("nothing is left");
}

#[test]
fn calls_use_the_session_once_it_is_open() {
    runtime().block_on(async {
        let (stub, address) = Stub::serve(Does::Allows).await;
        let (client, api) = policy_at(address);
        assert!(api.check("alice").await.unwrap().allowed, "the first call does not wait for it");
        assert_eq!(stub.unary(), 1);
        warm_up(&stub, &api).await;
        let (unary, calls) = (stub.unary(), stub.calls());
        let mut all = tokio::task::JoinSet::new();
        for number in 0..500 {
            let api = api.clone();
            all.spawn(async move {
                let answer = match number % 2 {
                    0 => api.check("alice").await,
                    _ => api.debit("alice", DebitId { stream: random_name(), number: 1 }).await,
                };
                answer.unwrap()
            });
        }
        for answer in all.join_all().await {
            assert_eq!((answer.allowed, answer.remaining, answer.guarantee), (true, 9, Guarantee::Exact));
        }
        assert_eq!((stub.unary(), stub.calls(), stub.opened()), (unary, calls + 500, 1));
        is_idle(&client).await;
    });
}

#[test]
fn a_server_without_sessions_is_asked_for_one_once() {
    runtime().block_on(async {
        let (stub, address) = Stub::serve(Does::Unsupported).await;
        let (_, api) = policy_at(address);
        for _ in 0..50 {
            assert!(api.check("alice").await.unwrap().allowed);
            sleep(Duration::from_millis(2)).await;
        }
        assert_eq!((stub.opened(), stub.unary(), stub.calls()), (1, 50, 0));
    });
}

#[test]
fn sessions_can_be_turned_off() {
    runtime().block_on(async {
        let (stub, address) = Stub::serve(Does::Allows).await;
        let api = client_of(address).sessions(false).build().unwrap().policy("api");
        for _ in 0..10 {
            assert!(api.check("alice").await.unwrap().allowed);
        }
        assert_eq!((stub.opened(), stub.unary()), (0, 10));
    });
}

#[test]
fn the_status_of_a_call_is_that_of_the_unary_method() {
    runtime().block_on(async {
        let table = [
            (Code::NotFound, StoreError::rejected("refused")),
            (Code::PermissionDenied, StoreError::rejected("refused")),
            (Code::Internal, StoreError::misconfigured("refused")),
            (Code::ResourceExhausted, StoreError::unavailable("refused")),
        ];
        for (code, expected) in table {
            let (stub, address) = Stub::serve(Does::Refuses(code)).await;
            let (client, api) = policy_at(address);
            warm_up(&stub, &api).await;
            assert_eq!(api.check("alice").await.unwrap_err(), expected, "{code:?}");
            assert!(!client.stats().open);
        }
    });
}

#[test]
fn calls_that_a_leaving_server_did_not_decide_are_made_again() {
    runtime().block_on(async {
        let (stub, address) = Stub::serve(Does::Leaves).await;
        let (client, api) = policy_at(address);
        warm_up(&stub, &api).await;
        for _ in 0..100 {
            let answer = api.check("alice").await.unwrap();
            assert!(answer.allowed && answer.outage.is_none(), "{answer:?}");
            sleep(Duration::from_millis(2)).await;
        }
        assert!(stub.opened() > 1, "another session is opened after a while");
        is_idle(&client).await;
    });
}

#[test]
fn calls_of_a_session_that_fails_are_not_made_again() {
    runtime().block_on(async {
        let (stub, address) = Stub::serve(Does::Fails).await;
        let (client, api) = policy_at(address);
        api.check("alice").await.unwrap();
        let failed = async {
            loop {
                let (unary, calls) = (stub.unary(), stub.calls());
                let answer = api.check("alice").await.unwrap();
                if stub.calls() > calls {
                    // A check may have been charged.
                    assert!(answer.outage.is_some() && stub.unary() == unary, "{answer:?}");
                    return;
                }
                assert!(answer.outage.is_none());
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(SOON, failed).await.expect("a session was used");
        assert!(api.check("alice").await.unwrap().outage.is_none(), "the next call is made without it");
        is_idle(&client).await;
    });
}

#[test]
fn a_silent_session_costs_a_deadline_and_callers_that_give_up_leave_nothing_behind() {
    runtime().block_on(async {
        let (stub, address) = Stub::serve(Does::Hangs).await;
        let (client, api) = policy_at(address);
        let opened = async {
            while stub.opened() == 0 {
                api.check("alice").await.unwrap();
            }
        };
        timeout(SOON, opened).await.expect("a session is opened");
        // Until it is detected here, calls are made without it.
        let silent = async {
            while api.check("alice").await.unwrap().outage.is_none() {
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(SOON, silent).await.expect("a call has no response");
        let given_up = (0..50).map(|_| timeout(Duration::from_millis(1), api.check("alice")));
        let given_up: Vec<_> = given_up.collect();
        for one in given_up {
            let _ = one.await;
        }
        is_idle(&client).await;
    });
}

/// Callers on runtimes of their own, some of which end at once.
#[test]
fn callers_of_several_runtimes_share_a_session_and_no_unit_is_lost_or_invented() {
    let server = Running::start(
        "  api: {rate: {algorithm: fixed_window, limit: 3000, per: 100d}}\n",
        Backend::memory(),
    );
    let client = server.client().build().unwrap();
    let allowed: u64 = std::thread::scope(|scope| {
        let thread = || {
            let api = client.policy("api");
            scope.spawn(move || {
                let mut allowed = 0;
                for _ in 0..10 {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    let local = tokio::task::LocalSet::new();
                    allowed += runtime.block_on(local.run_until(async {
                        let check = |_| {
                            let api = api.clone();
                            tokio::task::spawn_local(async move { api.check("k").await.unwrap() })
                        };
                        let all: Vec<_> = (0..100).map(check).collect();
                        let mut allowed = 0;
                        for one in all {
                            let answer = one.await.unwrap();
                            assert!(answer.outage.is_none(), "{answer:?}");
                            allowed += u64::from(answer.allowed);
                        }
                        allowed
                    }));
                }
                allowed
            })
        };
        let threads: Vec<_> = (0..4).map(|_| thread()).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(allowed, 3_000, "of 4,000 calls");
}

#[test]
fn a_recovered_server_gets_calls_and_a_session_again() {
    let mut server = Running::start("  api: {rate: {limit: 100000, per: 1d}}\n", Backend::memory());
    let runtime = runtime();
    let client = server.client().deadline(DEADLINE).breaker(3, Duration::from_millis(50)).build().unwrap();
    let api = client.policy("api");
    for round in 0..2 {
        runtime.block_on(async {
            let served = async {
                // Enough for a session to be opened in between.
                let mut answered = 0;
                while answered < 100 {
                    answered += u32::from(api.check("k").await.unwrap().outage.is_none());
                    sleep(Duration::from_millis(2)).await;
                }
            };
            timeout(SOON, served).await.unwrap_or_else(|_| panic!("round {round}"));
        });
        server.kill();
        assert!(runtime.block_on(api.check("k")).unwrap().outage.is_some());
        server.restart();
    }
    runtime.block_on(is_idle(&client));
}

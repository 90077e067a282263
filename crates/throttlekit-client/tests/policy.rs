//! Calling a real server for every request: decisions, outages, debits, permits.

use std::num::NonZeroU32;
use std::time::Duration;

use throttlekit::admit::{Ending, LimitName};
use throttlekit::store::{DebitId, random_name};
use throttlekit::{
    Admit, Answer, Axis, BuildError, Call, Guarantee, OnOutage, Rate, Retry, SharedPermit, StoreError,
};
use throttlekit_client::{Client, ClientBuilder, CostHint, RemotePolicy};
use throttlekit_server::internals::engine::Backend;

use crate::common::{Proxy, Running, client_of, runtime};

const POLICIES: &str = "
  api: {rate: {limit: 10, per: 1m}}
  daily: {rate: {algorithm: fixed_window, limit: 10, per: 1d}}
  tokens: {cost: {budget: 100, per: 1h}}
  slots: {concurrency: {limit: 1, lease_for: 600ms}}
  queued: {concurrency: {limit: 1, lease_for: 600ms}, wait: {max: 5s}}
  orgs: {rate: [{limit: 10, per: 1d}, {name: org, algorithm: fixed_window, limit: 9, per: 1d, by: 1}]}
  org_tokens: {cost: {budget: 100, per: 1h, by: 1}}
  learned: {cost: {budget: 100000, per: 1d}, learn: {}}
  org_slots: {concurrency: {limit: 1000}, cost: {budget: 100, per: 1h, by: 1}}
";

#[test]
fn responses_carry_what_the_server_reports() {
    let server = Running::start(POLICIES, Backend::memory());
    runtime().block_on(async {
        let api = server.client().build().unwrap().policy("api");
        let first = api.check("alice").await.unwrap();
        assert!(first.allowed && first.outage.is_none() && !first.shadow_denied);
        assert_eq!((first.remaining, first.guarantee), (9, Guarantee::Exact));
        assert_eq!(api.limits()[0].units, 10);

        let denied = api.check(("alice", 10)).await.unwrap();
        assert!(!denied.allowed && matches!(denied.retry_after, Retry::After(_)));
        assert_eq!(api.check(("alice", 11)).await.unwrap().retry_after, Retry::Never);

        let many = api.check_many([("alice", 9), ("bob", 9)]).await;
        assert_eq!(many.iter().map(|answer| answer.as_ref().unwrap().remaining).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(api.peek("bob").await.unwrap().remaining, 1);
        assert_eq!(api.forecast("bob").await.unwrap().spendable_now, 1);
    });
}

#[test]
fn work_of_unknown_cost_reserves_what_the_server_has_learned() {
    let server = Running::start(POLICIES, Backend::memory());
    runtime().block_on(async {
        let chat = server.client().build().unwrap().policy("learned");
        let hint = || CostHint::class("small").input(1_000).at_most(500);
        let left = async || chat.peek("acme").await.unwrap().remaining;
        let held = chat.admit_learned("acme", hint()).await.unwrap().into_permit().unwrap();
        assert_eq!(left().await, 98_500, "the input, and as much as there may be beyond it");
        held.success();
        for _ in 0..42 {
            let mut permit = chat.admit_learned("acme", hint()).await.unwrap().into_permit().unwrap();
            permit.settle(1_010);
            permit.close(Ending::Success).await.unwrap();
        }
        // The first kept all that it had reserved.
        let unused = 100_000 - 1_500 - 42 * 1_010;
        let until = tokio::time::Instant::now() + Duration::from_secs(20);
        while left().await != unused {
            assert!(tokio::time::Instant::now() < until, "{} left, not {unused}", left().await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let _held = chat.admit_learned("acme", hint()).await.unwrap().into_permit().unwrap();
        let reserved = unused - left().await;
        assert!((1_005..=1_010).contains(&reserved), "{reserved}");
    });
}

/// As in a rolling restart on a busy machine: the server in use is away, the circuit breaker of the next one is still
/// open, and the third decides.
#[test]
fn an_open_circuit_breaker_does_not_end_the_search_for_a_server() {
    let (mut first, third) =
        (Running::start(POLICIES, Backend::memory()), Running::start(POLICIES, Backend::memory()));
    let runtime = runtime();
    first.kill();
    // A client chooses its first server at random: each of the three is the first of some. Nothing listens at port 1.
    let clients: Vec<_> = (0..48)
        .map(|number| {
            let client = client_of(first.address()).endpoint("http://127.0.0.1:1");
            let client = client.endpoint(format!("http://{}", third.address()));
            let client =
                client.breaker(1, Duration::from_millis(50)).sessions(number % 2 == 0).build().unwrap();
            (client.policy("daily"), format!("client {number}"))
        })
        .collect();
    let check_all = || -> Vec<Answer> {
        runtime.block_on(async {
            let mut answers = Vec::new();
            for (policy, key) in &clients {
                answers.push(policy.check(key.as_str()).await.unwrap());
            }
            answers
        })
    };
    check_all();
    first.restart();
    // Probes close its circuit breaker, and that of port 1 stays open.
    std::thread::sleep(Duration::from_secs(2));
    check_all();
    first.kill();
    for answer in check_all() {
        // A call that was sent to the server while it ended may be lost.
        let outage = answer.outage.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(answer.allowed || !outage.contains("circuit breaker open"), "{answer:?}");
    }
}

/// As in a rolling restart: the server in use is away, and each call is decided by another.
#[test]
fn a_call_without_a_connection_is_decided_by_the_next_server() {
    let server = Running::start(POLICIES, Backend::memory());
    runtime().block_on(async {
        // A client chooses its first server at random.
        for client in 0..16 {
            // Nothing listens at port 1.
            let builder =
                client_of("127.0.0.1:1".parse().unwrap()).endpoint(format!("http://{}", server.address()));
            let client = (builder.build().unwrap(), format!("client {client}"));
            let api = client.0.policy("daily");
            for left in (0..3).rev() {
                let answer = api.check((client.1.as_str(), 1)).await.unwrap();
                assert!(answer.outage.is_none() && answer.allowed, "{answer:?}");
                assert_eq!(answer.remaining, left + 7, "decided once");
            }
            assert_eq!(api.peek(client.1.as_str()).await.unwrap().remaining, 7);

            let id = DebitId { stream: random_name(), number: 1 };
            let debited = client.0.policy("tokens").debit((client.1.as_str(), 30), id).await.unwrap();
            assert!(debited.outage.is_none() && debited.remaining == 70, "{debited:?}");
            // A slot that another client has released may not be free yet: the first may be denied, the second waits.
            let queued = RemotePolicy::builder(&client.0, "queued").wait(Duration::from_secs(5)).build();
            for (slots, waits) in [(client.0.policy("slots"), false), (queued.unwrap(), true)] {
                let admission = slots.admit(client.1.as_str()).await.unwrap();
                assert!(admission.outage.is_none() && (admission.allowed || !waits), "{admission:?}");
            }
        }
    });
}

#[test]
fn many_requests_of_different_costs_are_decided_in_order_and_each_alone() {
    let server = Running::start(POLICIES, Backend::memory());
    runtime().block_on(async {
        let api = server.client().build().unwrap().policy("api");
        let calls = [("k", 3), ("k", 3), ("k", 0), ("k", 2), ("k", 9), ("k", 1)];
        let answers = api.check_many(calls).await;
        assert!(matches!(answers[2], Err(StoreError::Rejected(_))), "invalid cost 0");
        let left = answers.iter().flatten().map(|answer| (answer.allowed, answer.remaining));
        assert_eq!(left.collect::<Vec<_>>(), [(true, 7), (true, 4), (true, 2), (false, 2), (true, 1)]);
        let unknown = server.client().build().unwrap().policy("none").check_many(["a", "b"]).await;
        assert!(unknown.iter().all(|answer| matches!(answer, Err(StoreError::Rejected(_)))));
        assert!(api.check_many(Vec::<&str>::new()).await.is_empty());
    });
}

#[test]
fn a_policy_that_holds_nothing_is_checked_instead_of_admitted() {
    let server = Running::start(POLICIES, Backend::memory());
    runtime().block_on(async {
        let api = server.client().build().unwrap().policy("api");
        assert!(api.limits()[0].refundable, "not known yet");
        let admission = api.admit(("alice", 4)).await.unwrap();
        assert_eq!((admission.remaining, admission.denied_by()), (6, None));
        assert!(admission.permit.unwrap().is_none() && !api.limits()[0].refundable);
        let denied = api.admit(("alice", 7)).await.unwrap();
        assert_eq!(denied.denied_by(), Some(Axis::Rate));
        assert!(denied.into_permit().is_err());
        let boxed: Box<dyn Admit> = Box::new(api);
        assert_eq!(boxed.admit(Call::by("alice")).await.unwrap().remaining, 5);
    });
}

#[test]
fn a_policy_in_shadow_mode_reports_the_denial() {
    let policies = "  api: {shadow: true, rate: {limit: 1, per: 1h}}\n";
    let server = Running::start(policies, Backend::memory());
    runtime().block_on(async {
        let api = server.client().build().unwrap().policy("api");
        let first = api.check("k").await.unwrap();
        assert!(first.allowed && !first.shadow_denied);
        let second = api.check("k").await.unwrap();
        assert!(second.allowed && second.shadow_denied);
        let admitted = api.admit("k").await.unwrap();
        assert!(admitted.allowed && admitted.shadow_denied && admitted.permit.is_some());
    });
}

#[test]
fn every_key_of_a_call_reaches_the_server() {
    let server = Running::start(POLICIES, Backend::memory());
    runtime().block_on(async {
        let client = server.client().build().unwrap();
        let orgs = client.policy("orgs");
        assert!(matches!(orgs.peek("ada").await, Err(StoreError::Rejected(_))), "a key is missing");
        let by = |key| Call::by(key).and(&["acme"]);
        assert!(orgs.check(by("ada").cost(2)).await.unwrap().allowed);
        assert!(orgs.check(by("bob")).await.unwrap().allowed);
        assert_eq!(orgs.peek(by("eve")).await.unwrap().remaining, 6, "of the nine that acme has");
        assert_eq!(orgs.forecast(by("eve")).await.unwrap().spendable_now, 6);
        let many = orgs.check_many(["ada", "bob", "eve"].map(|key| by(key).cost(3))).await;
        let allowed = many.iter().map(|answer| answer.as_ref().unwrap().allowed);
        assert_eq!(allowed.collect::<Vec<_>>(), [true, true, false]);

        let tokens = client.policy("org_tokens");
        let id = DebitId { stream: random_name(), number: 1 };
        tokens.debit(by("ada").cost(30), id).await.unwrap();
        let mut stream = tokens.stream(by("bob")).unwrap();
        assert_eq!(stream.debit(30).await.unwrap().remaining, 40);
        assert_eq!(stream.debit(5).await.unwrap().remaining, 35);
        assert_eq!((stream.used(), stream.reserved()), (35, 0));

        let slots = client.policy("org_slots");
        let mut permit = slots.admit(by("ada").cost(10)).await.unwrap().permit.unwrap();
        assert_eq!(permit.debit(25).await.unwrap().remaining, 75);
        let other = slots.admit(Call::by("ada").and(&["other"]).cost(10)).await.unwrap();
        assert_eq!(other.remaining, 90);
    });
}

#[test]
fn invalid_requests_are_errors_and_not_outages() {
    let server = Running::start(POLICIES, Backend::memory());
    runtime().block_on(async {
        let client = server.client().build().unwrap();
        let open = RemotePolicy::builder(&client, "none").on_outage(OnOutage::Open).build().unwrap();
        assert!(matches!(open.check("k").await, Err(StoreError::Rejected(_))));
        let api = client.policy("api");
        assert!(matches!(api.check(("k", 0)).await, Err(StoreError::Rejected(_))));
        assert!(matches!(api.check(&[0xff_u8]).await, Err(StoreError::Rejected(_))));
        let id = DebitId { stream: 7, number: 1 };
        assert!(matches!(api.debit("k", id).await, Err(StoreError::Rejected(_))));
        assert!(matches!(client.policy("tokens").admit("k").await, Err(StoreError::Rejected(_))));
    });
}

#[test]
fn incomplete_tls_settings_do_not_disable_tls() {
    let invalid = |client: ClientBuilder| match client.build() {
        Err(BuildError::InvalidEndpoint { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(invalid(Client::builder("https://localhost:1")).contains("`trust`"));
    assert!(invalid(Client::builder("http://localhost:1").trust("-----BEGIN")).contains("https"));
    invalid(Client::builder("http://local host"));
    let without_token =
        Client::builder("http://localhost:1").token_env("THROTTLEKIT_NO_SUCH_VARIABLE").build();
    assert!(matches!(without_token, Err(BuildError::InvalidToken(_))));
}

/// Under late responses and broken connections every debit with a response, and none twice, is counted.
#[test]
fn a_debit_counts_once_however_often_it_is_sent() {
    let server = Running::start("  tokens: {cost: {budget: 100000, per: 1h}}\n", Backend::memory());
    runtime().block_on(async {
        let direct = server.client().build().unwrap().policy("tokens");
        let same = DebitId { stream: 7, number: 1 };
        for _ in 0..3 {
            assert_eq!(direct.debit(("dup", 10), same).await.unwrap().remaining, 99_990);
        }

        let proxy = Proxy::to(server.address(), 40, 25).await;
        let client = client_of(proxy.address).deadline(Duration::from_millis(100));
        let client = client.breaker(1_000_000, Duration::from_millis(50)).build().unwrap();
        let (tokens, stream) = (client.policy("tokens"), random_name());
        let (mut answered, mut unknown) = (0, 0);
        for number in 1..=60 {
            let answer = tokens.debit(("k", 3), DebitId { stream, number }).await.unwrap();
            *if answer.outage.is_none() { &mut answered } else { &mut unknown } += 1;
        }
        let spent = 100_000 - direct.peek("k").await.unwrap().remaining;
        assert!(spent >= answered * 3 && spent <= (answered + unknown) * 3, "{spent}: {answered}, {unknown}");
        assert!(client.stats().failed + client.stats().timed_out > 0, "the network did not misbehave");
        assert!(answered > 20, "{answered} answered");
    });
}

#[test]
fn a_stream_counts_its_debits_and_an_outage_weakens_its_guarantee() {
    let mut server = Running::start("  tokens: {cost: {budget: 100, per: 1h}}\n", Backend::memory());
    let clients = runtime();
    let mut stream = clients.block_on(async {
        let client = server.client().deadline(Duration::from_millis(300)).build().unwrap();
        client.policy("tokens").stream("k").unwrap()
    });
    clients.block_on(async {
        assert!(stream.debit(60).await.unwrap().allowed && stream.debit(0).await.unwrap().allowed);
        assert!(stream.debit(60).await.unwrap().allowed, "the debit that crosses the edge");
        assert!(!stream.debit(1).await.unwrap().allowed);
        assert_eq!((stream.used(), stream.guarantee()), (120, Guarantee::Exact));
    });
    server.kill();
    clients.block_on(async {
        assert!(!stream.debit(1).await.unwrap().allowed);
        assert_eq!(stream.guarantee(), Guarantee::Closed);
    });
}

#[test]
fn outages_use_the_fallback_within_the_deadline_and_then_at_once() {
    let mut server = Running::start(POLICIES, Backend::memory());
    let clients = runtime();
    let client = {
        let _on = clients.enter();
        server.client().deadline(Duration::from_millis(300)).build().unwrap()
    };
    let nodes = NonZeroU32::new(5).unwrap();
    let choices = [OnOutage::Closed, OnOutage::Open, OnOutage::Local { nodes }];
    let [closed, open, local] = choices.map(|choice| {
        RemotePolicy::builder(&client, "api").limit(Rate::per_minute(10)).on_outage(choice).build().unwrap()
    });
    assert!(RemotePolicy::builder(&client, "api").on_outage(OnOutage::Local { nodes }).build().is_err());
    clients.block_on(async { assert!(closed.check("k").await.unwrap().allowed) });
    server.kill();
    clients.block_on(async {
        let answer = closed.check("k").await.unwrap();
        assert_eq!((answer.allowed, answer.guarantee), (false, Guarantee::Closed));
        assert!(answer.outage.is_some());
        let answer = open.check("k").await.unwrap();
        assert_eq!((answer.allowed, answer.guarantee), (true, Guarantee::Open));
        let mut passed = 0;
        for _ in 0..10 {
            let answer = local.check("k").await.unwrap();
            assert_eq!(answer.guarantee, Guarantee::Local);
            passed += u32::from(answer.allowed);
        }
        assert_eq!(passed, 2, "a fifth of ten");
        let stats = client.stats();
        assert!(stats.open && stats.refused_open > 0, "{stats:?}");
        assert!(local.peek("k").await.is_err(), "nobody stands in for a look");
    });
    server.restart();
    clients.block_on(async {
        for _ in 0..100 {
            if closed.check("k").await.unwrap().outage.is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the breaker never closed");
    });
}

#[test]
fn a_permit_is_kept_alive_while_it_is_held_and_free_once_it_ends() {
    let server = Running::start(POLICIES, Backend::memory());
    runtime().block_on(async {
        let client = server.client().build().unwrap();
        let slots = client.policy("slots");
        let permit = slots.admit("k").await.unwrap().into_permit().unwrap();
        // Three lifetimes of the lease.
        tokio::time::sleep(Duration::from_millis(1_800)).await;
        assert!(!permit.is_fenced());
        let denied = slots.admit("k").await.unwrap();
        assert!(!denied.allowed && denied.permit.is_none());
        assert_eq!(denied.denied_by(), Some(Axis::Concurrency));
        permit.close(Ending::Success).await.unwrap();
        let next = slots.admit("k").await.unwrap().permit.unwrap();
        assert!(!next.is_fenced());
        next.success();
        for _ in 0..50 {
            if slots.admit("k").await.unwrap().permit.is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the slot was not released");
    });
}

/// Each admission wakes the renewer: that must not delay renewals that are due.
#[test]
fn a_permit_is_kept_alive_while_others_come_and_go() {
    let server =
        Running::start("\n  slots: {concurrency: {limit: 9, lease_for: 600ms}}\n", Backend::memory());
    runtime().block_on(async {
        let slots = server.client().build().unwrap().policy("slots");
        let held = slots.admit("k").await.unwrap().permit.unwrap();
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_millis(30)).await;
            slots.admit("k").await.unwrap().permit.unwrap().success();
        }
        assert!(!held.is_fenced(), "three lives later");
    });
}

#[test]
fn a_permit_that_cannot_be_renewed_is_fenced_before_its_slot_is_reassigned() {
    let mut server = Running::start(POLICIES, Backend::memory());
    let clients = runtime();
    let permit = clients.block_on(async {
        let client = server.client().build().unwrap();
        client.policy("slots").admit("k").await.unwrap().permit.unwrap()
    });
    assert!(!permit.is_fenced());
    server.kill();
    clients.block_on(async {
        let fenced = tokio::time::timeout(Duration::from_millis(650), permit.fenced()).await;
        assert!(fenced.is_ok() && permit.is_fenced());
    });
}

/// One client, used from two runtimes, of which the one that happens to run the task ends.
#[test]
fn permits_outlive_the_runtime_that_another_was_admitted_on() {
    let policy = "  slots: {concurrency: {limit: 3, scope: key, lease_for: 600ms}}\n";
    let server = Running::start(policy, Backend::memory());
    let (first, second) = (runtime(), runtime());
    // A channel lives on the runtime that created it.
    let slots = second.block_on(async { server.client().build().unwrap().policy("slots") });
    let admit = async |slots: &RemotePolicy| slots.admit("k").await.unwrap().permit.unwrap();
    let on_first = first.block_on(admit(&slots));
    let on_second = second.block_on(admit(&slots));
    first.shutdown_timeout(Duration::from_secs(1));
    // Two lifetimes of the lease.
    std::thread::sleep(Duration::from_millis(1_200));
    assert!(!on_second.is_fenced(), "it was admitted before the other runtime ended");
    let later = second.block_on(admit(&slots));
    std::thread::sleep(Duration::from_millis(1_200));
    assert!(!later.is_fenced() && !on_first.is_fenced(), "all are renewed where one can be");
    second.block_on(async { [on_first, on_second, later].map(SharedPermit::success) });
}

#[test]
fn a_permit_is_fenced_when_its_lease_is_unknown_to_the_server() {
    let mut server = Running::start(POLICIES, Backend::memory());
    let clients = runtime();
    let permit = clients.block_on(async {
        // If the server did not report the length of the lease, a heartbeat every twenty seconds would be too
        // late.
        let client = server.client().lease_for(Duration::from_secs(60)).build().unwrap();
        client.policy("slots").admit("k").await.unwrap().permit.unwrap()
    });
    server.kill();
    server.restart();
    clients.block_on(async {
        let fenced = tokio::time::timeout(Duration::from_secs(2), permit.fenced()).await;
        assert!(fenced.is_ok(), "a server that forgot it says so");
    });
}

/// Over unary calls and over a session.
#[test]
fn a_denial_names_the_budget_of_the_server_that_denied() {
    let policy = "
  chat: {cost: [{name: org, budget: 100, per: 1d}, {name: user, budget: 50, per: 1d, by: 1}]}
  work: {concurrency: {limit: 9}, cost: [{name: org, budget: 100, per: 1d}, {name: user, budget: 50, per: 1d, by: 1}]}
";
    let server = Running::start(policy, Backend::memory());
    let name = |name: Option<LimitName>| name.map(LimitName::as_str);
    for sessions in [true, false] {
        runtime().block_on(async {
            let client = server.client().sessions(sessions).build().unwrap();
            let [org, ann, ben, cem] = ["acme", "ann", "ben", "cem"].map(|who| format!("{who}-{sessions}"));
            let [ann, ben, cem] = [&*ann, &*ben, &*cem];
            let chat = client.policy("chat");
            let debit = async |user: &str, tokens| {
                let id = DebitId { stream: random_name(), number: 1 };
                name(chat.debit(Call::by(&org).and(&[user]).cost(tokens), id).await.unwrap().limit_name)
            };
            assert_eq!(debit(ann, 50).await, None);
            assert_eq!(debit(ann, 1).await, Some("user"));
            assert_eq!(debit(ben, 50).await, None);
            assert_eq!(debit(cem, 1).await, Some("org"));
            let others = [cem];
            let seen = chat.peek(Call::by(&org).and(&others)).await.unwrap();
            assert_eq!(name(seen.limit_name), Some("org"));

            let work = client.policy("work");
            let users = [ann];
            let call = Call::by(&org).and(&users);
            let mut permit = work.admit(call.cost(40)).await.unwrap().into_permit().unwrap();
            let denied = work.admit(call.cost(20)).await.unwrap();
            assert_eq!((denied.denied_by(), name(denied.limit_name())), (Some(Axis::Cost), Some("user")));
            assert!(permit.debit(60).await.unwrap().allowed && permit.limit_name().is_none());
            assert!(!permit.debit(1).await.unwrap().allowed);
            assert_eq!(name(permit.limit_name()), Some("user"));
            permit.success();
        });
    }
}

#[test]
fn the_output_of_an_admission_is_debited_from_its_reservation() {
    let policy = "  llm: {cost: {budget: 100, per: 1h}, concurrency: {limit: 2}}\n";
    let server = Running::start(policy, Backend::memory());
    runtime().block_on(async {
        let llm = server.client().build().unwrap().policy("llm");
        let mut permit = llm.admit(("k", 60)).await.unwrap().permit.unwrap();
        assert!(permit.debit(50).await.unwrap().allowed);
        let denied = llm.admit(("k", 60)).await.unwrap();
        assert_eq!((denied.allowed, denied.denied_by()), (false, Some(Axis::Cost)));
        permit.settle(50);
        permit.success();
        for _ in 0..50 {
            if llm.admit(("k", 50)).await.unwrap().permit.is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("what was not used did not come back");
    });
}

#[test]
fn a_call_waits_on_the_server_and_its_lease_begins_after_the_wait() {
    let server = Running::start(POLICIES, Backend::memory());
    runtime().block_on(async {
        let client = server.client().build().unwrap();
        let build = RemotePolicy::builder(&client, "queued").wait(Duration::from_secs(4));
        let queued = build.build().unwrap();
        let held = queued.admit("a").await.unwrap().into_permit().unwrap();
        let next = {
            let queued = queued.clone();
            tokio::spawn(async move { queued.admit(Call::by("a").priority(1)).await })
        };
        // Longer than a lease, and longer than the timeout of a call.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        held.success();
        let admitted = next.await.unwrap().unwrap();
        assert!(admitted.allowed && admitted.outage.is_none(), "{admitted:?}");
        let permit = admitted.into_permit().unwrap();
        assert!(!permit.is_fenced(), "its lease began when it was admitted");

        // A call that is dropped leaves the queue: the slot is for the next.
        let dropped = tokio::time::timeout(Duration::from_millis(100), queued.admit("a")).await;
        assert!(dropped.is_err());
        permit.success();
        let next = queued.admit("a").await.unwrap();
        assert!(next.allowed, "{next:?}");
        assert!(!client.stats().open && client.stats().timed_out == 0, "{:?}", client.stats());
    });
}

//! Asking a real server about every ask: answers, outages, debits.

use std::num::NonZeroU32;
use std::time::Duration;

use throttlekit_client::{Axis, Call, Client, ClientError, DebitId, Guarantee, OnOutage, Rate, Retry, Work};
use throttlekit_server::engine::Backend;

use crate::common::{Proxy, Running, client_of, runtime};

const POLICIES: &str = "
  api: {rate: {limit: 10, per: 1m}}
  tokens: {cost: {budget: 100, per: 1h}}
  slots: {concurrency: {limit: 1, lease_for: 600ms}}
  orgs: {rate: [{limit: 10, per: 1d}, {name: org, algorithm: fixed_window, limit: 9, per: 1d, by: 1}]}
  org_tokens: {cost: {budget: 100, per: 1h, by: 1}}
  org_slots: {concurrency: {limit: 1000}, cost: {budget: 100, per: 1h, by: 1}}
";

#[test]
fn answers_carry_what_the_server_says_of_them() {
    let server = Running::start(POLICIES, Backend::memory());
    runtime().block_on(async {
        let api = server.client().build().unwrap().limiter("api");
        let first = api.check("alice").await.unwrap();
        assert!(first.decision.allowed && first.outage.is_none());
        assert_eq!((first.decision.remaining, first.guarantee), (9, Guarantee::Exact));
        assert_eq!(api.units(), 10);

        let denied = api.check(Call::by("alice").cost(10)).await.unwrap();
        assert_eq!((denied.decision.allowed, denied.binding_axis), (false, Some(Axis::Rate)));
        assert!(matches!(denied.decision.retry_after, Retry::After(_)));
        let never = api.check(Call::by("alice").cost(11)).await.unwrap();
        assert_eq!(never.decision.retry_after, Retry::Never);

        let many = api.check_many(&["alice", "bob"], 9).await.unwrap();
        assert_eq!(many.iter().map(|answer| answer.decision.remaining).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(api.peek("bob").await.unwrap().decision.remaining, 1);
        assert_eq!(api.forecast("bob").await.unwrap().spendable_now, 1);
    });
}

#[test]
fn further_keys_come_along_with_every_call() {
    let server = Running::start(POLICIES, Backend::memory());
    runtime().block_on(async {
        let client = server.client().build().unwrap();
        let alone = client.limiter("orgs");
        assert!(matches!(alone.peek("ada").await, Err(ClientError::Invalid(_))), "a key is missing");
        let acme = alone.and(&["acme"]);
        assert!(acme.check(Call::by("ada").cost(2)).await.unwrap().decision.allowed);
        assert!(alone.check_by("bob", &["acme"]).await.unwrap().decision.allowed);
        assert_eq!(acme.peek("eve").await.unwrap().decision.remaining, 6, "of the nine that acme has");
        assert_eq!(acme.forecast("eve").await.unwrap().spendable_now, 6);
        let many = acme.check_many(&["ada", "bob", "eve"], 3).await.unwrap();
        assert_eq!(
            many.iter().map(|answer| answer.decision.allowed).collect::<Vec<_>>(),
            [true, true, false]
        );

        let tokens = client.limiter("org_tokens").and(&["acme"]);
        tokens.debit("ada", 30, None).await.unwrap();
        assert_eq!(tokens.stream("bob").debit(30).await.unwrap().decision.remaining, 40);

        let slots = client.limiter("org_slots").and(&["acme"]);
        let mut permit = slots.admit(Work::by("ada").cost(10)).await.unwrap().permit.unwrap();
        assert_eq!(permit.debit(25).await.unwrap().decision.remaining, 75);
        let other = slots.admit(Work::by("ada").and(&["other"]).cost(10)).await.unwrap();
        assert_eq!(other.answer.decision.remaining, 90, "work that names its own keys goes by those");
    });
}

#[test]
fn what_makes_no_sense_is_an_error_and_not_an_outage() {
    let server = Running::start(POLICIES, Backend::memory());
    runtime().block_on(async {
        let builder = || server.client().build().unwrap();
        let open = builder().limiter_builder("none").on_outage(OnOutage::Open).build().unwrap();
        assert!(matches!(open.check("k").await, Err(ClientError::UnknownPolicy(_))));
        let api = builder().limiter("api");
        assert!(matches!(api.check(Call::by("k").cost(0)).await, Err(ClientError::Invalid(_))));
        assert!(matches!(api.check(Call::by(&[0xff_u8])).await, Err(ClientError::Invalid(_))));
        assert!(matches!(api.debit("k", 1, None).await, Err(ClientError::Unsupported(_))));
    });
}

#[test]
fn half_given_tls_does_not_become_none() {
    assert!(Client::builder("https://localhost:1").build().is_err());
    assert!(Client::builder("http://localhost:1").trust("-----BEGIN").build().is_err());
    assert!(Client::builder("http://localhost:1").token_env("THROTTLEKIT_NO_SUCH_VARIABLE").build().is_err());
}

/// Under late answers and broken connections every debit that was answered, and none twice, is counted.
#[test]
fn a_debit_with_a_name_counts_once_however_often_it_is_sent() {
    let server = Running::start("  tokens: {cost: {budget: 100000, per: 1h}}\n", Backend::memory());
    runtime().block_on(async {
        let direct = server.client().build().unwrap().limiter("tokens");
        let same = DebitId { stream: 7, number: 1 };
        for _ in 0..3 {
            assert_eq!(direct.debit("dup", 10, Some(same)).await.unwrap().decision.remaining, 99_990);
        }

        let proxy = Proxy::to(server.address(), 40, 25).await;
        let client = client_of(proxy.address).deadline(Duration::from_millis(100));
        let client = client.breaker(1_000_000, Duration::from_millis(50)).build().unwrap();
        let mut stream = client.limiter("tokens").stream("k");
        let (mut answered, mut unknown) = (0, 0);
        for _ in 0..60 {
            let answer = stream.debit(3).await.unwrap();
            *if answer.outage.is_none() { &mut answered } else { &mut unknown } += 1;
        }
        let spent = 100_000 - direct.peek("k").await.unwrap().decision.remaining;
        assert!(spent >= answered * 3 && spent <= (answered + unknown) * 3, "{spent}: {answered}, {unknown}");
        assert!(client.stats().failed + client.stats().timed_out > 0, "the network did not misbehave");
        assert!(answered > 20, "{answered} answered");
    });
}

#[test]
fn outages_are_answered_as_chosen_within_the_deadline_and_then_at_once() {
    let mut server = Running::start(POLICIES, Backend::memory());
    let clients = runtime();
    let client = {
        let _on = clients.enter();
        server.client().deadline(Duration::from_millis(300)).build().unwrap()
    };
    let nodes = NonZeroU32::new(5).unwrap();
    let choices = [OnOutage::Closed, OnOutage::Open, OnOutage::Local { nodes }];
    let [closed, open, local] = choices.map(|choice| {
        client.limiter_builder("api").limit(Rate::per_minute(10)).on_outage(choice).build().unwrap()
    });
    assert!(client.limiter_builder("api").on_outage(OnOutage::Local { nodes }).build().is_err());
    clients.block_on(async { assert!(closed.check("k").await.unwrap().decision.allowed) });
    server.kill();
    clients.block_on(async {
        let answer = closed.check("k").await.unwrap();
        assert_eq!((answer.decision.allowed, answer.guarantee), (false, Guarantee::Closed));
        assert!(answer.outage.is_some());
        let answer = open.check("k").await.unwrap();
        assert_eq!((answer.decision.allowed, answer.guarantee), (true, Guarantee::Open));
        let mut passed = 0;
        for _ in 0..10 {
            let answer = local.check("k").await.unwrap();
            assert_eq!(answer.guarantee, Guarantee::Local);
            passed += u32::from(answer.decision.allowed);
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
        let slots = client.limiter("slots");
        let held = slots.admit(Work::by("k")).await.unwrap();
        assert!(held.answer.decision.allowed);
        let permit = held.permit.unwrap();
        // Three lives of the lease.
        tokio::time::sleep(Duration::from_millis(1_800)).await;
        assert!(!permit.is_fenced());
        let denied = slots.admit(Work::by("k")).await.unwrap();
        assert!(!denied.answer.decision.allowed && denied.permit.is_none());
        assert_eq!(denied.answer.binding_axis, Some(Axis::Concurrency));
        permit.success();
        for _ in 0..50 {
            if let Some(next) = slots.admit(Work::by("k")).await.unwrap().permit {
                assert!(!next.is_fenced());
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the slot did not come back");
    });
}

/// Each admission wakes whoever renews: that must not put off what is due.
#[test]
fn a_permit_is_kept_alive_while_others_come_and_go() {
    let server =
        Running::start("\n  slots: {concurrency: {limit: 9, lease_for: 600ms}}\n", Backend::memory());
    runtime().block_on(async {
        let slots = server.client().build().unwrap().limiter("slots");
        let held = slots.admit(Work::by("k")).await.unwrap().permit.unwrap();
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_millis(30)).await;
            slots.admit(Work::by("k")).await.unwrap().permit.unwrap().success();
        }
        assert!(!held.is_fenced(), "three lives later");
    });
}

#[test]
fn a_permit_that_cannot_be_renewed_fences_itself_before_the_server_gives_its_slot_away() {
    let mut server = Running::start(POLICIES, Backend::memory());
    let clients = runtime();
    let permit = clients.block_on(async {
        let client = server.client().build().unwrap();
        client.limiter("slots").admit(Work::by("k")).await.unwrap().permit.unwrap()
    });
    assert!(!permit.is_fenced());
    server.kill();
    clients.block_on(async {
        let fenced = tokio::time::timeout(Duration::from_millis(650), permit.fenced()).await;
        assert!(fenced.is_ok() && permit.is_fenced());
    });
}

/// One client, used from two runtimes, of which the one ends that happens to run the task.
#[test]
fn permits_outlive_the_runtime_that_another_was_admitted_on() {
    let policy = "  slots: {concurrency: {limit: 3, scope: key, lease_for: 600ms}}\n";
    let server = Running::start(policy, Backend::memory());
    let (first, second) = (runtime(), runtime());
    // A channel lives on the runtime that it was made on.
    let slots = second.block_on(async { server.client().build().unwrap().limiter("slots") });
    let admit = async |slots: &throttlekit_client::RemotePolicy| {
        slots.admit(Work::by("k")).await.unwrap().permit.unwrap()
    };
    let on_first = first.block_on(admit(&slots));
    let on_second = second.block_on(admit(&slots));
    first.shutdown_timeout(Duration::from_secs(1));
    // Two lives of the lease.
    std::thread::sleep(Duration::from_millis(1_200));
    assert!(!on_second.is_fenced(), "it was admitted before the other runtime ended");
    let later = second.block_on(admit(&slots));
    std::thread::sleep(Duration::from_millis(1_200));
    assert!(!later.is_fenced() && !on_first.is_fenced(), "all are renewed where one can be");
    second.block_on(async { [on_first, on_second, later].map(throttlekit_client::RemotePermit::success) });
}

#[test]
fn a_permit_is_fenced_when_the_server_no_longer_knows_it() {
    let mut server = Running::start(POLICIES, Backend::memory());
    let clients = runtime();
    let permit = clients.block_on(async {
        // Were the server not to say how long the lease lasts, a beat every twenty seconds would not tell in time.
        let client = server.client().lease_for(Duration::from_secs(60)).build().unwrap();
        client.limiter("slots").admit(Work::by("k")).await.unwrap().permit.unwrap()
    });
    server.kill();
    server.restart();
    clients.block_on(async {
        let fenced = tokio::time::timeout(Duration::from_secs(2), permit.fenced()).await;
        assert!(fenced.is_ok(), "a server that forgot it says so");
    });
}

#[test]
fn what_an_admission_produces_is_debited_from_what_was_set_aside() {
    let policy = "  llm: {cost: {budget: 100, per: 1h}, concurrency: {limit: 2}}\n";
    let server = Running::start(policy, Backend::memory());
    runtime().block_on(async {
        let llm = server.client().build().unwrap().limiter("llm");
        let mut permit = llm.admit(Work::by("k").cost(60)).await.unwrap().permit.unwrap();
        assert!(permit.debit(50).await.unwrap().decision.allowed);
        let denied = llm.admit(Work::by("k").cost(60)).await.unwrap();
        assert_eq!((denied.answer.decision.allowed, denied.answer.binding_axis), (false, Some(Axis::Cost)));
        permit.settle(50);
        permit.success();
        for _ in 0..50 {
            if llm.admit(Work::by("k").cost(50)).await.unwrap().permit.is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("what was not used did not come back");
    });
}

//! Every question may bring further keys, for limits that go by them.

use throttlekit::store::DebitId;
use throttlekit_server::internals::access::Principal;
use throttlekit_server::internals::engine::{Ended, Engine, HandBack, PolicyCall, Refusal, WorkTerms};

use super::{ask, engine};

/// Five a day for each key, and of an organisation nine together; tokens and what is lent go by the organisation alone.
const POLICIES: &str = "  both: {rate: [{algorithm: fixed_window, limit: 5, per: 1d},
    {name: org, algorithm: fixed_window, limit: 9, per: 1d, by: 1}]}
  tokens: {cost: {budget: 100, per: 1d, by: 1}}
  lent: {rate: {algorithm: fixed_window, limit: 5, per: 1d, by: 1}, fleet: {}}
  held: {concurrency: {limit: 9}, cost: {budget: 100, per: 1d, by: 1}}\n";

fn of<'a>(policy: &'a str, key: &'a str, org: &'a [&'a [u8]], cost: u64) -> PolicyCall<'a> {
    PolicyCall { others: org, ..ask(policy, key, cost) }
}

const ACME: &[&[u8]] = &[b"acme"];

async fn left(engine: &Engine, policy: &str, key: &str) -> u64 {
    engine.peek(of(policy, key, ACME, 1)).await.unwrap().decision.remaining
}

#[tokio::test]
async fn a_peek_and_a_forecast_see_the_limit_of_a_second_key() {
    let engine = engine(POLICIES);
    assert!(engine.check(of("both", "ada", ACME, 5)).await.unwrap().decision.allowed);
    assert_eq!(left(&engine, "both", "bob").await, 4, "of nine five are gone");
    let forecast = engine.forecast(of("both", "bob", ACME, 1)).await.unwrap();
    assert_eq!(forecast.spendable_now, 4);
    assert_eq!(engine.forecast(of("both", "bob", &[b"other"], 1)).await.unwrap().spendable_now, 5);
}

#[tokio::test]
async fn many_calls_each_bring_their_own_further_keys() {
    let engine = engine(POLICIES);
    let calls: [Vec<&[u8]>; 4] =
        [vec![b"ada", b"acme"], vec![b"bob", b"acme"], vec![b"ada", b"other"], vec![b"eve", b"acme"]];
    let answers = engine.check_many("both", &calls, 4).await.unwrap();
    let allowed: Vec<_> = answers.iter().map(|answer| answer.decision.allowed).collect();
    assert_eq!(allowed, [true, true, false, false], "ada has five for herself, acme has nine for all");
    assert_eq!(left(&engine, "both", "eve").await, 1, "whoever was denied was charged nowhere");
}

#[tokio::test]
async fn of_many_calls_none_is_charged_if_one_lacks_a_key() {
    let engine = engine(POLICIES);
    let calls: [Vec<&[u8]>; 2] = [vec![b"ada", b"acme"], vec![b"bob"]];
    assert!(matches!(engine.check_many("both", &calls, 1).await, Err(Refusal::Invalid(_))));
    assert_eq!(left(&engine, "both", "ada").await, 5);
}

#[tokio::test]
async fn a_debit_goes_to_the_budget_of_a_second_key() {
    let engine = engine(POLICIES);
    let name = |number| Some(DebitId { stream: 7, number });
    for number in [1, 1, 2] {
        engine.debit(of("tokens", "ada", ACME, 30), name(number)).await.unwrap();
    }
    engine.debit(of("tokens", "bob", ACME, 10), None).await.unwrap();
    assert_eq!(left(&engine, "tokens", "eve").await, 30, "the same organisation, whoever debits");
    assert_eq!(engine.peek(of("tokens", "ada", &[b"other"], 1)).await.unwrap().decision.remaining, 100);
}

#[tokio::test]
async fn units_are_lent_by_the_key_that_the_rate_goes_by() {
    let (engine, who) = (engine(POLICIES), Principal::anyone());
    assert!(matches!(engine.reserve(&who, ask("lent", "ada", 1), None).await, Err(Refusal::Invalid(_))));
    let first = engine.reserve(&who, of("lent", "ada", ACME, 4), None).await.unwrap();
    assert_eq!(first.units, 4);
    assert_eq!(engine.reserve(&who, of("lent", "bob", ACME, 4), None).await.unwrap().units, 1);
    let back = Some(HandBack { loan: first.loan.unwrap(), units: 3 });
    let elsewhere = engine.reserve(&who, of("lent", "ada", &[b"other"], 0), back).await.unwrap();
    assert_eq!(elsewhere.units, 0);
    assert_eq!(left(&engine, "lent", "eve").await, 0, "what is handed back names the keys it was lent for");
    engine.reserve(&who, of("lent", "ada", ACME, 0), back).await.unwrap();
    assert_eq!(left(&engine, "lent", "eve").await, 3);
    assert!(engine.check(of("lent", "eve", ACME, 3)).await.unwrap().decision.allowed, "one count for both");
}

#[tokio::test]
async fn a_lease_remembers_every_key_that_it_was_given_for() {
    let (engine, who) = (engine(POLICIES), Principal::anyone());
    let lease =
        engine.admit(&who, of("held", "ada", ACME, 10), WorkTerms::default()).await.unwrap().lease.unwrap();
    let (policy, keys) = engine.lease_of(&who, lease.id).unwrap();
    assert_eq!(
        (&*policy, keys.iter().map(AsRef::as_ref).collect::<Vec<_>>()),
        ("held", vec![&b"ada"[..], b"acme"])
    );
    engine.debit_held(&who, lease.id, 25).await.unwrap();
    engine.release(&who, lease.id, Ended::default());
    assert_eq!(left(&engine, "held", "bob").await, 75);
}

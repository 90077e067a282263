//! Fallbacks for a store that does not respond, with the label and the count of each response.
#![cfg(feature = "store")]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use std::time::Duration;

use throttlekit::limiter::Tally;
use throttlekit::store::{
    Charge, Charges, Debit, Debited, LeaseRequest, LeaseReturn, Leased, MemoryStore, Outcome,
};
use throttlekit::store::{DebitId, Settlement, Snapshot, Store, StoreError};
use throttlekit::{Guarantee, Limit, OnOutage, Rate, SharedLimiter, forward_store};

/// A store that can be made unavailable.
#[derive(Clone)]
struct Flaky {
    kept: Arc<MemoryStore>,
    away: Arc<AtomicBool>,
    error: StoreError,
}

impl Flaky {
    fn new(error: StoreError) -> Self {
        Self { kept: Arc::default(), away: Arc::new(AtomicBool::new(true)), error }
    }

    fn reachable(&self) -> Result<(), StoreError> {
        if self.away.load(Relaxed) { Err(self.error.clone()) } else { Ok(()) }
    }
}

impl Store for Flaky {
    async fn admit(&self, asks: &[Charges<'_>]) -> Result<Vec<Outcome>, StoreError> {
        self.reachable()?;
        self.kept.admit(asks).await
    }

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        match self.reachable() {
            Ok(()) => self.kept.debit(debits).await,
            Err(error) => vec![Err(error); debits.len()],
        }
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Snapshot, StoreError> {
        self.reachable()?;
        self.kept.peek(charges).await
    }

    async fn settle(&self, settlements: &[Settlement<'_>]) -> Result<(), StoreError> {
        self.reachable()?;
        self.kept.settle(settlements).await
    }

    async fn lease(&self, asks: &[LeaseRequest<'_>]) -> Vec<Result<Leased, StoreError>> {
        match self.reachable() {
            Ok(()) => self.kept.lease(asks).await,
            Err(error) => vec![Err(error); asks.len()],
        }
    }

    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        self.reachable()?;
        self.kept.give_back(backs).await
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.reachable()?;
        self.kept.reset(keys).await
    }

    forward_store!(Store for self => self.kept; local_shares);
}

fn down() -> Flaky {
    Flaky::new(StoreError::unavailable("down"))
}

fn hourly(units: u64) -> Rate {
    Rate::per_hour(1).burst(units)
}

#[tokio::test]
async fn closed_fallback_denies_and_is_labeled() {
    let limiter = SharedLimiter::new(down(), "api", hourly(10)).unwrap();
    let answer = limiter.check("alice").await.unwrap();
    assert!(!answer.allowed && answer.retry_after.wait_ms() == Some(1_000));
    assert_eq!((answer.guarantee, answer.outage), (Guarantee::Closed, Some(StoreError::unavailable("down"))));
    assert_eq!(limiter.stats().answers, Tally { closed: 1, ..Tally::default() });
}

#[tokio::test]
async fn open_fallback_allows_and_is_labeled() {
    let limiter = SharedLimiter::builder(down(), "api", hourly(1)).on_outage(OnOutage::Open).build().unwrap();
    for _ in 0..5 {
        let answer = limiter.check("alice").await.unwrap();
        assert_eq!((answer.allowed, answer.guarantee), (true, Guarantee::Open));
        assert_eq!(answer.receipt, None, "nothing was charged, so nothing can be settled");
    }
    assert_eq!(limiter.stats().answers, Tally { open: 5, ..Tally::default() });
}

#[tokio::test]
async fn local_fallback_admits_this_nodes_share_across_repeated_outages() {
    let store = down();
    let nodes = NonZeroU32::new(4).unwrap();
    let limiter = SharedLimiter::builder(store.clone(), "api", hourly(10))
        .on_outage(OnOutage::Local { nodes })
        .build()
        .unwrap();
    let mut admitted = 0;
    for turn in 0..20 {
        store.away.store(turn % 4 != 3, Relaxed);
        let answer = limiter.check("alice").await.unwrap();
        let expected = if turn % 4 == 3 { Guarantee::Exact } else { Guarantee::Local };
        assert_eq!(answer.guarantee, expected);
        admitted += u64::from(answer.allowed && answer.guarantee == Guarantee::Local);
    }
    assert_eq!(admitted, 10 / 4, "⌊L / nodes⌋");
    assert_eq!(limiter.stats().answers, Tally { exact: 5, local: 15, ..Tally::default() });
}

/// One that checks, one that counts two limits at once, one that debits, one that leases: on the store they
/// count together, and so they do during an outage.
#[tokio::test]
async fn limiters_of_one_limit_share_one_local_share() {
    let (store, nodes) = (down(), NonZeroU32::new(4).unwrap());
    let local = OnOutage::Local { nodes };
    let budget = Limit::token_budget(100, Duration::from_secs(86_400)).unwrap();
    let wide = Limit::token_budget(10_000, Duration::from_secs(86_400)).unwrap();
    let alone = SharedLimiter::builder(store.clone(), "api", budget).on_outage(local).build().unwrap();
    let both = SharedLimiter::builder(store.clone(), "api", wide).first_limit(0, "other").limit("", budget);
    let both = both.on_outage(local).build().unwrap();
    let leased =
        SharedLimiter::builder(store.clone(), "api", budget).leased().on_outage(local).build().unwrap();
    let elsewhere = SharedLimiter::builder(store, "web", budget).on_outage(local).build().unwrap();

    let mut admitted = 0;
    for number in 1..=40 {
        let id = DebitId { stream: 1, number };
        let answers = [
            alone.check("acme").await.unwrap(),
            both.check("acme").await.unwrap(),
            alone.debit(("acme", 1), id).await.unwrap(),
            leased.check("acme").await.unwrap(),
        ];
        assert!(answers.iter().all(|answer| answer.guarantee == Guarantee::Local));
        admitted += answers.iter().filter(|answer| answer.allowed).count();
    }
    assert_eq!(admitted, 100 / 4, "⌊L / nodes⌋ by all of them");
    assert_eq!(elsewhere.check("acme").await.unwrap().remaining, 24, "another policy is another limit");
}

/// As when a policy is reloaded, and the old limiters are dropped after the new ones are created.
#[tokio::test]
async fn a_replacement_limiter_continues_from_the_local_share() {
    let (store, nodes) = (down(), NonZeroU32::new(5).unwrap());
    let limiter = || {
        let builder = SharedLimiter::builder(store.clone(), "api", hourly(10));
        builder.on_outage(OnOutage::Local { nodes }).build().unwrap()
    };
    let old = limiter();
    assert!(old.check("alice").await.unwrap().allowed);
    let new = limiter();
    drop(old);
    let left = [new.check("alice").await.unwrap(), new.check("alice").await.unwrap()];
    assert_eq!(left.map(|answer| answer.allowed), [true, false]);
}

#[tokio::test]
async fn a_share_of_less_than_a_unit_is_nothing() {
    let nodes = NonZeroU32::new(11).unwrap();
    let limiter = SharedLimiter::builder(down(), "api", hourly(10))
        .on_outage(OnOutage::Local { nodes })
        .build()
        .unwrap();
    assert_eq!(limiter.check("alice").await.unwrap().guarantee, Guarantee::Closed);
}

#[tokio::test]
async fn non_outage_errors_are_returned_without_fallback() {
    for error in [StoreError::bad_state("k"), StoreError::misconfigured("eviction")] {
        let builder = SharedLimiter::builder(Flaky::new(error.clone()), "api", hourly(1));
        let limiter = builder.on_outage(OnOutage::Open).build().unwrap();
        assert_eq!(limiter.check("alice").await.unwrap_err(), error);
        assert_eq!(limiter.stats().answers, Tally { errors: 1, ..Tally::default() });
    }
}

#[tokio::test]
async fn a_debit_uses_the_fallback_and_is_repeated_when_the_store_recovers() {
    let store = down();
    let budget = Limit::token_budget(100, Duration::from_secs(86_400)).unwrap();
    let nodes = NonZeroU32::new(10).unwrap();
    let meter = SharedLimiter::builder(store.clone(), "tokens", budget)
        .on_outage(OnOutage::Local { nodes })
        .build()
        .unwrap();
    let id = DebitId { stream: 1, number: 1 };
    let local = meter.debit(("acme", 8), id).await.unwrap();
    assert_eq!((local.remaining, local.guarantee), (2, Guarantee::Local));
    let beyond = meter.debit(("acme", 8), id).await.unwrap();
    assert!(!beyond.allowed, "a node's share is not crossed");

    store.away.store(false, Relaxed);
    for _ in 0..2 {
        let answer = meter.debit(("acme", 8), id).await.unwrap();
        assert_eq!((answer.remaining, answer.guarantee), (92, Guarantee::Exact));
    }
    assert_eq!(meter.debit(("acme", 8), DebitId { number: 0, ..id }).await, Err(StoreError::Stale(0)));
    assert_eq!(meter.stats().answers, Tally { exact: 2, local: 2, errors: 1, ..Tally::default() });
}

/// The shares of all nodes together admit at most the limit, for every rule.
#[test]
fn shares_add_up_to_no_more_than_the_limit() {
    let day = Duration::from_secs(86_400);
    let limits = [
        Limit::gcra(Rate::per_minute(7).burst(100)),
        Limit::token_bucket(100, Rate::per_second(3)),
        Limit::fixed_window(100, day),
        Limit::token_budget(100, day),
        Limit::sliding_window(100, day),
        Limit::sliding_log(100, day),
    ];
    for limit in limits.map(Result::unwrap) {
        for nodes in [1, 2, 3, 7, 100].map(|n| NonZeroU32::new(n).unwrap()) {
            let share = limit.share(nodes).unwrap();
            assert!(share.units() * u64::from(nodes.get()) <= limit.units());
            let (whole, part) = (limit.period().as_nanos(), share.period().as_nanos());
            let pace = whole * u128::from(share.units() * u64::from(nodes.get()));
            assert!((part + 1) * 100 >= pace, "{limit:?} {nodes}, but for a nanosecond of rounding");
        }
        assert_eq!(limit.share(NonZeroU32::new(101).unwrap()), None);
    }
}

#[tokio::test]
async fn check_many_labels_each_request() {
    let limiter = SharedLimiter::builder(down(), "api", hourly(1)).on_outage(OnOutage::Open).build().unwrap();
    let answers = limiter.check_many(["a", "b"]).await;
    assert!(answers.iter().flatten().filter(|answer| answer.guarantee == Guarantee::Open).count() == 2);
    assert_eq!(limiter.stats().answers.open, 2);
}

#[cfg(feature = "http")]
#[tokio::test]
async fn an_outage_is_reported_to_clients() {
    use std::convert::Infallible;

    use http::{Request, Response, StatusCode};
    use throttlekit::http::{AdmissionLayer, fixed};
    use tower::{Layer, ServiceExt, service_fn};

    let answer = |limiter: SharedLimiter<Flaky>| async {
        let layer = AdmissionLayer::new(Arc::new(limiter), fixed("all")).unwrap();
        let hello = async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new()));
        layer.layer(service_fn(hello)).oneshot(Request::new(())).await.unwrap().status()
    };
    let limiter =
        |choice| SharedLimiter::builder(down(), "api", hourly(1)).on_outage(choice).build().unwrap();
    assert_eq!(answer(limiter(OnOutage::Closed)).await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer(limiter(OnOutage::Open)).await, StatusCode::OK);
}

/// With receipts, both could be settled, and the use of others would be returned.
#[tokio::test]
async fn a_debit_that_may_get_two_responses_has_no_receipt() {
    let minute = Limit::token_budget(1_000, Duration::from_secs(60)).unwrap();
    let meter = SharedLimiter::new(MemoryStore::new(), "tokens", minute).unwrap();
    for number in [1, 1, 2] {
        let answer = meter.debit(("acme", 400), DebitId { stream: 7, number }).await.unwrap();
        assert!(answer.allowed && answer.receipt.is_none());
    }
}

/// A `SharedLimiter` works in the layer. Requests that its `OnOutage::Open` allows get no headers with
/// numbers: nothing was counted.
#[cfg(feature = "http")]
#[tokio::test]
async fn a_layer_reports_no_numbers_that_were_not_counted() {
    use std::convert::Infallible;

    use http::{Request, Response, StatusCode};
    use throttlekit::http::{AdmissionLayer, fixed};
    use tower::{Layer, ServiceExt, service_fn};

    let store = Flaky::new(StoreError::unavailable("down"));
    let ask = async |choice| {
        let limit = Limit::fixed_window(10, Duration::from_secs(60)).unwrap();
        let limiter = SharedLimiter::builder(store.clone(), "api", limit).on_outage(choice).build().unwrap();
        let layer = AdmissionLayer::builder(limiter, fixed("all")).name("api").build().unwrap();
        let service = service_fn(async |request: Request<()>| {
            let status = if request.extensions().get::<StoreError>().is_some() { 202 } else { 200 };
            Ok::<_, Infallible>(Response::builder().status(status).body(String::new()).unwrap())
        });
        let Ok(response) = layer.layer(service).oneshot(Request::new(())).await;
        response
    };
    let open = ask(OnOutage::Open).await;
    assert_eq!(open.status(), StatusCode::ACCEPTED, "the service sees that nobody counted");
    assert!(!open.headers().contains_key("ratelimit") && !open.headers().contains_key("ratelimit-policy"));
    assert!(open.extensions().get::<StoreError>().is_some());
    assert_eq!(ask(OnOutage::Closed).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    store.away.store(false, Relaxed);
    assert_eq!(ask(OnOutage::Open).await.headers()["ratelimit-policy"], r#""api";q=10;w=60"#);
}

//! Streams over a store in memory: their charges, however they end.
#![cfg(feature = "store")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use throttlekit::budget::{
    Reservation, ReservationOptions, Reserve, TokenBudget, TokenBudgetBuilder, TokenStream,
};
use throttlekit::clock::ManualClock;
use throttlekit::leasing::Margin;
use throttlekit::rate::Timestamp;
use throttlekit::store::{Debit, Debited, LeaseRequest, LeaseReturn, Leased, MemoryStore, Store, StoreError};
use throttlekit::{Limit, OnOutage, Retry, forward_store};

const MINUTE: Duration = Duration::from_secs(60);
const BUDGET: u64 = 1_000;

type Budget = TokenBudget<Wire, ManualClock>;
type Stream = TokenStream<Wire, ManualClock>;

/// A store whose replies get lost a given number of times, after it has handled the request.
#[derive(Clone)]
struct Wire {
    kept: Arc<MemoryStore<ManualClock>>,
    lose_leases: Arc<AtomicU64>,
    lose_debits: Arc<AtomicU64>,
    lose_returns: Arc<AtomicU64>,
    /// True while returns do not arrive.
    holds_returns: Arc<AtomicBool>,
}

fn lost(counter: &AtomicU64) -> Result<(), StoreError> {
    let loses = counter.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
    if loses { Err(StoreError::Deadline(Duration::from_millis(100))) } else { Ok(()) }
}

impl Store for Wire {
    forward_store!(Store for self => self.kept; admit, peek, settle, reset, background);

    async fn debit(&self, debits: &[Debit<'_>]) -> Vec<Result<Debited, StoreError>> {
        let answers = self.kept.debit(debits).await;
        answers.into_iter().map(|answer| lost(&self.lose_debits).and(answer)).collect()
    }

    async fn lease(&self, asks: &[LeaseRequest<'_>]) -> Vec<Result<Leased, StoreError>> {
        tokio::task::yield_now().await;
        let answers = self.kept.lease(asks).await;
        answers.into_iter().map(|answer| lost(&self.lose_leases).and(answer)).collect()
    }

    async fn give_back(&self, backs: &[LeaseReturn<'_>]) -> Result<(), StoreError> {
        while self.holds_returns.load(Relaxed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.kept.give_back(backs).await.and(lost(&self.lose_returns))
    }
}

/// Returns a clock at half a minute into a window.
fn clock() -> ManualClock {
    ManualClock::at(Timestamp::from_millis(1_700_000_010_000))
}

fn wire(clock: &ManualClock) -> Wire {
    // On the test's own runtime, whose time may be paused; on the driver thread where a test has none.
    let kept = MemoryStore::with_clock(clock.clone());
    let kept = Arc::new(match tokio::runtime::Handle::try_current() {
        Ok(runtime) => kept.runtime(runtime),
        Err(_) => kept,
    });
    let [lose_leases, lose_debits, lose_returns] = std::array::from_fn(|_| Arc::default());
    Wire { kept, lose_leases, lose_debits, lose_returns, holds_returns: Arc::default() }
}

fn builder(wire: &Wire, clock: &ManualClock, reserve: Reserve) -> TokenBudgetBuilder<Wire, ManualClock> {
    let limit = Limit::token_budget(BUDGET, MINUTE).unwrap();
    let builder = TokenBudget::builder(wire.clone(), "tokens", limit);
    builder.clock(clock.clone()).margin(Margin::NONE).reserve(reserve)
}

fn fixed(tokens: u64) -> (Budget, Wire, ManualClock) {
    let clock = clock();
    let wire = wire(&clock);
    (builder(&wire, &clock, Reserve::Fixed(tokens)).build().unwrap(), wire, clock)
}

async fn open(budget: &Budget) -> Stream {
    budget.open("acme", None).await.unwrap().stream.expect("there is enough left")
}

async fn passes(stream: &mut Stream, tokens: u64) -> bool {
    stream.debit(tokens).await.unwrap().decision.allowed
}

/// Returns the tokens left in the store.
async fn left(budget: &Budget) -> u64 {
    budget.shared().peek(b"acme").await.unwrap().remaining
}

/// Lets the renewer run.
async fn rest() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn reserved_and_used_tokens_never_exceed_the_budget() {
    let (budget, ..) = fixed(400);
    let streams = [open(&budget).await, open(&budget).await];
    assert_eq!(left(&budget).await, 200);
    let denied = budget.open("acme", None).await.unwrap();
    assert!(denied.stream.is_none() && !denied.answer.decision.allowed);
    assert_eq!(denied.answer.decision.retry_after, Retry::OnRelease, "either stream may give 400 back");
    assert_eq!(denied.answer.decision.reset_at, Timestamp::from_millis(1_700_000_040_000));
    assert_eq!(left(&budget).await, 200, "a denial sets nothing aside");
    drop(streams);
    rest().await;
    assert_eq!(left(&budget).await, BUDGET);
}

#[tokio::test(start_paused = true)]
async fn a_denial_waits_for_the_window_where_open_streams_cannot_give_enough_back() {
    let (budget, ..) = fixed(400);
    let mut streams = [open(&budget).await, open(&budget).await];
    assert!(passes(&mut streams[0], 300).await && passes(&mut streams[1], 300).await);
    let denied = |budget: Budget| async move { budget.open("acme", None).await.unwrap().answer.decision };
    assert_eq!(denied(budget.clone()).await.retry_after, Retry::OnRelease, "200 are left and 200 set aside");
    assert!(passes(&mut streams[0], 1).await);
    assert_eq!(denied(budget).await.retry_after, Retry::After(Duration::from_secs(30)));
}

#[tokio::test(start_paused = true)]
async fn a_denial_does_not_wait_for_the_window_while_tokens_are_being_returned() {
    let (budget, wire, _) = fixed(BUDGET);
    let stream = open(&budget).await;
    wire.holds_returns.store(true, Relaxed);
    let settling = tokio::spawn(stream.settle());
    tokio::time::sleep(Duration::from_millis(10)).await;
    let denied = budget.open("acme", None).await.unwrap();
    assert!(denied.stream.is_none());
    assert_eq!(denied.answer.decision.retry_after, Retry::OnRelease);
    wire.holds_returns.store(false, Relaxed);
    settling.await.unwrap().unwrap();
    assert_eq!(left(&budget).await, BUDGET);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_within_the_reservation_makes_no_call() {
    let (budget, ..) = fixed(100);
    let mut stream = open(&budget).await;
    for _ in 0..10 {
        assert!(passes(&mut stream, 10).await);
    }
    assert_eq!((stream.produced(), stream.reserved(), budget.stats().debits), (100, 0, 0));
    assert!(passes(&mut stream, 10).await);
    assert_eq!((budget.stats().debits, left(&budget).await), (1, BUDGET - 110));
}

#[tokio::test(start_paused = true)]
async fn only_the_store_crosses_the_edge_and_only_once() {
    let (budget, ..) = fixed(300);
    let mut streams = [open(&budget).await, open(&budget).await, open(&budget).await];
    // 900 are reserved. A chunk that is partly reserved takes the rest from the store.
    assert!(passes(&mut streams[0], 350).await);
    assert_eq!(left(&budget).await, 50);
    assert!(passes(&mut streams[0], 60).await, "it crosses the edge");
    assert!(!passes(&mut streams[0], 1).await);
    assert!(passes(&mut streams[1], 290).await && passes(&mut streams[2], 300).await);
    assert!(!passes(&mut streams[1], 11).await, "the ten that it holds are what the budget is over by");
    assert_eq!(streams[1].reserved(), 0, "they went back");
    let produced: u64 = streams.iter().map(TokenStream::produced).sum();
    assert_eq!(produced, BUDGET);
    assert_eq!(left(&budget).await, 0);
}

#[tokio::test(start_paused = true)]
async fn the_last_tokens_of_a_budget_can_be_used_by_the_stream_that_holds_them() {
    let (budget, ..) = fixed(1);
    let mut first = open(&budget).await;
    assert!(passes(&mut first, BUDGET - 1).await);
    let mut last = open(&budget).await;
    assert_eq!((left(&budget).await, last.reserved()), (0, 1));
    assert!(passes(&mut last, 16).await, "one token is left, and the stream itself holds it");
    assert_eq!((last.produced(), last.reserved()), (16, 0));
    assert!(!passes(&mut first, 1).await && !passes(&mut last, 1).await, "the edge is crossed once");
}

#[tokio::test(start_paused = true)]
async fn unused_tokens_are_returned_when_a_stream_settles_or_is_dropped() {
    let (budget, ..) = fixed(300);
    let mut streams = [open(&budget).await, open(&budget).await];
    for stream in &mut streams {
        assert!(passes(stream, 20).await);
    }
    let [settled, dropped] = streams;
    settled.settle().await.unwrap();
    assert_eq!(left(&budget).await, BUDGET - 320);
    drop(dropped);
    rest().await;
    assert_eq!((left(&budget).await, budget.stats().open), (BUDGET - 40, 0));
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_loses_its_reservation_and_continues_at_the_store() {
    let clock = clock();
    let wire = wire(&clock);
    let silence = Duration::from_secs(8);
    let budget = builder(&wire, &clock, Reserve::Fixed(300)).idle_timeout(silence).build().unwrap();
    let (mut silent, alive) = (open(&budget).await, open(&budget).await);
    assert!(passes(&mut silent, 100).await);
    for _ in 0..5 {
        clock.advance(Duration::from_secs(2));
        alive.heartbeat();
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert_eq!((silent.reserved(), alive.reserved(), budget.stats().silenced), (0, 300, 1));
    assert_eq!(left(&budget).await, BUDGET - 400);
    assert!(passes(&mut silent, 50).await);
    assert_eq!(left(&budget).await, BUDGET - 450);
    drop((silent, alive));
    rest().await;
    assert_eq!(left(&budget).await, BUDGET - 150);
}

#[tokio::test(start_paused = true)]
async fn a_window_that_ends_takes_the_reservation_with_it() {
    let (budget, _, clock) = fixed(300);
    let mut stream = open(&budget).await;
    assert!(passes(&mut stream, 100).await);
    clock.advance(Duration::from_secs(30) - Duration::from_nanos(1));
    assert_eq!(stream.reserved(), 200);
    clock.advance(Duration::from_nanos(1));
    assert_eq!((stream.reserved(), left(&budget).await), (0, BUDGET));
    assert!(passes(&mut stream, 30).await);
    assert_eq!(left(&budget).await, BUDGET - 30, "charged to the new window");
    stream.settle().await.unwrap();
    assert_eq!(left(&budget).await, BUDGET - 30, "nothing of the old one comes back");
}

#[tokio::test(start_paused = true)]
async fn replies_that_are_lost_make_nothing_count_twice() {
    let (budget, wire, _) = fixed(100);
    let mut stream = open(&budget).await;
    wire.lose_debits.store(2, Relaxed);
    assert!(passes(&mut stream, 130).await, "the third reply arrives");
    assert_eq!((left(&budget).await, budget.stats().debits), (BUDGET - 130, 3));

    wire.lose_debits.store(3, Relaxed);
    let refused = stream.debit(40).await.unwrap();
    assert!(!refused.decision.allowed && refused.outage.is_some());
    assert!(passes(&mut stream, 40).await, "the same again has the same name");
    assert_eq!((stream.produced(), left(&budget).await), (170, BUDGET - 170));

    let other = open(&budget).await;
    wire.lose_returns.store(3, Relaxed);
    other.settle().await.unwrap();
    assert_eq!((left(&budget).await, budget.stats().returns), (BUDGET - 170, 4));
}

#[tokio::test(start_paused = true)]
async fn a_return_without_a_response_is_retried_in_the_background() {
    let (budget, wire, _) = fixed(100);
    let stream = open(&budget).await;
    wire.lose_returns.store(5, Relaxed);
    assert!(stream.settle().await.is_err());
    rest().await;
    assert_eq!((left(&budget).await, budget.stats().returns), (BUDGET, 6));
}

#[tokio::test(start_paused = true)]
async fn a_reservation_whose_reply_is_lost_lapses_with_its_window() {
    let (budget, wire, clock) = fixed(100);
    wire.lose_leases.store(1, Relaxed);
    let refused = budget.open("acme", None).await.unwrap();
    assert!(refused.stream.is_none() && refused.answer.outage.is_some());
    assert_eq!((left(&budget).await, budget.stats().open), (BUDGET - 100, 0));
    clock.advance(MINUTE);
    assert_eq!(left(&budget).await, BUDGET);
}

#[tokio::test(start_paused = true)]
async fn an_outage_uses_the_configured_fallback() {
    let clock = clock();
    let wire = wire(&clock);
    let budget = builder(&wire, &clock, Reserve::Fixed(100)).on_outage(OnOutage::Open).build().unwrap();
    wire.lose_leases.store(1, Relaxed);
    let mut stream = open(&budget).await;
    assert_eq!(stream.reserved(), 0);
    wire.lose_debits.store(3, Relaxed);
    let open = stream.debit(5).await.unwrap();
    assert!(open.decision.allowed && open.outage.is_some());
    assert_eq!(stream.produced(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_allowed_during_an_outage_does_not_affect_the_next() {
    let clock = clock();
    let wire = wire(&clock);
    let budget = builder(&wire, &clock, Reserve::Fixed(BUDGET)).on_outage(OnOutage::Open).build().unwrap();
    let mut stream = open(&budget).await;
    assert!(passes(&mut stream, BUDGET).await);
    wire.lose_debits.store(3, Relaxed);
    assert!(passes(&mut stream, 5).await, "the store denied it, and was not heard");
    clock.advance(MINUTE / 2);
    assert!(passes(&mut stream, 5).await, "in a new window it has no reason to");
    wire.lose_debits.store(3, Relaxed);
    assert!(passes(&mut stream, 5).await, "the store charged it, and was not heard");
    assert!(passes(&mut stream, 5).await);
    assert_eq!(left(&budget).await, BUDGET - 15, "each was charged");
}

/// Opens a stream and drops the future before there is a response.
async fn walk_away(budget: &Budget) {
    let mut opening = Box::pin(budget.open("acme", None));
    let waker = std::task::Waker::noop();
    assert!(opening.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
    drop(opening);
    rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_dropped_while_a_stream_opens_leaks_nothing() {
    let (budget, ..) = fixed(100);
    walk_away(&budget).await;
    assert_eq!((left(&budget).await, budget.stats().open, budget.stats().opened), (BUDGET, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stream_above_the_maximum_waits_for_another_to_end() {
    let clock = clock();
    let budget = builder(&wire(&clock), &clock, Reserve::Fixed(1)).streams_max(2).build().unwrap();
    let streams = [open(&budget).await, open(&budget).await];
    let denied = budget.open("acme", None).await.unwrap();
    assert_eq!(denied.answer.decision.retry_after, Retry::OnRelease);
    drop(streams);
    open(&budget).await;
}

#[tokio::test(start_paused = true)]
async fn every_admitted_stream_is_observed_by_the_learner() {
    let clock = clock();
    let options = ReservationOptions { max: 200, ..ReservationOptions::default() };
    let learner = Reservation::new(options).unwrap();
    let budget =
        builder(&wire(&clock), &clock, Reserve::PerKey { fresh: learner, keys_max: 16 }).build().unwrap();
    for _ in 0..200 {
        clock.advance(MINUTE);
        let mut stream = open(&budget).await;
        assert!(passes(&mut stream, 40).await);
    }
    let reserved = open(&budget).await.reserved();
    assert!(reserved.abs_diff(40) <= 15, "{reserved} set aside for streams of 40 tokens");
    for _ in 0..50 {
        clock.advance(MINUTE);
        let mut stream = budget.open("acme", Some(60)).await.unwrap().stream.unwrap();
        assert!(passes(&mut stream, 60).await);
    }
    let hinted = budget.open("acme", Some(60)).await.unwrap().stream.unwrap();
    assert_eq!(hinted.reserved(), 60);
}

#[tokio::test(start_paused = true)]
async fn streams_that_were_never_taken_are_not_observed_by_the_learner() {
    let clock = clock();
    let options = ReservationOptions { max: 200, ..ReservationOptions::default() };
    let learner = Reservation::new(options).unwrap();
    let budget = builder(&wire(&clock), &clock, Reserve::Learned(learner)).build().unwrap();
    drop(open(&budget).await);
    let before = open(&budget).await;
    for _ in 0..20 {
        walk_away(&budget).await;
    }
    let after = open(&budget).await;
    assert_eq!((after.reserved(), budget.stats().opened), (before.reserved(), 23));
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_budget_admits_nothing_and_no_reservation_exceeds_it() {
    for tokens in [0, u64::MAX] {
        let (budget, ..) = fixed(tokens);
        let mut first = open(&budget).await;
        assert_eq!(first.reserved(), tokens.clamp(1, BUDGET));
        assert!(passes(&mut first, BUDGET).await && !passes(&mut first, 1).await);
        assert!(budget.open("acme", None).await.unwrap().stream.is_none());
    }
}

/// The unused part of a stream's reservation is returned in the background, whatever happened to the runtime
/// it was opened on.
#[test]
fn a_stream_dropped_without_a_runtime_returns_unused_tokens() {
    let (budget, ..) = fixed(100);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let stream = runtime().block_on(open(&budget));
    assert_eq!(runtime().block_on(left(&budget)), BUDGET - 100);
    drop(stream);
    eventually(|| runtime().block_on(left(&budget)) == BUDGET);
}

/// Waits for background work, on a machine that may be busy.
fn eventually(done: impl Fn() -> bool) {
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(tokio::time::Instant::now() < until, "not done within 30 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_stream_outlives_the_runtime_that_it_was_opened_on() {
    let (budget, ..) = fixed(100);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let stream = runtime().block_on(open(&budget));
    runtime().block_on(async {
        let other = open(&budget).await;
        drop(stream);
        while left(&budget).await != BUDGET - 100 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(other.reserved(), 100);
    });
}

#[test]
fn limits_that_set_nothing_aside_are_refused() {
    let clock = clock();
    let over = |limit| TokenBudget::builder(wire(&clock), "tokens", limit).build().map(|_| ());
    assert!(over(Limit::sliding_log(10, MINUTE).unwrap()).is_err());
    assert!(over(Limit::token_budget(10, Duration::from_micros(500)).unwrap()).is_err());
    assert!(over(Limit::fixed_window(10, MINUTE).unwrap()).is_ok());
}

//! Small budgets are exhausted without hints, and no key changes what another reserves.
#![cfg(feature = "store")]

use std::time::Duration;

use throttlekit::budget::{Reservation, Reserve, TokenBudget, TokenStream};
use throttlekit::clock::ManualClock;
use throttlekit::rate::Timestamp;
use throttlekit::store::MemoryStore;
use throttlekit::{Decision, Limit};

type Budget = TokenBudget<MemoryStore<ManualClock>, ManualClock>;
type Stream = TokenStream<MemoryStore<ManualClock>, ManualClock>;

const MINUTE: Duration = Duration::from_secs(60);
const TOKENS: u64 = 50;

fn per_key() -> Reserve {
    Reserve::PerKey { fresh: Reservation::default(), keys_max: 1_024 }
}

fn shared() -> Reserve {
    Reserve::Learned(Reservation::default())
}

fn budget(units: u64, reserve: Reserve) -> (Budget, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
    let limit = Limit::token_budget(units, MINUTE).unwrap();
    let builder = TokenBudget::builder(MemoryStore::with_clock(clock.clone()), "tokens", limit);
    (builder.clock(clock.clone()).reserve(reserve).build().unwrap(), clock)
}

/// Runs streams of fifty tokens one after another until one is denied. Returns their use and the denial.
async fn use_up(budget: &Budget, key: &str) -> (u64, Decision) {
    let mut used = 0;
    loop {
        let opened = budget.open(key, None).await.unwrap();
        let Some(mut stream) = opened.stream else { return (used, opened.answer.decision) };
        if stream.debit(TOKENS).await.unwrap().decision.allowed {
            used += TOKENS;
        }
        stream.settle().await.unwrap();
    }
}

/// Runs four hundred keys with streams of one token more than is reserved for them.
async fn poison(budget: &Budget) {
    for key in 0..400 {
        let Some(mut stream) = budget.open(format!("evil{key}"), None).await.unwrap().stream else {
            continue;
        };
        let mut left = stream.reserved() + 1;
        while left > 0 && stream.debit(left.min(500)).await.unwrap().decision.allowed {
            left -= left.min(500);
        }
    }
}

/// Returns the reservation for the next stream of a key. The stream is kept: one that ends trains the
/// learner.
async fn reserved(budget: &Budget, key: &str, kept: &mut Vec<Stream>) -> u64 {
    kept.extend(budget.open(key, None).await.unwrap().stream);
    kept.last().expect("the key has its whole budget").reserved()
}

#[tokio::test]
async fn a_small_budget_is_used_up_from_the_first_minute_without_hints() {
    for units in [500, 1_000, 2_000, 4_000, 10_000] {
        for reserve in [Reserve::default(), per_key(), shared()] {
            let (budget, clock) = budget(units, reserve);
            for minute in 1..=40 {
                let (used, denial) = use_up(&budget, "acme").await;
                assert!(used * 20 >= units * 19, "{used} of {units} in minute {minute}");
                assert!(denial.remaining * 20 < units, "{} of {units} left at a denial", denial.remaining);
                clock.advance(MINUTE);
            }
        }
    }
}

#[tokio::test]
async fn slow_streams_reserve_no_more_than_they_can_spend_before_their_window_ends() {
    let ((budget, clock), mut kept) = (budget(500, Reserve::default()), Vec::new());
    // One token per second, for a little more than three windows: a quarter of the budget is reserved if only
    // lengths are learned.
    let mut stream = budget.open("slow", None).await.unwrap().stream.unwrap();
    while stream.produced() < 200 {
        clock.advance(Duration::from_secs(10));
        assert!(stream.debit(10).await.unwrap().decision.allowed);
    }
    clock.advance(Duration::from_secs(3_600));
    stream.settle().await.unwrap();

    clock.advance(Duration::from_secs(40));
    for _ in 0..8 {
        assert_eq!(
            reserved(&budget, "slow", &mut kept).await,
            60,
            "a window's worth, whenever it was settled"
        );
    }
    kept.clear();
    clock.advance(MINUTE + Duration::from_millis(59_500));
    assert_eq!(reserved(&budget, "slow", &mut kept).await, 1, "a stream begins with one token at least");
}

#[tokio::test]
async fn an_attacker_does_not_lower_the_use_of_others() {
    for units in [1_000, 4_000, 10_000] {
        for reserve in [Reserve::default(), per_key(), shared()] {
            let (budget, _) = budget(units, reserve);
            for tenant in 0..20 {
                use_up(&budget, &format!("honest{tenant}")).await;
            }
            poison(&budget).await;
            let (used, _) = use_up(&budget, "victim").await;
            assert!(used * 20 >= units * 19, "{used} of {units}");
        }
    }
}

#[tokio::test]
async fn no_key_changes_the_reservations_of_another() {
    let ((budget, clock), mut kept) = (budget(4_000, Reserve::default()), Vec::new());
    let stranger = reserved(&budget, "stranger", &mut kept).await;
    use_up(&budget, "victim").await;
    clock.advance(MINUTE);
    let learned = reserved(&budget, "victim", &mut kept).await;
    assert!(learned <= TOKENS, "{learned}");
    poison(&budget).await;
    for _ in 0..2_000 {
        drop(budget.open("evil", None).await.unwrap());
    }
    assert_eq!(reserved(&budget, "victim", &mut kept).await, learned);
    assert_eq!(reserved(&budget, "another stranger", &mut kept).await, stranger);
}

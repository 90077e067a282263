//! A shared budget as users hold it: names, places, threads, windows.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use throttlekit::fair::{Escrow, FairRule, FairShare, FairStats, GiveBack, Weight};
use throttlekit::{Cadence, Call, FairLimiter, ManualClock, Retry, Timestamp};

const MINUTE: Duration = Duration::from_secs(60);

fn noon() -> ManualClock {
    ManualClock::at(Timestamp::from_millis(1_800_000_000_000))
}

fn escrow(limit: u64) -> Escrow {
    Escrow::new(limit, Cadence::every(MINUTE)).expect("a limit")
}

#[test]
fn weights_go_by_name_and_a_new_one_counts_from_the_next_ask() {
    let pro = |tenant: &[u8]| Weight::new(if tenant.starts_with(b"pro:") { 3 } else { 1 }).unwrap();
    let limiter = FairLimiter::builder(escrow(100)).weights(pro).clock(noon()).build();
    assert!(limiter.check("pro:ann").allowed && limiter.check("bob").allowed);
    assert!(limiter.check(Call::by("bob").cost(24)).allowed);
    assert!(!limiter.check("bob").allowed);
    assert!(limiter.check_weighing(Call::by("bob").cost(25), Weight::new(3).unwrap()).allowed);
    let next = limiter.check("bob");
    assert_eq!(
        (next.allowed, next.limit),
        (false, 50),
        "by its own weight it is far above its guarantee again"
    );
}

#[test]
fn an_ask_of_nothing_tells_a_stranger_what_it_would_get_and_leaves_no_trace() {
    let limiter = FairLimiter::builder(escrow(100)).clock(noon()).build();
    assert!(limiter.check(Call::by("ann").cost(10)).allowed);
    assert_eq!(limiter.check(Call::by("bob").cost(0)).remaining, 50);
    assert_eq!(limiter.stats(), FairStats { limit: 100, used: 10, tenants: 1, displaced: 0 });
    assert!(limiter.check(Call::by("ann").cost(90)).allowed, "nothing is reserved for who has not asked");
}

#[test]
fn a_stranger_without_a_place_of_its_own_is_told_what_the_place_it_would_take_gets() {
    let share = FairShare::new(100, Cadence::every(MINUTE)).expect("a limit");
    let by = GiveBack { quiet_after: MINUTE, over: MINUTE };
    for rule in [escrow(100).into(), escrow(100).give_back(by).into(), FairRule::from(share)] {
        let limiter = FairLimiter::builder(rule).tenants_max(2).clock(noon()).build();
        assert!(
            limiter.check(Call::by("ann").cost(30)).allowed
                && limiter.check(Call::by("bob").cost(20)).allowed
        );
        let three = Weight::new(3).unwrap();
        let told = limiter.check_weighing(Call::by("eve").cost(0), three);
        assert_eq!(told.remaining, 50, "Bob's place at her weight: 75, of which he used 20, and 50 are left");
        assert_eq!(limiter.check(Call::by("bob").cost(0)).remaining, 30, "he weighs what he did");
        assert_eq!(limiter.stats(), FairStats { limit: 100, used: 50, tenants: 2, displaced: 0 });
        assert!(limiter.check_weighing(Call::by("eve").cost(told.remaining), three).allowed);
    }
}

#[test]
fn a_window_ends_for_everyone_at_once() {
    let clock = noon();
    let limiter = FairLimiter::builder(escrow(10)).clock(clock.clone()).build();
    assert!(limiter.check(Call::by("ann").cost(10)).allowed);
    let denied = limiter.check("bob");
    assert_eq!((denied.allowed, denied.retry_after), (false, Retry::after(MINUTE)));
    clock.advance(MINUTE);
    assert_eq!(limiter.stats(), FairStats { limit: 10, used: 0, tenants: 0, displaced: 0 });
    assert!(limiter.check(Call::by("bob").cost(10)).allowed);
}

#[test]
fn a_reset_hands_back_what_was_used_and_a_limit_can_change() {
    let limiter = FairLimiter::builder(escrow(10)).clock(noon()).build();
    assert!(limiter.check(Call::by("ann").cost(10)).allowed && !limiter.check("ann").allowed);
    limiter.set_limit(12);
    assert!(limiter.check(Call::by("ann").cost(2)).allowed);
    limiter.set_limit(5);
    assert!(!limiter.check("bob").allowed);
    limiter.reset("ann");
    limiter.reset("nobody");
    assert!(limiter.check(Call::by("bob").cost(5)).allowed);
}

/// Law `bounded-memory`: a flood of names finds as many places as there are, and nobody gets a fresh budget by it.
#[test]
fn a_flood_of_names_never_brings_more_than_the_limit() {
    const PLACES: usize = 16;
    let limiter = FairLimiter::builder(escrow(1_000)).tenants_max(PLACES).clock(noon()).build();
    let mut abuser = 0;
    for name in 0..5_000_u64 {
        abuser += u64::from(limiter.check("abuser").allowed);
        limiter.check(&name.to_le_bytes());
    }
    let stats = limiter.stats();
    assert_eq!((stats.used, stats.tenants), (1_000, PLACES));
    assert!(stats.displaced > 4_000);
    assert!(abuser <= 1_000 / PLACES as u64 + 1, "{abuser}: coming back is no way to more");
}

#[test]
fn threads_that_ask_at_once_get_the_limit_together_and_their_shares_each() {
    let limiter = Arc::new(FairLimiter::builder(escrow(40_000)).clock(noon()).build());
    (0..4).for_each(|tenant: u8| assert!(limiter.check(&[tenant]).allowed));
    let admitted = |tenant: u8| (0..30_000).filter(|_| limiter.check(&[tenant]).allowed).count();
    let shares: Vec<usize> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|tenant| scope.spawn(move || admitted(tenant))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(shares, [9_999; 4], "a quarter each, with the first ask");
    assert_eq!(limiter.stats().used, 40_000);
}

#[test]
fn quiet_tenants_give_back_if_that_was_chosen() {
    let by = GiveBack { quiet_after: Duration::from_secs(10), over: Duration::from_secs(10) };
    for (rule, most) in [(escrow(100), 50), (escrow(100).give_back(by), 99)] {
        let clock = noon();
        let limiter = FairLimiter::builder(rule).clock(clock.clone()).build();
        assert!(limiter.check("quiet").allowed && limiter.check("busy").allowed);
        clock.advance(Duration::from_secs(30));
        let told = limiter.check(Call::by("busy").cost(101));
        assert_eq!(told.limit, most);
    }
}

#[test]
fn plain_shares_are_held_in_the_same_way() {
    let rule = FairShare::new(100, Cadence::every(MINUTE)).expect("a limit");
    let limiter = FairLimiter::builder(rule).tenants_max(2).clock(noon()).build();
    assert!(limiter.check(Call::by("ann").cost(60)).allowed);
    assert_eq!(limiter.check(Call::by("bob").cost(0)).limit, 50);
    assert!(!limiter.check(Call::by("bob").cost(41)).allowed, "40 are left of the whole");
    assert!(limiter.check(Call::by("bob").cost(40)).allowed && !limiter.check("ann").allowed);
    assert!(!limiter.check(Call::by("eve").cost(11)).allowed, "Bob's place, and the forty that he used");
    assert_eq!(limiter.stats(), FairStats { limit: 100, used: 100, tenants: 2, displaced: 1 });
    limiter.reset("ann");
    limiter.set_limit(200);
    assert_eq!(limiter.check("ann").limit, 100);
}

#[cfg(feature = "http")]
#[test]
fn a_shared_budget_stands_in_a_layer_as_any_limiter_does() {
    use throttlekit::http::Admit;

    let limiter = std::sync::Arc::new(FairLimiter::builder(escrow(100)).clock(noon()).build());
    assert_eq!((limiter.units(), Admit::period(&*limiter)), (100, Some(MINUTE)));
    let answer = limiter.admit(Call::by("ann").cost(101)).into_inner();
    assert!(answer.is_ok_and(|decision| !decision.allowed && decision.limit == 100));
}

/// Every rule, with all that has to be kept in step with what is used.
fn rules(limit: u64) -> [FairRule; 3] {
    let by = GiveBack { quiet_after: MINUTE / 4, over: MINUTE / 4 };
    let share = FairShare::new(limit, Cadence::every(MINUTE)).expect("a limit");
    [escrow(limit).into(), escrow(limit).give_back(by).into(), share.into()]
}

#[test]
fn what_was_not_used_is_there_again_for_everyone() {
    for rule in rules(100) {
        let limiter = FairLimiter::builder(rule).clock(noon()).build();
        let charged = limiter.check(Call::by("ann").cost(60));
        assert!(charged.allowed && !limiter.check(Call::by("bob").cost(50)).allowed);
        limiter.refund("ann", 50, charged.reset_at);
        assert_eq!(limiter.stats().used, 10);
        assert!(
            limiter.check(Call::by("bob").cost(50)).allowed
                && limiter.check(Call::by("ann").cost(40)).allowed
        );
        limiter.refund("ann", u64::MAX, charged.reset_at);
        assert_eq!(limiter.stats().used, 50, "never more than it has used");
    }
}

#[test]
fn nothing_is_handed_back_into_another_window_nor_to_who_has_no_place() {
    for rule in rules(100) {
        let clock = noon();
        let limiter = FairLimiter::builder(rule).tenants_max(1).clock(clock.clone()).build();
        let charged = limiter.check(Call::by("ann").cost(60));
        assert!(limiter.check(Call::by("bob").cost(10)).allowed, "in her place");
        limiter.refund("ann", 60, charged.reset_at);
        assert_eq!(limiter.stats().used, 70);
        clock.advance(MINUTE);
        assert!(limiter.check(Call::by("ann").cost(60)).allowed);
        limiter.refund("ann", 60, charged.reset_at);
        assert_eq!(limiter.stats().used, 60);
    }
}

#[test]
fn what_was_used_and_not_asked_for_is_owed_by_who_asked_and_who_did_not() {
    for rule in rules(100) {
        let limiter = FairLimiter::builder(rule).clock(noon()).build();
        assert!(limiter.check(Call::by("ann").cost(40)).allowed);
        limiter.owe(Call::by("ann").cost(30));
        limiter.owe_weighing(Call::by("bob").cost(70), Weight::new(3).unwrap());
        assert_eq!(limiter.stats(), FairStats { limit: 100, used: 140, tenants: 2, displaced: 0 });
        assert!(["ann", "bob", "eve"].iter().all(|tenant| !limiter.check(*tenant).allowed));
        limiter.owe(Call::by("joe").cost(0));
        assert_eq!(limiter.stats().tenants, 3, "to owe nothing changes nothing");
    }
}

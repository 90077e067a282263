//! A shared budget through the public API: names, entries, threads, windows.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use throttlekit::clock::{Clock, ManualClock};
use throttlekit::fair::{FairLimiterBuilder, FairRule, GiveBack};
use throttlekit::rate::Timestamp;
use throttlekit::{Budget, Call, FairLimiter, Retry};

const MINUTE: Duration = Duration::from_secs(60);

fn noon() -> ManualClock {
    ManualClock::at(Timestamp::from_millis(1_800_000_000_000))
}

fn minute(units: u64) -> FairLimiterBuilder {
    FairLimiter::builder(Budget::per_minute(units))
}

/// Limit, units used, tenants with an entry, and entries taken over.
fn stats(limiter: &FairLimiter<impl Clock>) -> (u64, u64, usize, u64) {
    let stats = limiter.stats();
    (stats.limit, stats.used, stats.tenants, stats.displaced)
}

#[test]
fn weights_are_set_by_name_and_apply_from_the_next_request() {
    let pro = |tenant: &[u8]| if tenant.starts_with(b"pro:") { 3 } else { 1 };
    let limiter = minute(100).weights(pro).clock(noon()).build().unwrap();
    assert!(limiter.check("pro:ann").allowed && limiter.check("bob").allowed);
    assert!(limiter.check(Call::by("bob").cost(24)).allowed);
    assert!(!limiter.check("bob").allowed);
    assert!(limiter.check(Call::by("bob").cost(25).weight(3)).allowed);
    let next = limiter.check("bob");
    assert_eq!(
        (next.allowed, next.limit),
        (false, 50),
        "by its own weight it is far above its guarantee again"
    );
}

#[test]
fn a_request_of_zero_shows_an_unknown_tenant_its_share_and_leaves_no_trace() {
    let limiter = minute(100).clock(noon()).build().unwrap();
    assert!(limiter.check(Call::by("ann").cost(10)).allowed);
    assert_eq!(limiter.check(Call::by("bob").cost(0)).remaining, 50);
    assert_eq!(stats(&limiter), (100, 10, 1, 0));
    assert!(limiter.check(Call::by("ann").cost(90)).allowed, "nothing is reserved for who has not asked");
}

#[test]
fn an_unknown_tenant_without_an_entry_sees_the_share_of_the_entry_it_would_take() {
    for rule in RULES {
        let limiter = minute(100).rule(rule).tenants_max(2).clock(noon()).build().unwrap();
        assert!(
            limiter.check(Call::by("ann").cost(30)).allowed
                && limiter.check(Call::by("bob").cost(20)).allowed
        );
        let eve = Call::by("eve").weight(3);
        let told = limiter.check(eve.cost(0));
        assert_eq!(told.remaining, 50, "Bob's place at her weight: 75, of which he used 20, and 50 are left");
        assert_eq!(limiter.check(Call::by("bob").cost(0)).remaining, 30, "he weighs what he did");
        assert_eq!(stats(&limiter), (100, 50, 2, 0));
        assert!(limiter.check(eve.cost(told.remaining)).allowed);
    }
}

#[test]
fn a_window_ends_for_everyone_at_once() {
    let clock = noon();
    let limiter = minute(10).clock(clock.clone()).build().unwrap();
    assert!(limiter.check(Call::by("ann").cost(10)).allowed);
    let denied = limiter.check("bob");
    assert_eq!((denied.allowed, denied.retry_after), (false, Retry::after(MINUTE)));
    clock.advance(MINUTE);
    assert_eq!(stats(&limiter), (10, 0, 0, 0));
    assert!(limiter.check(Call::by("bob").cost(10)).allowed);
}

#[test]
fn a_reset_returns_use_and_a_limit_can_change() {
    let limiter = minute(10).clock(noon()).build().unwrap();
    assert!(limiter.check(Call::by("ann").cost(10)).allowed && !limiter.check("ann").allowed);
    limiter.set_limit(12);
    assert!(limiter.check(Call::by("ann").cost(2)).allowed);
    limiter.set_limit(5);
    assert!(!limiter.check("bob").allowed);
    limiter.reset("ann");
    limiter.reset("nobody");
    assert!(limiter.check(Call::by("bob").cost(5)).allowed);
}

/// Guarantee `bounded-memory`: a flood of names gets at most the available entries, and none gets a fresh
/// budget by it.
#[test]
fn a_flood_of_names_never_brings_more_than_the_limit() {
    const PLACES: usize = 16;
    let limiter = minute(1_000).tenants_max(PLACES).clock(noon()).build().unwrap();
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
fn concurrent_threads_get_the_limit_in_total_and_their_share_each() {
    let limiter = Arc::new(minute(40_000).clock(noon()).build().unwrap());
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
fn quiet_tenants_return_their_share_if_configured() {
    let by = GiveBack { quiet_after: Duration::from_secs(10), over: Duration::from_secs(10) };
    for (rule, most) in [(FairRule::Escrow, 50), (FairRule::GiveBack(by), 99)] {
        let clock = noon();
        let limiter = minute(100).rule(rule).clock(clock.clone()).build().unwrap();
        assert!(limiter.check("quiet").allowed && limiter.check("busy").allowed);
        clock.advance(Duration::from_secs(30));
        let told = limiter.check(Call::by("busy").cost(101));
        assert_eq!(told.limit, most);
    }
}

#[test]
fn plain_shares_are_held_in_the_same_way() {
    let limiter = minute(100).without_borrowing().tenants_max(2).clock(noon()).build().unwrap();
    assert!(limiter.check(Call::by("ann").cost(60)).allowed);
    assert_eq!(limiter.check(Call::by("bob").cost(0)).limit, 50);
    assert!(!limiter.check(Call::by("bob").cost(41)).allowed, "40 are left of the whole");
    assert!(limiter.check(Call::by("bob").cost(40)).allowed && !limiter.check("ann").allowed);
    assert!(!limiter.check(Call::by("eve").cost(11)).allowed, "Bob's place, and the forty that he used");
    assert_eq!(stats(&limiter), (100, 100, 2, 1));
    limiter.reset("ann");
    limiter.set_limit(200);
    assert_eq!(limiter.check("ann").limit, 100);
}

#[test]
fn a_fair_limiter_decides_behind_the_trait_of_all_limiters() {
    use throttlekit::Admit;

    let limiter = minute(100).clock(noon()).build().unwrap();
    let limits = limiter.limits();
    assert_eq!((limits[0].units, limits[0].period), (100, Some(MINUTE)));
    let answer = limiter.admit(Call::by("ann").cost(101)).now_or_later();
    assert!(matches!(answer, Ok(Ok(admission)) if !admission.allowed && admission.limit == 100));
}

/// Every rule.
const RULES: [FairRule; 3] = [
    FairRule::Escrow,
    FairRule::GiveBack(GiveBack { quiet_after: Duration::from_secs(15), over: Duration::from_secs(15) }),
    FairRule::Cap,
];

#[test]
fn unused_units_are_available_to_every_tenant_again() {
    for rule in RULES {
        let limiter = minute(100).rule(rule).clock(noon()).build().unwrap();
        let (charged, receipt) = limiter.charge(("ann", 60));
        assert!(charged.allowed && !limiter.check(("bob", 50)).allowed);
        limiter.settle(receipt.unwrap(), 10);
        assert_eq!(limiter.stats().used, 10);
        assert!(limiter.check(("bob", 50)).allowed && limiter.check(("ann", 40)).allowed);
        limiter.refund(("ann", u64::MAX), charged.reset_at);
        assert_eq!(limiter.stats().used, 50, "never more than it has used");
    }
}

#[test]
fn nothing_returns_to_another_window_nor_to_a_tenant_without_an_entry() {
    for rule in RULES {
        let clock = noon();
        let limiter = minute(100).rule(rule).tenants_max(1).clock(clock.clone()).build().unwrap();
        let [first, second] = [20, 40].map(|cost| limiter.charge(("ann", cost)).1.unwrap());
        assert!(limiter.check(("bob", 10)).allowed, "in her entry");
        limiter.settle(first, 0);
        assert_eq!(limiter.stats().used, 70);
        clock.advance(MINUTE);
        assert!(limiter.check(("ann", 60)).allowed);
        limiter.settle(second, 0);
        assert_eq!(limiter.stats().used, 60);
    }
}

#[test]
fn use_beyond_the_estimate_is_charged_also_beyond_the_limit() {
    for rule in RULES {
        let limiter = minute(100).rule(rule).clock(noon()).build().unwrap();
        limiter.settle(limiter.charge(("ann", 40)).1.unwrap(), 70);
        let unasked = limiter.charge(Call::by("bob").cost(0).weight(3)).1.unwrap();
        limiter.settle(unasked, 70);
        assert_eq!(stats(&limiter), (100, 140, 2, 0));
        assert!(["ann", "bob", "eve"].iter().all(|tenant| !limiter.check(*tenant).allowed));
        limiter.settle(limiter.charge(("joe", 0)).1.unwrap(), 0);
        assert_eq!(limiter.stats().tenants, 3, "no use changes nothing");
    }
}

#[test]
fn a_peek_reports_whether_one_unit_would_pass_and_changes_nothing() {
    for rule in RULES {
        let limiter = minute(100).rule(rule).clock(noon()).build().unwrap();
        assert!(limiter.peek("ann").allowed && limiter.check(("ann", 100)).allowed);
        let spent = limiter.peek("bob");
        assert_eq!((spent.allowed, spent.remaining), (false, 0));
        assert_eq!(spent.retry_after, Retry::after(MINUTE));
        assert_eq!(stats(&limiter), (100, 100, 1, 0));
    }
}

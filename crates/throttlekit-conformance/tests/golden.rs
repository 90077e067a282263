//! The golden vectors of the first implementation, field by field; and the one hint of theirs that is wrong.

use std::time::Duration;

use throttlekit_conformance::{CoreSubject, Subject, golden};
use throttlekit_core::rate::SlidingWindow;
use throttlekit_core::{Retry, Timestamp};

#[test]
fn all_rate_and_budget_suites_pass_field_for_field() {
    let suites = golden::suites();
    assert_eq!(suites.len(), 12, "the first implementation has nine rate suites and three of token budgets");
    for suite in suites {
        let limit = suite.spec.limit().unwrap();
        suite.play(&mut CoreSubject::new(limit)).unwrap_or_else(|difference| panic!("{difference}"));
    }
}

/// Its third request is denied with a hint of 100 ms, when the next bucket begins. But nothing slides out
/// then: the request is denied again. The exact wait is longer, and correct to the nanosecond.
#[test]
fn the_sliding_window_hint_is_refuted_and_the_exact_wait_is_right() {
    let rule = SlidingWindow::new(10, Duration::from_secs(1), 10).unwrap();
    let at = Timestamp::from_millis;
    let third_ask = |rule: SlidingWindow| {
        let mut subject = CoreSubject::new(rule.into());
        assert!(subject.check("k", 6, at(0)).allowed && subject.check("k", 4, at(500)).allowed);
        let denied = subject.check("k", 1, at(500));
        (subject, denied.retry_after)
    };

    let (mut hinted, hint) = third_ask(rule.retry_at_next_bucket());
    assert_eq!(hint, Retry::After(Duration::from_millis(100)));
    assert!(!hinted.check("k", 1, at(600)).allowed, "asking again when told to is in vain");

    let (mut exact, retry) = third_ask(rule);
    let wait = retry.wait().unwrap();
    assert_eq!(wait, Duration::from_nanos(516_666_667), "a sixth of the first bucket has slid out");
    let promised = at(500) + wait;
    assert!(!exact.check("k", 1, Timestamp::from_nanos(promised.as_nanos() - 1)).allowed);
    assert!(exact.check("k", 1, promised).allowed);
}

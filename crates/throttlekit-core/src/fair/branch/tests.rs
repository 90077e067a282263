use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const PLAN: BranchPlan = BranchPlan { limit: 100, quantum: 10, hold: SECOND, margin: Margin::NONE };
const ONE: Weight = Weight::ONE;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn grant(granted: Cost, more: Cost, epoch: u64, lives: Duration) -> PoolGrant {
    PoolGrant { granted, more, epoch: Epoch(epoch), lives }
}

/// A branch with one tenant and `granted` units of window 1, which ends at ten seconds.
fn holding(granted: Cost, more: Cost) -> (Branch, Member) {
    let mut branch = Branch::new(PLAN);
    let tenant = branch.roster_mut().join(ONE);
    branch.wait(granted);
    let request = branch.poll_request(1, at(0)).unwrap();
    assert_eq!(branch.handle_reply(request.id, grant(granted, more, 1, 10 * SECOND), at(0), at(1)), CREDITED);
    branch.stop_waiting(granted);
    (branch, tenant)
}

const CREDITED: Credit = Credit::Credited { anew: false };

#[test]
fn local_units_are_spent_without_a_call_to_the_store() {
    let (mut branch, tenant) = holding(10, 90);
    for left in (0..10).rev() {
        assert!(matches!(branch.ask(tenant, ONE, 1, at(2)), BranchDecision::Admit(_)));
        assert_eq!(branch.in_hand(), left);
    }
    assert_eq!(branch.ask(tenant, ONE, 1, at(2)), BranchDecision::Wait { needs: 1 });
    assert_eq!(branch.poll_request(2, at(2)), None, "nobody waits");
}

#[test]
fn one_request_is_in_flight_for_all_waiters_and_credited_once() {
    let (mut branch, tenant) = holding(0, 100);
    (0..12).for_each(|_| branch.wait(1));
    let request = branch.poll_request(2, at(2)).unwrap();
    assert_eq!(request.wants, 20, "two quanta for twelve");
    assert_eq!(branch.poll_request(3, at(2)), None);
    assert_eq!(branch.handle_reply(2, grant(20, 80, 1, 8 * SECOND), at(3), at(3)), CREDITED);
    assert_eq!(branch.handle_reply(2, grant(20, 80, 1, 8 * SECOND), at(3), at(3)), Credit::Lapsed);
    assert_eq!(branch.in_hand(), 20);
    assert!(matches!(branch.ask(tenant, ONE, 20, at(3)), BranchDecision::Admit(_)));
}

#[test]
fn units_die_with_their_window_and_a_late_reply_is_not_spent_in_the_next() {
    let (mut branch, _) = holding(10, 90);
    branch.wait(50);
    let request = branch.poll_request(2, at(9_000)).unwrap();
    assert!(!branch.advance(at(9_999)) && branch.lives(at(9_999)));
    assert!(branch.advance(at(10_000)));
    // It was sent while its units had a second to live, and took two.
    let late = grant(40, 50, 1, SECOND);
    assert_eq!(branch.handle_reply(request.id, late, at(9_000), at(11_000)), Credit::Lapsed);
    assert_eq!((branch.in_hand(), branch.lives(at(11_000))), (0, false));
}

#[test]
fn a_reply_of_another_window_starts_it_and_discards_older_units() {
    let (mut branch, _) = holding(10, 90);
    branch.wait(50);
    branch.poll_request(2, at(9_000)).unwrap();
    let next = branch.handle_reply(2, grant(40, 60, 2, 10 * SECOND), at(9_500), at(9_500));
    assert_eq!((next, branch.in_hand()), (Credit::Credited { anew: true }, 40));
}

#[test]
fn a_tenant_at_its_share_is_denied_until_a_retry_can_succeed() {
    let (mut branch, tenant) = holding(10, 10);
    let other = branch.roster_mut().join(ONE);
    assert_eq!(branch.ask(tenant, ONE, 11, at(2)), BranchDecision::Wait { needs: 0 }, "the weight is new");
    branch.wait(0);
    assert_eq!(branch.poll_request(2, at(2)).unwrap().wants, 0);
    branch.handle_reply(2, grant(0, 10, 1, 10 * SECOND), at(2), at(2));
    branch.stop_waiting(0);
    assert!(matches!(branch.ask(tenant, ONE, 10, at(2)), BranchDecision::Admit(_)));
    let BranchDecision::Deny(denied) = branch.ask(tenant, ONE, 1, at(3)) else {
        panic!("ten are the other's")
    };
    assert_eq!(denied.retry_after.wait_ms(), Some(9_998));
    assert_eq!(
        branch.ask(tenant, ONE, 1, at(1_002)),
        BranchDecision::Wait { needs: 0 },
        "that was heard a second ago"
    );
    assert_eq!(branch.ask(other, ONE, 10, at(3)), BranchDecision::Wait { needs: 10 }, "still to be fetched");
}

/// The budget's clock is stopped: after a second of ours its window has as long to go as before.
#[test]
fn a_denial_has_a_retry_after_also_where_the_clocks_disagree() {
    let (mut branch, tenant) = holding(10, 0);
    assert!(matches!(branch.ask(tenant, ONE, 10, at(2)), BranchDecision::Admit(_)));
    branch.wait(0);
    branch.poll_request(2, at(9_990)).unwrap();
    branch.handle_reply(2, grant(0, 0, 1, 10 * SECOND), at(0), at(9_990));
    branch.stop_waiting(0);
    let BranchDecision::Deny(denied) = branch.ask(tenant, ONE, 1, at(10_500)) else {
        panic!("nothing is left")
    };
    assert_eq!(denied.retry_after.wait_ms(), Some(9_490), "until its units die and are asked for anew");
    assert!(branch.advance(at(10_500 + 9_490)));
}

#[test]
fn expired_units_are_not_reported() {
    let (mut branch, tenant) = holding(10, 0);
    assert!(matches!(branch.ask(tenant, ONE, 10, at(2)), BranchDecision::Admit(_)));
    assert!(matches!(branch.ask(tenant, ONE, 1, at(3)), BranchDecision::Deny(_)));
    assert_eq!(branch.ask(tenant, ONE, 1, at(10_001)), BranchDecision::Wait { needs: 1 });
}

#[test]
fn a_cost_above_the_limit_is_never_admitted() {
    let (mut branch, tenant) = holding(10, 90);
    let BranchDecision::Deny(denied) = branch.ask(tenant, ONE, 101, at(2)) else { panic!("it cannot pass") };
    assert_eq!(denied.retry_after, Retry::Never);
}

#[test]
fn a_window_that_ends_before_the_reply_is_here_is_waited_out() {
    let mut branch = Branch::new(PLAN);
    let tenant = branch.roster_mut().join(ONE);
    branch.wait(1);
    branch.poll_request(1, at(0)).unwrap();
    let dead = grant(10, 90, 1, Duration::from_millis(5));
    assert_eq!(branch.handle_reply(1, dead, at(1), at(6)), Credit::Lapsed);
    let BranchDecision::Deny(denied) = branch.ask(tenant, ONE, 1, at(6)) else {
        panic!("nothing can be had")
    };
    assert_eq!(denied.retry_after.wait_ms(), Some(5));
    assert_eq!(branch.ask(tenant, ONE, 1, at(11)), BranchDecision::Wait { needs: 1 });
}

#[test]
fn a_request_of_zero_keeps_the_weight_of_a_tenant() {
    let (mut branch, tenant) = holding(10, 90);
    let other = branch.roster_mut().join(ONE);
    assert!(
        matches!(branch.ask(tenant, Weight::MAX, 0, at(2)), BranchDecision::Admit(told) if told.limit == 50)
    );
    assert_eq!((branch.roster().weight(tenant), branch.roster().weight(other)), (Some(ONE), Some(ONE)));
}

#[test]
fn refunded_units_are_available_while_their_window_lasts() {
    let (mut branch, tenant) = holding(10, 0);
    let BranchDecision::Admit(charged) = branch.ask(tenant, ONE, 10, at(2)) else {
        panic!("ten are in hand")
    };
    branch.refund(tenant, 4, charged.reset_at, at(9_999));
    assert_eq!(branch.in_hand(), 4);
    assert!(matches!(branch.ask(tenant, ONE, 4, at(9_999)), BranchDecision::Admit(_)));
    branch.refund(tenant, 6, charged.reset_at, at(10_000));
    assert_eq!(branch.in_hand(), 0, "their window is over");
}

#[test]
fn nothing_is_handed_back_into_another_window_nor_more_than_was_used() {
    let (mut branch, tenant) = holding(10, 0);
    let BranchDecision::Admit(charged) = branch.ask(tenant, ONE, 10, at(2)) else {
        panic!("ten are in hand")
    };
    branch.refund(tenant, 40, charged.reset_at, at(3));
    assert_eq!(branch.in_hand(), 10);
    branch.wait(10);
    branch.poll_request(2, at(9_000)).unwrap();
    branch.handle_reply(2, grant(10, 0, 2, 10 * SECOND), at(9_500), at(9_500));
    let tenant = branch.roster_mut().join(ONE);
    assert!(matches!(branch.ask(tenant, ONE, 10, at(9_501)), BranchDecision::Admit(_)));
    branch.refund(tenant, 10, charged.reset_at, at(9_502));
    assert_eq!(branch.in_hand(), 0);
}

proptest! {
    /// For any reading of the budget's clock about its window, and any delay of replies.
    #[test]
    fn a_denial_always_has_a_retry_after(
        steps in prop::collection::vec((0_u64..300, 0_u64..100, 0_u64..3_000, 1_u64..30), 1..60),
    ) {
        let (mut branch, mut now, mut member) = (Branch::new(PLAN), 0, None);
        for (id, (passes, takes, lives, cost)) in (1..).zip(steps) {
            now += passes;
            if branch.advance(at(now)) {
                member = None;
            }
            let tenant = *member.get_or_insert_with(|| branch.roster_mut().join(ONE));
            match branch.ask(tenant, ONE, cost, at(now)) {
                BranchDecision::Admit(_) => {}
                BranchDecision::Deny(denied) => prop_assert!(denied.retry_after > Retry::Now, "{denied:?} at {now}"),
                BranchDecision::Wait { needs } => {
                    branch.wait(needs);
                    branch.poll_request(id, at(now)).unwrap();
                    now += takes;
                    let told = grant(needs.min(9), 0, 1, Duration::from_millis(lives));
                    branch.handle_reply(id, told, at(now), at(now));
                    branch.stop_waiting(needs);
                }
            }
        }
    }
}

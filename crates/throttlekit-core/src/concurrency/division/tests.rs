use alloc::vec::Vec;
use core::time::Duration;

use super::*;
use crate::Timestamp;
use crate::lease::Margin;

const SECOND: Duration = Duration::from_secs(1);
const HEARTBEATS: HeartbeatIntervals =
    HeartbeatIntervals { every: SECOND, spacing: Duration::from_millis(100), margin: Margin::NONE };

fn rebalancer(most: u32) -> Rebalancer {
    let (lives, linger) = (Duration::from_secs(3), Duration::from_secs(1));
    Rebalancer { combine: Combine::LowerMedian, split: Split::Equal, initial: most, most, lives, linger }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(100_000 + ms)
}

/// A membership record that was quiet for long enough.
fn ready(rebalancer: &Rebalancer) -> Membership {
    let mut membership = Membership::default();
    let mut gone = report(99, 1);
    gone.leaving = true;
    rebalancer.handle_report(&mut membership, &gone, Timestamp::from_millis(1_000));
    membership
}

fn report(node: u128, heartbeat: u64) -> NodeReport {
    let node = NodeId(node);
    NodeReport { node, heartbeat, applied: 0, holds: 0, in_flight: 0, limit: 0, wants: 0, leaving: false }
}

fn granted(rebalancer: &Rebalancer, membership: &mut Membership, report: &NodeReport, ms: u64) -> Grant {
    match rebalancer.handle_report(membership, report, at(ms)) {
        ReportResponse::Grant(grant) => grant,
        other => panic!("{report:?} was answered {other:?}"),
    }
}

/// Returns the report after this one, of a node that applied its grant.
fn after(report: &NodeReport, grant: Grant, in_flight: u32) -> NodeReport {
    NodeReport {
        heartbeat: report.heartbeat + 1,
        applied: grant.number,
        holds: grant.share,
        in_flight,
        ..*report
    }
}

#[test]
fn a_joiner_waits_until_the_others_acknowledge_less() {
    let (rebalancer, one) = (rebalancer(6), report(1, 1));
    let mut membership = ready(&rebalancer);
    let all = granted(&rebalancer, &mut membership, &one, 0);
    assert_eq!(all.share, 6);

    let two = report(2, 1);
    let none = granted(&rebalancer, &mut membership, &two, 10);
    assert_eq!((none.share, none.due), (0, 3), "the first may be using all six");
    let busy = after(&one, all, 5);
    let less = granted(&rebalancer, &mut membership, &busy, 20);
    assert_eq!(less.share, 3);
    assert_eq!(
        granted(&rebalancer, &mut membership, &after(&two, none, 0), 30).share,
        0,
        "told, but not acknowledged"
    );

    let told = after(&busy, less, 5);
    granted(&rebalancer, &mut membership, &told, 40);
    assert_eq!(membership.reserved(), 5, "acknowledged, and five still run");
    let two = NodeReport { heartbeat: 3, ..two };
    assert_eq!(granted(&rebalancer, &mut membership, &two, 50).share, 1);
}

#[test]
fn only_the_grant_made_last_prunes_the_reserve() {
    let (rebalancer, one) = (rebalancer(8), report(1, 1));
    let mut membership = ready(&rebalancer);
    let first = granted(&rebalancer, &mut membership, &one, 0);
    granted(&rebalancer, &mut membership, &report(2, 1), 10);
    let lost = granted(&rebalancer, &mut membership, &after(&one, first, 0), 20);
    assert_eq!(lost.share, 4);
    let unaware = NodeReport { heartbeat: 3, ..after(&one, first, 0) };
    granted(&rebalancer, &mut membership, &unaware, 30);
    assert_eq!(granted(&rebalancer, &mut membership, &report(2, 2), 40).share, 0);
}

#[test]
fn a_report_that_comes_late_changes_nothing() {
    let rebalancer = rebalancer(6);
    let mut membership = ready(&rebalancer);
    granted(&rebalancer, &mut membership, &report(1, 2), 0);
    let before = membership.clone();
    assert_eq!(rebalancer.handle_report(&mut membership, &report(1, 2), at(0)), ReportResponse::Stale);
    assert_eq!(rebalancer.handle_report(&mut membership, &report(1, 1), at(0)), ReportResponse::Stale);
    assert_eq!(membership, before);
}

#[test]
fn a_silent_node_keeps_its_reserve_until_its_work_must_have_ended() {
    let rebalancer = rebalancer(6);
    let mut membership = ready(&rebalancer);
    granted(&rebalancer, &mut membership, &report(1, 1), 0);
    assert_eq!(granted(&rebalancer, &mut membership, &report(2, 1), 3_999).share, 0);
    assert_eq!(granted(&rebalancer, &mut membership, &report(2, 2), 4_000).share, 6);
}

#[test]
fn on_a_lost_record_no_share_rises_until_all_other_grants_have_expired() {
    let (rebalancer, mut membership) = (rebalancer(6), Membership::default());
    let held = NodeReport { applied: 40, holds: 2, ..report(1, 9) };
    let kept = granted(&rebalancer, &mut membership, &held, 0);
    assert_eq!((kept.share, kept.number), (2, 41), "what it holds is not taken from it");
    assert_eq!(granted(&rebalancer, &mut membership, &report(2, 1), 1).share, 0);
    let next = after(&held, kept, 2);
    assert_eq!(granted(&rebalancer, &mut membership, &next, 3_999).share, 2);
    assert_eq!(
        granted(&rebalancer, &mut membership, &after(&next, kept, 2), 4_000).share,
        6,
        "the other has sent no heartbeat since"
    );
}

#[test]
fn the_ceiling_is_the_least_or_the_one_in_the_middle_and_never_the_sum() {
    let limits = [(1, 30), (2, 10), (3, 20), (4, 0)];
    for (combine, ceiling) in [(Combine::Min, 10), (Combine::LowerMedian, 20)] {
        let rebalancer = Rebalancer { combine, initial: 7, ..rebalancer(1_000) };
        let mut membership = ready(&rebalancer);
        assert_eq!(rebalancer.ceiling(&membership), 7, "nobody knows yet");
        for (node, limit) in limits {
            granted(&rebalancer, &mut membership, &NodeReport { limit, ..report(node, 1) }, 0);
        }
        assert_eq!(rebalancer.ceiling(&membership), ceiling);
        granted(&rebalancer, &mut membership, &NodeReport { limit: 40, ..report(5, 1) }, 0);
        assert_eq!(rebalancer.ceiling(&membership), ceiling, "the lower of the two in the middle");
        assert_eq!(Rebalancer { most: 5, ..rebalancer }.ceiling(&membership), 5);
    }
}

#[test]
fn dues_add_up_to_the_ceiling_and_follow_demand() {
    let rebalancer = Rebalancer { split: Split::Demand, ..rebalancer(100) };
    let mut membership = ready(&rebalancer);
    for (node, wants) in [(1, 0), (2, 9), (3, 86)] {
        granted(&rebalancer, &mut membership, &NodeReport { wants, ..report(node, 1) }, 0);
    }
    let dues = [(1, 0), (2, 9), (3, 86)].map(|(node, wants)| {
        granted(&rebalancer, &mut membership, &NodeReport { wants, ..report(node, 2) }, 1).due
    });
    assert_eq!(dues.iter().sum::<u32>(), 100);
    assert_eq!(dues, [1, 10, 89]);
}

#[test]
fn a_leaving_node_is_forgotten_after_its_work_has_ended() {
    let (rebalancer, one) = (rebalancer(6), report(1, 1));
    let mut membership = ready(&rebalancer);
    let grant = granted(&rebalancer, &mut membership, &one, 0);
    let busy = NodeReport { leaving: true, ..after(&one, grant, 2) };
    let none = granted(&rebalancer, &mut membership, &busy, 1);
    assert_eq!((none.share, membership.reserved()), (0, 6));
    granted(&rebalancer, &mut membership, &after(&busy, none, 2), 2);
    assert_eq!(membership.reserved(), 2);
    granted(&rebalancer, &mut membership, &NodeReport { heartbeat: 4, ..after(&busy, none, 0) }, 3);
    assert_eq!(membership.members().count(), 0);
}

fn quiet(in_flight: u32) -> NodeLoad {
    NodeLoad { in_flight, limit: 0, wants: in_flight }
}

fn grant(number: u64, share: u32) -> Grant {
    Grant { number, share, due: share, ceiling: 10, lives: Duration::from_secs(3) }
}

#[test]
fn a_grant_dies_as_long_after_the_report_was_sent_as_it_lives() {
    let mut node = Node::new(NodeId(1), HEARTBEATS);
    node.poll_report(quiet(0), 0, at(0)).expect("it sends a heartbeat at once");
    assert!(node.handle_grant(grant(1, 5), at(0), at(900)));
    assert_eq!(node.share(at(2_999)), 5);
    assert_eq!(node.share(at(3_000)), 0);
    let late = node.poll_report(quiet(2), 0, at(3_000)).expect("one is due");
    assert_eq!((late.applied, late.holds, late.in_flight), (0, 0, 2));
}

#[test]
fn a_node_never_returns_to_an_earlier_grant() {
    let mut node = Node::new(NodeId(1), HEARTBEATS);
    node.poll_report(quiet(0), 0, at(10)).expect("the first");
    assert!(node.handle_grant(grant(5, 2), at(10), at(20)));
    assert!(!node.handle_grant(grant(4, 9), at(0), at(30)));
    node.poll_report(quiet(0), 0, at(1_500)).expect("one is due");
    assert!(!node.handle_grant(grant(5, 9), at(1_500), at(1_510)));
    assert_eq!(node.share(at(1_510)), 2);
}

#[test]
fn only_the_report_in_flight_is_answered() {
    let mut node = Node::new(NodeId(1), HEARTBEATS);
    node.poll_report(quiet(0), 0, at(0)).expect("the first");
    node.handle_failure(at(0));
    node.poll_report(quiet(0), 0, at(500)).expect("an eager one");
    assert!(!node.handle_grant(grant(1, 5), at(0), at(510)), "it was given up");
    assert!(node.handle_grant(grant(2, 5), at(500), at(520)));
    assert!(!node.handle_grant(grant(3, 9), at(500), at(530)), "it was answered before");
}

/// The receiver of an acknowledgment may have kept the grant for this node, and only for as long as it was valid.
#[test]
fn a_response_is_dropped_if_the_reported_grant_has_expired() {
    let mut node = Node::new(NodeId(1), HEARTBEATS);
    node.poll_report(quiet(0), 0, at(0)).expect("the first");
    assert!(node.handle_grant(grant(7, 5), at(0), at(1)));
    node.poll_report(quiet(0), 0, at(2_900)).expect("one is due");
    assert!(!node.handle_grant(grant(8, 5), at(2_900), at(3_000)));
    let next = node.poll_report(quiet(0), 0, at(3_001)).expect("an eager one");
    assert_eq!((next.applied, next.holds), (0, 0));
    assert!(node.handle_grant(grant(1, 5), at(3_001), at(3_002)), "numbers start over with a new record");
}

#[test]
fn less_is_acknowledged_at_once_and_again_when_it_has_drained() {
    let mut node = Node::new(NodeId(1), HEARTBEATS);
    node.poll_report(quiet(0), 0, at(0)).expect("the first");
    node.handle_grant(grant(1, 5), at(0), at(1));
    assert_eq!(node.poll_report(quiet(5), 0, at(700)), None, "nothing new");
    node.poll_report(quiet(5), 0, at(800)).expect("the regular one");
    node.handle_grant(grant(2, 3), at(800), at(801));
    assert_eq!(node.next_deadline(), at(900));
    let told = node.poll_report(quiet(5), 0, at(900)).expect("an eager one");
    assert_eq!((told.applied, told.holds, told.in_flight), (2, 3, 5));
    node.handle_grant(grant(3, 3), at(900), at(901));
    assert_eq!(node.poll_report(quiet(5), 0, at(1_000)), None, "nothing has ended");
    assert!(node.owing());
    assert_eq!(node.poll_report(quiet(4), 0, at(999)), None, "not that often");
    assert!(node.poll_report(quiet(4), 0, at(1_000)).is_some());
}

#[test]
fn one_report_is_in_flight_at_a_time() {
    let mut node = Node::new(NodeId(1), HEARTBEATS);
    assert!(node.poll_report(quiet(0), 0, at(0)).is_some());
    assert_eq!(node.poll_report(quiet(0), 0, at(5_000)), None);
    node.handle_failure(at(0));
    assert_eq!(node.poll_report(quiet(0), 0, at(5_000)).map(|report| report.heartbeat), Some(2));
}

#[test]
fn a_node_that_leaves_admits_nothing_and_sends_heartbeats_until_all_has_ended() {
    let mut node = Node::new(NodeId(1), HEARTBEATS);
    node.poll_report(quiet(0), 0, at(0)).expect("the first");
    node.handle_grant(grant(1, 5), at(0), at(1));
    node.leave();
    assert_eq!((node.share(at(2)), node.gone()), (0, false));
    assert!(node.poll_report(quiet(1), 0, at(100)).expect("eager").leaving);
    node.handle_grant(grant(2, 0), at(100), at(101));
    assert!(!node.gone());
    node.poll_report(quiet(0), 0, at(200)).expect("drained");
    node.handle_grant(grant(3, 0), at(200), at(201));
    assert!(node.gone());
}

#[test]
fn a_leaving_node_acknowledges_so_that_others_get_its_unused_share() {
    let (rebalancer, mut node) = (rebalancer(6), Node::new(NodeId(1), HEARTBEATS));
    let mut membership = ready(&rebalancer);
    let mut heartbeats = |node: &mut Node, in_flight, ms| {
        let report = node.poll_report(quiet(in_flight), 0, at(ms)).expect("one is due");
        node.handle_grant(granted(&rebalancer, &mut membership, &report, ms), at(ms), at(ms));
        membership.reserved()
    };
    assert_eq!(heartbeats(&mut node, 0, 0), 6);
    node.leave();
    assert_eq!(heartbeats(&mut node, 2, 100), 6, "told, not acknowledged");
    assert_eq!(heartbeats(&mut node, 2, 200), 2);
    assert_eq!(heartbeats(&mut node, 0, 300), 0);
    assert!(node.gone());
}

#[test]
fn a_node_that_leaves_with_nothing_in_flight_reports_once() {
    let (rebalancer, mut node) = (rebalancer(6), Node::new(NodeId(1), HEARTBEATS));
    let mut membership = ready(&rebalancer);
    for ms in [0, 100] {
        let report = node.poll_report(quiet(0), 0, at(ms)).expect("one is due");
        node.handle_grant(granted(&rebalancer, &mut membership, &report, ms), at(ms), at(ms));
        assert_eq!(node.gone(), ms == 100);
        if ms == 0 {
            node.leave();
        }
    }
    assert_eq!(membership.members().count(), 0);
}

#[test]
fn a_failed_last_report_is_repeated() {
    let mut node = Node::new(NodeId(1), HEARTBEATS);
    node.leave();
    node.poll_report(quiet(0), 0, at(0)).expect("at once");
    node.handle_failure(at(0));
    assert!(!node.gone());
    node.poll_report(quiet(0), 0, at(100)).expect("again");
    node.handle_grant(grant(1, 0), at(100), at(101));
    assert!(node.gone());
}

#[test]
fn a_lower_ceiling_takes_no_node_below_its_share() {
    let rebalancer = rebalancer(100);
    let mut membership = ready(&rebalancer);
    let mut reports: [NodeReport; 10] = core::array::from_fn(|n| report(n as u128, 1));
    for ms in 0..3 {
        for report in &mut reports {
            let granted = granted(&rebalancer, &mut membership, report, ms);
            *report = after(report, granted, granted.share);
        }
    }
    let lower = Rebalancer { most: 80, ..rebalancer };
    let shares = reports.map(|report| granted(&lower, &mut membership, &report, 10).share);
    assert_eq!(shares, [8; 10]);
}

#[test]
fn a_repeated_leave_does_not_affect_other_nodes() {
    let (rebalancer, one) = (rebalancer(6), report(1, 1));
    let mut membership = ready(&rebalancer);
    let grant = granted(&rebalancer, &mut membership, &one, 0);
    let gone = NodeReport { leaving: true, ..after(&one, grant, 0) };
    granted(&rebalancer, &mut membership, &gone, 1);
    granted(&rebalancer, &mut membership, &NodeReport { heartbeat: 9, ..gone }, 2);
    assert_eq!(granted(&rebalancer, &mut membership, &report(2, 1), 3).share, 6);
}

#[test]
fn a_node_is_remembered_for_as_long_as_its_own_grant_was_made_to_live() {
    let long = rebalancer(6);
    let short = Rebalancer { lives: Duration::from_millis(500), linger: Duration::ZERO, ..long };
    let mut membership = ready(&long);
    granted(&long, &mut membership, &report(1, 1), 0);
    assert_eq!(granted(&short, &mut membership, &report(2, 1), 3_999).share, 0);
    assert_eq!(granted(&short, &mut membership, &report(2, 2), 4_000).share, 6);
}

#[test]
fn each_idle_node_keeps_one_and_the_rest_goes_by_demand() {
    let rebalancer = Rebalancer { split: Split::Demand, ..rebalancer(20) };
    let mut membership = ready(&rebalancer);
    for node in 0..9 {
        granted(&rebalancer, &mut membership, &report(node, 1), 0);
    }
    assert_eq!(granted(&rebalancer, &mut membership, &NodeReport { wants: 50, ..report(9, 1) }, 0).due, 11);
}

#[test]
fn a_node_that_waits_for_its_share_backs_off() {
    let mut node = Node::new(NodeId(1), HeartbeatIntervals { every: 4 * SECOND, ..HEARTBEATS });
    let wants = NodeLoad { in_flight: 0, limit: 0, wants: 9 };
    let mut heartbeats = Vec::new();
    for ms in 0..2_000 {
        if node.poll_report(wants, 0, at(ms)).is_some() {
            node.handle_grant(Grant { due: 5, ..grant(heartbeats.len() as u64 + 1, 0) }, at(ms), at(ms));
            heartbeats.push(ms);
        }
    }
    assert_eq!(heartbeats, [0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1_100, 1_500]);
}

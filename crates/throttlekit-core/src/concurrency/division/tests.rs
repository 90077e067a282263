use alloc::vec::Vec;
use core::time::Duration;

use super::*;
use crate::Timestamp;
use crate::lease::Margin;

const SECOND: Duration = Duration::from_secs(1);
const BEATS: HeartbeatIntervals =
    HeartbeatIntervals { every: SECOND, spacing: Duration::from_millis(100), margin: Margin::NONE };

fn fold(most: u32) -> Fold {
    let (lives, linger) = (Duration::from_secs(3), Duration::from_secs(1));
    Fold { combine: Combine::LowerMedian, split: Split::Equal, initial: most, most, lives, linger }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(100_000 + ms)
}

/// A membership record that was quiet for long enough.
fn ready(fold: &Fold) -> Membership {
    let mut roll = Membership::default();
    let mut gone = report(99, 1);
    gone.leaving = true;
    fold.beat(&mut roll, &gone, Timestamp::from_millis(1_000));
    roll
}

fn report(node: u128, beat: u64) -> NodeReport {
    let node = NodeId(node);
    NodeReport { node, beat, applied: 0, holds: 0, in_flight: 0, limit: 0, wants: 0, leaving: false }
}

fn granted(fold: &Fold, roll: &mut Membership, report: &NodeReport, ms: u64) -> Grant {
    match fold.beat(roll, report, at(ms)) {
        ReportResponse::Grant(grant) => grant,
        other => panic!("{report:?} was answered {other:?}"),
    }
}

/// The report after this one, of a node that applied what it was granted.
fn after(report: &NodeReport, grant: Grant, in_flight: u32) -> NodeReport {
    NodeReport { beat: report.beat + 1, applied: grant.number, holds: grant.share, in_flight, ..*report }
}

#[test]
fn a_joiner_waits_until_the_others_acknowledge_less() {
    let (fold, one) = (fold(6), report(1, 1));
    let mut roll = ready(&fold);
    let all = granted(&fold, &mut roll, &one, 0);
    assert_eq!(all.share, 6);

    let two = report(2, 1);
    let none = granted(&fold, &mut roll, &two, 10);
    assert_eq!((none.share, none.due), (0, 3), "the first may be using all six");
    let busy = after(&one, all, 5);
    let less = granted(&fold, &mut roll, &busy, 20);
    assert_eq!(less.share, 3);
    assert_eq!(granted(&fold, &mut roll, &after(&two, none, 0), 30).share, 0, "told, but not acknowledged");

    let told = after(&busy, less, 5);
    granted(&fold, &mut roll, &told, 40);
    assert_eq!(roll.reserved(), 5, "acknowledged, and five still run");
    let two = NodeReport { beat: 3, ..two };
    assert_eq!(granted(&fold, &mut roll, &two, 50).share, 1);
}

#[test]
fn only_the_grant_made_last_prunes_the_reserve() {
    let (fold, one) = (fold(8), report(1, 1));
    let mut roll = ready(&fold);
    let first = granted(&fold, &mut roll, &one, 0);
    granted(&fold, &mut roll, &report(2, 1), 10);
    let lost = granted(&fold, &mut roll, &after(&one, first, 0), 20);
    assert_eq!(lost.share, 4);
    let unaware = NodeReport { beat: 3, ..after(&one, first, 0) };
    granted(&fold, &mut roll, &unaware, 30);
    assert_eq!(granted(&fold, &mut roll, &report(2, 2), 40).share, 0);
}

#[test]
fn a_report_that_comes_late_changes_nothing() {
    let fold = fold(6);
    let mut roll = ready(&fold);
    granted(&fold, &mut roll, &report(1, 2), 0);
    let before = roll.clone();
    assert_eq!(fold.beat(&mut roll, &report(1, 2), at(0)), ReportResponse::Stale);
    assert_eq!(fold.beat(&mut roll, &report(1, 1), at(0)), ReportResponse::Stale);
    assert_eq!(roll, before);
}

#[test]
fn a_silent_node_keeps_its_reserve_until_its_work_must_have_ended() {
    let fold = fold(6);
    let mut roll = ready(&fold);
    granted(&fold, &mut roll, &report(1, 1), 0);
    assert_eq!(granted(&fold, &mut roll, &report(2, 1), 3_999).share, 0);
    assert_eq!(granted(&fold, &mut roll, &report(2, 2), 4_000).share, 6);
}

#[test]
fn on_a_roll_that_was_lost_no_share_rises_until_all_others_have_died() {
    let (fold, mut roll) = (fold(6), Membership::default());
    let held = NodeReport { applied: 40, holds: 2, ..report(1, 9) };
    let kept = granted(&fold, &mut roll, &held, 0);
    assert_eq!((kept.share, kept.number), (2, 41), "what it holds is not taken from it");
    assert_eq!(granted(&fold, &mut roll, &report(2, 1), 1).share, 0);
    let next = after(&held, kept, 2);
    assert_eq!(granted(&fold, &mut roll, &next, 3_999).share, 2);
    assert_eq!(
        granted(&fold, &mut roll, &after(&next, kept, 2), 4_000).share,
        6,
        "the other has not beaten since"
    );
}

#[test]
fn the_ceiling_is_the_least_or_the_one_in_the_middle_and_never_the_sum() {
    let limits = [(1, 30), (2, 10), (3, 20), (4, 0)];
    for (combine, ceiling) in [(Combine::Min, 10), (Combine::LowerMedian, 20)] {
        let fold = Fold { combine, initial: 7, ..fold(1_000) };
        let mut roll = ready(&fold);
        assert_eq!(fold.ceiling(&roll), 7, "nobody knows yet");
        for (node, limit) in limits {
            granted(&fold, &mut roll, &NodeReport { limit, ..report(node, 1) }, 0);
        }
        assert_eq!(fold.ceiling(&roll), ceiling);
        granted(&fold, &mut roll, &NodeReport { limit: 40, ..report(5, 1) }, 0);
        assert_eq!(fold.ceiling(&roll), ceiling, "the lower of the two in the middle");
        assert_eq!(Fold { most: 5, ..fold }.ceiling(&roll), 5);
    }
}

#[test]
fn dues_add_up_to_the_ceiling_and_follow_demand() {
    let fold = Fold { split: Split::Demand, ..fold(100) };
    let mut roll = ready(&fold);
    for (node, wants) in [(1, 0), (2, 9), (3, 86)] {
        granted(&fold, &mut roll, &NodeReport { wants, ..report(node, 1) }, 0);
    }
    let dues = [(1, 0), (2, 9), (3, 86)]
        .map(|(node, wants)| granted(&fold, &mut roll, &NodeReport { wants, ..report(node, 2) }, 1).due);
    assert_eq!(dues.iter().sum::<u32>(), 100);
    assert_eq!(dues, [1, 10, 89]);
}

#[test]
fn whoever_leaves_is_forgotten_when_its_work_has_ended() {
    let (fold, one) = (fold(6), report(1, 1));
    let mut roll = ready(&fold);
    let grant = granted(&fold, &mut roll, &one, 0);
    let busy = NodeReport { leaving: true, ..after(&one, grant, 2) };
    let none = granted(&fold, &mut roll, &busy, 1);
    assert_eq!((none.share, roll.reserved()), (0, 6));
    granted(&fold, &mut roll, &after(&busy, none, 2), 2);
    assert_eq!(roll.reserved(), 2);
    granted(&fold, &mut roll, &NodeReport { beat: 4, ..after(&busy, none, 0) }, 3);
    assert_eq!(roll.members().count(), 0);
}

fn quiet(in_flight: u32) -> NodeLoad {
    NodeLoad { in_flight, limit: 0, wants: in_flight }
}

fn grant(number: u64, share: u32) -> Grant {
    Grant { number, share, due: share, ceiling: 10, lives: Duration::from_secs(3) }
}

#[test]
fn a_grant_dies_as_long_after_the_report_was_sent_as_it_lives() {
    let mut node = Node::new(NodeId(1), BEATS);
    node.poll_report(quiet(0), 0, at(0)).expect("it beats at once");
    assert!(node.handle_grant(grant(1, 5), at(0), at(900)));
    assert_eq!(node.share(at(2_999)), 5);
    assert_eq!(node.share(at(3_000)), 0);
    let late = node.poll_report(quiet(2), 0, at(3_000)).expect("one is due");
    assert_eq!((late.applied, late.holds, late.in_flight), (0, 0, 2));
}

#[test]
fn a_node_never_goes_back_to_an_earlier_grant() {
    let mut node = Node::new(NodeId(1), BEATS);
    node.poll_report(quiet(0), 0, at(10)).expect("the first");
    assert!(node.handle_grant(grant(5, 2), at(10), at(20)));
    assert!(!node.handle_grant(grant(4, 9), at(0), at(30)));
    node.poll_report(quiet(0), 0, at(1_500)).expect("one is due");
    assert!(!node.handle_grant(grant(5, 9), at(1_500), at(1_510)));
    assert_eq!(node.share(at(1_510)), 2);
}

#[test]
fn only_the_report_under_way_is_answered() {
    let mut node = Node::new(NodeId(1), BEATS);
    node.poll_report(quiet(0), 0, at(0)).expect("the first");
    node.handle_failure(at(0));
    node.poll_report(quiet(0), 0, at(500)).expect("an eager one");
    assert!(!node.handle_grant(grant(1, 5), at(0), at(510)), "it was given up");
    assert!(node.handle_grant(grant(2, 5), at(500), at(520)));
    assert!(!node.handle_grant(grant(3, 9), at(500), at(530)), "it was answered before");
}

/// The receiver of an acknowledgment may have kept the grant for this node, and only for as long as it was valid.
#[test]
fn an_answer_is_dropped_if_the_grant_that_the_report_named_has_died() {
    let mut node = Node::new(NodeId(1), BEATS);
    node.poll_report(quiet(0), 0, at(0)).expect("the first");
    assert!(node.handle_grant(grant(7, 5), at(0), at(1)));
    node.poll_report(quiet(0), 0, at(2_900)).expect("one is due");
    assert!(!node.handle_grant(grant(8, 5), at(2_900), at(3_000)));
    let next = node.poll_report(quiet(0), 0, at(3_001)).expect("an eager one");
    assert_eq!((next.applied, next.holds), (0, 0));
    assert!(node.handle_grant(grant(1, 5), at(3_001), at(3_002)), "numbers begin anew with a roll");
}

#[test]
fn less_is_acknowledged_at_once_and_again_when_it_has_drained() {
    let mut node = Node::new(NodeId(1), BEATS);
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
fn one_report_is_under_way_at_a_time() {
    let mut node = Node::new(NodeId(1), BEATS);
    assert!(node.poll_report(quiet(0), 0, at(0)).is_some());
    assert_eq!(node.poll_report(quiet(0), 0, at(5_000)), None);
    node.handle_failure(at(0));
    assert_eq!(node.poll_report(quiet(0), 0, at(5_000)).map(|report| report.beat), Some(2));
}

#[test]
fn a_node_that_leaves_lets_nothing_in_and_beats_until_all_has_ended() {
    let mut node = Node::new(NodeId(1), BEATS);
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
fn a_node_that_leaves_acknowledges_so_that_the_others_have_what_it_does_not_use() {
    let (fold, mut node) = (fold(6), Node::new(NodeId(1), BEATS));
    let mut roll = ready(&fold);
    let mut beats = |node: &mut Node, in_flight, ms| {
        let report = node.poll_report(quiet(in_flight), 0, at(ms)).expect("one is due");
        node.handle_grant(granted(&fold, &mut roll, &report, ms), at(ms), at(ms));
        roll.reserved()
    };
    assert_eq!(beats(&mut node, 0, 0), 6);
    node.leave();
    assert_eq!(beats(&mut node, 2, 100), 6, "told, not acknowledged");
    assert_eq!(beats(&mut node, 2, 200), 2);
    assert_eq!(beats(&mut node, 0, 300), 0);
    assert!(node.gone());
}

#[test]
fn a_node_that_leaves_with_nothing_in_flight_says_so_once() {
    let (fold, mut node) = (fold(6), Node::new(NodeId(1), BEATS));
    let mut roll = ready(&fold);
    for ms in [0, 100] {
        let report = node.poll_report(quiet(0), 0, at(ms)).expect("one is due");
        node.handle_grant(granted(&fold, &mut roll, &report, ms), at(ms), at(ms));
        assert_eq!(node.gone(), ms == 100);
        if ms == 0 {
            node.leave();
        }
    }
    assert_eq!(roll.members().count(), 0);
}

#[test]
fn a_last_word_that_was_not_heard_is_said_again() {
    let mut node = Node::new(NodeId(1), BEATS);
    node.leave();
    node.poll_report(quiet(0), 0, at(0)).expect("at once");
    node.handle_failure(at(0));
    assert!(!node.gone());
    node.poll_report(quiet(0), 0, at(100)).expect("again");
    node.handle_grant(grant(1, 0), at(100), at(101));
    assert!(node.gone());
}

#[test]
fn a_ceiling_that_falls_takes_nobody_below_its_due() {
    let fold = fold(100);
    let mut roll = ready(&fold);
    let mut reports: [NodeReport; 10] = core::array::from_fn(|n| report(n as u128, 1));
    for ms in 0..3 {
        for report in &mut reports {
            let granted = granted(&fold, &mut roll, report, ms);
            *report = after(report, granted, granted.share);
        }
    }
    let lower = Fold { most: 80, ..fold };
    let shares = reports.map(|report| granted(&lower, &mut roll, &report, 10).share);
    assert_eq!(shares, [8; 10]);
}

#[test]
fn who_left_and_says_so_again_silences_nobody() {
    let (fold, one) = (fold(6), report(1, 1));
    let mut roll = ready(&fold);
    let grant = granted(&fold, &mut roll, &one, 0);
    let gone = NodeReport { leaving: true, ..after(&one, grant, 0) };
    granted(&fold, &mut roll, &gone, 1);
    granted(&fold, &mut roll, &NodeReport { beat: 9, ..gone }, 2);
    assert_eq!(granted(&fold, &mut roll, &report(2, 1), 3).share, 6);
}

#[test]
fn a_node_is_remembered_for_as_long_as_its_own_grant_was_made_to_live() {
    let long = fold(6);
    let short = Fold { lives: Duration::from_millis(500), linger: Duration::ZERO, ..long };
    let mut roll = ready(&long);
    granted(&long, &mut roll, &report(1, 1), 0);
    assert_eq!(granted(&short, &mut roll, &report(2, 1), 3_999).share, 0);
    assert_eq!(granted(&short, &mut roll, &report(2, 2), 4_000).share, 6);
}

#[test]
fn all_goes_to_those_who_want_it_but_one_for_each() {
    let fold = Fold { split: Split::Demand, ..fold(20) };
    let mut roll = ready(&fold);
    for node in 0..9 {
        granted(&fold, &mut roll, &report(node, 1), 0);
    }
    assert_eq!(granted(&fold, &mut roll, &NodeReport { wants: 50, ..report(9, 1) }, 0).due, 11);
}

#[test]
fn a_node_that_waits_for_its_due_in_vain_asks_less_and_less_often() {
    let mut node = Node::new(NodeId(1), HeartbeatIntervals { every: 4 * SECOND, ..BEATS });
    let wants = NodeLoad { in_flight: 0, limit: 0, wants: 9 };
    let mut beats = Vec::new();
    for ms in 0..2_000 {
        if node.poll_report(wants, 0, at(ms)).is_some() {
            node.handle_grant(Grant { due: 5, ..grant(beats.len() as u64 + 1, 0) }, at(ms), at(ms));
            beats.push(ms);
        }
    }
    assert_eq!(beats, [0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1_100, 1_500]);
}

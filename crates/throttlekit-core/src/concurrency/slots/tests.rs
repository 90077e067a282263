use alloc::vec;

use super::*;

const LIVES: Duration = Duration::from_millis(100);
const ANN: Owner = Owner(1);
const BOB: Owner = Owner(2);

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn take(table: &mut SlotTable, lease: u128, owner: Owner, most: u32, ms: u64) -> bool {
    matches!(table.acquire(LeaseId(lease), owner, most, LIVES, at(ms)), SlotStep::Admit { .. })
}

fn denied(table: &mut SlotTable, most: u32, ms: u64) -> Full {
    match table.acquire(LeaseId(99), BOB, most, LIVES, at(ms)) {
        SlotStep::Deny(full) => full,
        admitted => panic!("{admitted:?}"),
    }
}

/// Two slots, taken at 1000 and 1010.
fn two() -> SlotTable {
    let mut table = SlotTable::default();
    assert!(take(&mut table, 1, ANN, 2, 1_000) && take(&mut table, 2, ANN, 2, 1_010));
    table
}

#[test]
fn no_more_are_held_than_the_ceiling() {
    let mut table = two();
    let full = denied(&mut table, 2, 1_020);
    assert_eq!(full, Full { held: 2, retry: Retry::OnRelease, room_in: Some(Duration::from_millis(80)) });
    assert!(take(&mut table, 3, BOB, 3, 1_020), "a higher ceiling has room");
    let full = denied(&mut table, 1, 1_030);
    assert_eq!((full.held, full.room_in), (3, Some(Duration::from_millis(90))), "all three have to go");
    let none = denied(&mut table, 0, 1_030);
    assert_eq!((none.retry, none.room_in), (Retry::Never, None));
}

#[test]
fn a_lease_is_held_until_its_end_and_not_at_it() {
    let mut table = two();
    assert_eq!(denied(&mut table, 2, 1_099).held, 2);
    assert!(take(&mut table, 3, BOB, 2, 1_100));
    let mut table = two();
    assert_eq!(
        (table.occupancy(at(1_099)), table.occupancy(at(1_100)), table.occupancy(at(1_110))),
        (2, 1, 0)
    );
    assert_eq!(table.expire(at(1_099)), vec![]);
    assert_eq!(table.expire(at(1_100)), vec![(LeaseId(1), ANN)]);
    assert_eq!(table.next_expiry(), Some(at(1_110)));
    assert_eq!(table.expire(at(5_000)), vec![(LeaseId(2), ANN)]);
    assert!(table.is_idle());
}

#[test]
fn a_repeated_request_takes_no_second_slot_and_extends_nothing() {
    let mut table = two();
    let again = table.acquire(LeaseId(1), ANN, 1, LIVES, at(1_050));
    let slot = Slot { until: at(1_100), lives: Duration::from_millis(50) };
    assert_eq!(again, SlotStep::Admit { slot, held: 2 }, "also under a ceiling that has fallen");
    assert!(!take(&mut table, 1, BOB, 2, 1_050), "another's lease of the same name is another lease");
    assert!(take(&mut table, 1, BOB, 3, 1_050));
    assert_eq!(table.occupancy(at(1_050)), 3);
}

#[test]
fn a_heartbeat_puts_the_end_off_and_revives_nothing() {
    let mut table = two();
    let heartbeats = table.heartbeat(&[LeaseId(1), LeaseId(2), LeaseId(3)], ANN, LIVES, at(1_105));
    let slot = Slot { until: at(1_205), lives: LIVES };
    assert_eq!(
        heartbeats,
        vec![HeartbeatOutcome::Lost, HeartbeatOutcome::Held(slot), HeartbeatOutcome::Lost]
    );
    assert_eq!(table.heartbeat(&[LeaseId(2)], BOB, LIVES, at(1_106)), vec![HeartbeatOutcome::Lost]);
    let short = table.heartbeat(&[LeaseId(2)], ANN, Duration::from_millis(1), at(1_106));
    assert_eq!(
        short,
        vec![HeartbeatOutcome::Held(Slot { until: at(1_205), lives: Duration::from_millis(99) })]
    );
    assert!(table.release(LeaseId(2), ANN, at(1_107)));
    assert_eq!(table.heartbeat(&[LeaseId(2)], ANN, LIVES, at(1_108)), vec![HeartbeatOutcome::Lost]);
}

#[test]
fn a_release_frees_one_slot_once_and_only_the_owners() {
    let mut table = two();
    assert!(!table.release(LeaseId(1), BOB, at(1_020)));
    assert!(table.release(LeaseId(1), ANN, at(1_020)));
    assert!(take(&mut table, 3, BOB, 2, 1_030));
    assert!(!table.release(LeaseId(1), ANN, at(1_040)), "twice frees nobody else's");
    assert_eq!(table.occupancy(at(1_040)), 2);
    assert!(!table.release(LeaseId(2), ANN, at(1_110)), "it is over");
}

#[test]
fn a_clock_that_steps_back_ends_no_lease_before_its_time() {
    let mut table = two();
    assert_eq!(denied(&mut table, 2, 500).held, 2, "both are held, whatever the clock shows");
    assert_eq!(table.occupancy(at(599)), 2);
    let heartbeats = table.heartbeat(&[LeaseId(1)], ANN, LIVES, at(550));
    assert_eq!(heartbeats, vec![HeartbeatOutcome::Held(Slot { until: at(650), lives: LIVES })]);
    assert_eq!(denied(&mut table, 2, 599).held, 2, "a whole life after the step");
    assert!(take(&mut table, 3, BOB, 2, 600));
    assert!(!table.release(LeaseId(2), ANN, at(601)), "and what is over stays over");
}

#[test]
fn a_slot_taken_while_the_clock_was_ahead_comes_back_within_its_lease() {
    let day = 86_400_000;
    let mut table = SlotTable::default();
    assert!(take(&mut table, 1, ANN, 1, day + 1_000));
    let full = denied(&mut table, 1, 1_001);
    assert_eq!((full.held, full.room_in), (1, Some(LIVES)));
    assert_eq!(denied(&mut table, 1, 1_100).held, 1);
    assert!(take(&mut table, 2, BOB, 1, 1_101), "its holder has died");
}

/// Steps back and forth never add up: each lease ends when the clock gets there, or a lifetime after a step.
#[test]
fn an_oscillating_clock_ends_no_lease_early() {
    let mut table = two();
    for ms in 0..90 {
        let shown = 1_010 + ms + if ms % 2 == 0 { 0 } else { 9 };
        assert_eq!(denied(&mut table, 2, shown.min(1_099)).held, 2, "{ms}");
    }
}

#[test]
fn a_longer_lease_of_the_same_key_is_not_cut_short() {
    let mut table = SlotTable::default();
    let long = Duration::from_secs(10);
    assert!(matches!(table.acquire(LeaseId(1), ANN, 2, long, at(50_000)), SlotStep::Admit { .. }));
    assert!(take(&mut table, 2, BOB, 2, 50_000));
    assert_eq!(denied(&mut table, 2, 1_000).held, 2);
    assert_eq!(table.next_expiry(), Some(at(11_000)), "both: a table knows the longest life, not each");
}

#[test]
fn a_denial_that_clears_nothing_away_writes_nothing() {
    let mut table = two();
    let before = table.clone();
    denied(&mut table, 2, 1_090);
    assert_eq!(table.heartbeat(&[LeaseId(7)], ANN, LIVES, at(1_091)), vec![HeartbeatOutcome::Lost]);
    assert!(!table.release(LeaseId(7), ANN, at(1_092)));
    assert_eq!(table, before);
}

#[test]
fn a_table_that_was_lost_is_quiet_until_its_holders_have_stopped() {
    let mut table = SlotTable::recovering(at(1_100));
    assert_eq!(table.heartbeat(&[LeaseId(1)], ANN, LIVES, at(1_050)), vec![HeartbeatOutcome::Lost]);
    let full = denied(&mut table, 5, 1_099);
    let wait = Duration::from_millis(1);
    assert_eq!(full, Full { held: 0, retry: Retry::After(wait), room_in: Some(wait) });
    assert!(!table.is_idle());
    assert!(take(&mut table, 1, ANN, 1, 1_100));
    assert_eq!(denied(&mut table, 1, 1_100).retry, Retry::OnRelease);
}

#[test]
fn a_ceiling_beyond_the_cap_is_the_cap() {
    let mut table = SlotTable::default();
    for lease in 0..SLOTS_MAX {
        assert!(take(&mut table, lease.into(), ANN, u32::MAX, 1));
    }
    assert_eq!(denied(&mut table, u32::MAX, 1).held, SLOTS_MAX);
}

//! The roster compared with a naive one that walks over all members, and the documented behavior of the escrow.

extern crate std;

use alloc::vec::Vec;
use core::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::rate::Cadence;
use crate::{Decision, Retry, Timestamp};

/// A direct implementation of the roster: everything is computed from all members each time.
#[derive(Default)]
struct Naive {
    limit: u64,
    members: Vec<(Member, Weight, u64)>,
}

impl Naive {
    fn guarantee(&self, of: usize) -> u64 {
        let weights: u64 = self.members.iter().map(|member| member.1.get()).sum();
        (u128::from(self.members[of].1.get()) * u128::from(self.limit) / u128::from(weights)) as u64
    }

    fn reserved_for_others(&self, than: usize) -> u64 {
        let others = (0..self.members.len()).filter(|&other| other != than);
        others.map(|other| self.guarantee(other).saturating_sub(self.members[other].2)).sum()
    }

    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.members.iter().map(|member| member.2).sum())
    }

    fn admits(&self, member: usize, cost: u64) -> bool {
        let (used, guarantee) = (self.members[member].2, self.guarantee(member));
        let borrowable = self.left().saturating_sub(self.reserved_for_others(member));
        cost <= self.left() && (used + cost <= guarantee || used <= guarantee && cost <= borrowable)
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Join(u64),
    Leave(usize),
    SetWeight(usize, u64),
    SetLimit(u64),
    Spend(usize, u64),
    Refund(usize, u64),
    Ask(usize, u64),
    Clear,
}

fn change() -> impl Strategy<Value = Change> {
    let weight = || prop_oneof![1_u64..5, 1_u64..1_000, Just(WEIGHT_MAX)];
    prop_oneof![
        6 => weight().prop_map(Change::Join),
        1 => any::<usize>().prop_map(Change::Leave),
        2 => (any::<usize>(), weight()).prop_map(|(who, weight)| Change::SetWeight(who, weight)),
        3 => (0_u64..300).prop_map(Change::SetLimit),
        3 => (any::<usize>(), 0_u64..50).prop_map(|(who, units)| Change::Spend(who, units)),
        5 => (any::<usize>(), 0_u64..50).prop_map(|(who, units)| Change::Refund(who, units)),
        20 => (any::<usize>(), 0_u64..50).prop_map(|(who, cost)| Change::Ask(who, cost)),
        1 => Just(Change::Clear),
    ]
}

/// Applies the change to both, and returns the member it was about.
fn apply(change: Change, roster: &mut Roster, naive: &mut Naive) -> Option<usize> {
    let count = naive.members.len();
    let pick = |who: usize| (count > 0).then(|| who % count.max(1));
    match change {
        Change::Join(weight) => {
            let weight = Weight::new(weight).unwrap();
            naive.members.push((roster.join(weight), weight, 0));
            return Some(count);
        }
        Change::Leave(who) => {
            let (member, _, used) = naive.members.remove(pick(who)?);
            assert_eq!(roster.leave(member), used);
            return None;
        }
        Change::SetWeight(who, weight) => {
            let member = &mut naive.members[pick(who)?];
            member.1 = Weight::new(weight).unwrap();
            roster.set_weight(member.0, member.1);
        }
        Change::SetLimit(limit) => {
            naive.limit = limit;
            roster.set_limit(limit);
        }
        Change::Spend(who, units) => {
            let member = &mut naive.members[pick(who)?];
            member.2 += units;
            roster.spend(member.0, units);
        }
        Change::Refund(who, units) => {
            let who = pick(who)?;
            naive.members[who].2 = naive.members[who].2.saturating_sub(units);
            roster.refund(naive.members[who].0, units);
            return Some(who);
        }
        Change::Ask(who, cost) => {
            let who = pick(who)?;
            let admits = naive.admits(who, cost);
            assert_eq!(roster.admits(naive.members[who].0, cost), admits);
            if admits {
                naive.members[who].2 += cost;
                roster.spend(naive.members[who].0, cost);
            }
        }
        Change::Clear => {
            naive.members.clear();
            roster.clear();
        }
    }
    None
}

fn compare(roster: &mut Roster, naive: &Naive, who: usize) {
    let member = naive.members[who].0;
    assert_eq!(roster.guarantee(member), naive.guarantee(who));
    assert_eq!(roster.reserved_for_others(member), naive.reserved_for_others(who));
    let most = roster.admissible(member);
    assert!(most == 0 || naive.admits(who, most));
    assert!(!naive.admits(who, most + 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]
    #[test]
    fn a_roster_knows_what_a_walk_over_its_members_would_find(
        changes in prop::collection::vec(change(), 1..80), limit in 0_u64..300
    ) {
        let (mut roster, mut naive) = (Roster::new(limit), Naive { limit, members: Vec::new() });
        for (turn, &change) in changes.iter().enumerate() {
            // Not every member is read after each change, so that classes become out of date by more than one.
            if let Some(who) = apply(change, &mut roster, &mut naive) {
                compare(&mut roster, &naive, who);
            }
            assert_eq!(roster.len(), naive.members.len());
            assert_eq!(roster.left(), naive.left());
            if turn % 3 == 0 && !naive.members.is_empty() {
                compare(&mut roster, &naive, turn % naive.members.len());
                let least = roster.least_used().map(|member| roster.used_by(member));
                assert_eq!(least, naive.members.iter().map(|member| member.2).min());
            }
        }
        (0..naive.members.len()).for_each(|who| compare(&mut roster, &naive, who));
    }
}

/// With many members, only some are filed, and walks file more: sums must be those of all.
#[test]
fn a_roster_of_thousands_knows_the_same() {
    let mut state = 1_u64;
    let mut roll = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    let (mut roster, mut naive) = (Roster::new(100_000), Naive { limit: 100_000, members: Vec::new() });
    for turn in 0..20_000 {
        let change = match roll(20) {
            0..=3 => Change::Join(1 + roll(3)),
            4 if turn % 50 == 0 => Change::SetLimit(20_000 + roll(200_000)),
            5 => Change::SetWeight(roll(4_000) as usize, 1 + roll(3)),
            6 => Change::Leave(roll(4_000) as usize),
            7..=9 => Change::Refund(roll(4_000) as usize, roll(20)),
            _ => Change::Spend(roll(4_000) as usize, roll(20)),
        };
        apply(change, &mut roster, &mut naive);
        if turn % 97 == 0 && !naive.members.is_empty() {
            let who = roll(4_000) as usize % naive.members.len();
            let guarantees: Vec<u64> = (1..=3)
                .map(|w| (w * naive.limit) / naive.members.iter().map(|member| member.1.get()).sum::<u64>())
                .collect();
            let unused = naive
                .members
                .iter()
                .map(|(_, weight, used)| guarantees[weight.get() as usize - 1].saturating_sub(*used));
            let own = naive.guarantee(who).saturating_sub(naive.members[who].2);
            assert_eq!(roster.reserved_for_others(naive.members[who].0), unused.sum::<u64>() - own);
        }
    }
}

#[test]
fn sums_hold_at_the_ends_of_every_range() {
    let most = Weight::new(WEIGHT_MAX).unwrap();
    let mut roster = Roster::new(u64::MAX);
    let members: Vec<_> = (0..5_000).map(|_| roster.join(most)).collect();
    assert_eq!(roster.limit(), crate::rate::UNITS_MAX);
    assert_eq!(roster.reserved_for_others(members[0]), 4_999 * (crate::rate::UNITS_MAX / 5_000));
    members.iter().for_each(|&member| roster.spend(member, u64::MAX));
    assert_eq!((roster.left(), roster.borrowable(members[0])), (0, 0));
    assert!(!roster.admits(members[0], u64::MAX));
}

#[test]
fn a_use_beyond_all_counting_is_not_handed_back() {
    let mut roster = Roster::new(100);
    let member = roster.join(ONE);
    roster.spend(member, u64::MAX);
    roster.refund(member, crate::rate::UNITS_MAX);
    assert_eq!(roster.used_by(member), crate::rate::UNITS_MAX);
}

#[test]
fn the_largest_refund_makes_the_smallest_use_after_an_earlier_search() {
    let mut roster = Roster::new(1_000);
    let members = [30, 20, 10].map(|used| {
        let member = roster.join(ONE);
        roster.spend(member, used);
        member
    });
    assert_eq!(roster.least_used(), Some(members[2]));
    roster.refund(members[0], 25);
    assert_eq!(roster.least_used(), Some(members[0]));
    roster.spend(members[0], 6);
    assert_eq!(roster.least_used(), Some(members[2]));
}

#[test]
fn a_heavy_member_may_join_those_of_a_large_limit() {
    let mut roster = Roster::new(crate::rate::UNITS_MAX);
    let (light, heavy) = (roster.join(ONE), roster.join(weight(4_681)));
    let promised = [light, heavy].map(|member| roster.guarantee(member));
    assert_eq!(promised, [1, 4_681].map(|w| guarantee(weight(w), 4_682, crate::rate::UNITS_MAX)));
    assert_eq!(roster.reserved_for_others(light), promised[1]);
}

const ONE: Weight = Weight::ONE;

fn weight(of: u64) -> Weight {
    Weight::new(of).unwrap()
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn minute(limit: u64) -> Escrow {
    let cadence = Cadence::every(Duration::from_secs(60));
    let mut escrow = Escrow::new(limit, cadence).unwrap();
    escrow.advance(at(600));
    escrow
}

#[test]
fn a_guarantee_is_not_counted_twice_when_borrowing() {
    let mut escrow = minute(100);
    let (a, b) = (escrow.join(ONE), escrow.join(ONE));
    assert!(escrow.check(a, ONE, 30).allowed && escrow.check(b, ONE, 1).allowed);
    assert!(!escrow.check(a, ONE, 40).allowed, "it would leave 29 of the 49 reserved for the other");
    assert!(escrow.check(b, ONE, 49).allowed);
}

#[test]
fn a_denial_makes_active_and_charges_nothing() {
    let mut escrow = minute(100);
    let (a, b) = (escrow.join(ONE), escrow.join(ONE));
    assert!(!escrow.check(b, ONE, 51).allowed);
    assert_eq!(escrow.used(), 0);
    assert!(!escrow.check(a, ONE, 51).allowed, "half is reserved for the one that was denied");
    assert!(escrow.check(a, ONE, 50).allowed && escrow.check(b, ONE, 50).allowed);
}

#[test]
fn responses_report_remaining_units_reset_and_retry_after() {
    let mut escrow = minute(100);
    let (a, b) = (escrow.join(ONE), escrow.join(weight(2)));
    let allowed = escrow.check(a, ONE, 30);
    assert_eq!((allowed.limit, allowed.remaining, allowed.reset_at), (33, 3, at(660)));
    let denied = escrow.check(a, ONE, 5);
    assert_eq!((denied.limit, denied.remaining), (34, 4), "its own three and the one that rounding leaves");
    assert_eq!(denied.retry_after, Retry::after(Duration::from_secs(60)));
    assert_eq!(escrow.check(b, weight(2), 101).retry_after, Retry::Never);
    assert_eq!(
        escrow.check(a, ONE, 4),
        Decision { allowed: true, limit: 34, remaining: 0, retry_after: Retry::Now, ..denied }
    );
    assert!(escrow.check(b, weight(2), 66).allowed);
    assert_eq!(escrow.used(), 100);
}

#[test]
fn a_request_of_zero_changes_nothing() {
    let mut escrow = minute(100);
    let a = escrow.join(ONE);
    assert_eq!(escrow.peek_newcomer(weight(3)).limit, 75);
    let told = escrow.check(a, weight(9), 0);
    assert_eq!((told.allowed, told.remaining, escrow.roster().weight(a)), (true, 100, Some(ONE)));
    assert_eq!(escrow.roster().len(), 1);
}

#[test]
fn a_new_weight_applies_from_its_first_request_and_use_stays() {
    let mut escrow = minute(100);
    let (a, b) = (escrow.join(ONE), escrow.join(ONE));
    assert!(escrow.check(a, ONE, 50).allowed && !escrow.check(a, ONE, 1).allowed);
    assert!(escrow.check(a, weight(3), 25).allowed, "its guarantee is 75 now, and 50 are used");
    assert!(!escrow.check(a, weight(3), 1).allowed);
    assert!(escrow.check(b, ONE, 25).allowed && !escrow.check(b, ONE, 1).allowed);
}

#[test]
fn a_new_window_starts_empty_and_an_old_one_never_returns() {
    let mut escrow = minute(10);
    let a = escrow.join(ONE);
    assert!(escrow.check(a, ONE, 10).allowed);
    assert!(!escrow.advance(at(659)) && !escrow.check(a, ONE, 1).allowed);
    assert!(escrow.advance(at(660)));
    let a = escrow.join(ONE);
    assert!(escrow.check(a, ONE, 10).allowed);
    assert!(!escrow.advance(at(600)));
    let denied = escrow.check(a, ONE, 1);
    assert_eq!(
        denied.retry_after,
        Retry::after(Duration::from_secs(120)),
        "until 720, by a clock that shows 600"
    );
}

#[test]
fn debt_is_charged_beyond_the_guarantee_and_refunds_are_available_again() {
    let mut escrow = minute(100);
    let (a, b) = (escrow.join(ONE), escrow.join(ONE));
    escrow.owe(a, ONE, 70);
    assert!(!escrow.check(a, ONE, 1).allowed && !escrow.check(b, ONE, 31).allowed);
    escrow.refund(a, 30);
    assert_eq!(escrow.used(), 40);
    assert!(escrow.check(b, ONE, 50).allowed && escrow.check(a, ONE, 10).allowed);
    assert!(!escrow.check(a, ONE, 1).allowed);
}

#[test]
fn a_displaced_tenant_returns_with_no_less_use() {
    let mut escrow = minute(100);
    let (a, b) = (escrow.join(ONE), escrow.join(ONE));
    assert!(escrow.check(a, ONE, 30).allowed && escrow.check(b, ONE, 20).allowed);
    let c = escrow.take_place(ONE).unwrap();
    assert_eq!(c, b, "it had used least");
    assert_eq!((escrow.used(), escrow.check(c, ONE, 0).remaining), (50, 30));
    assert!(escrow.check(c, ONE, 15).allowed);
    let back = escrow.take_place(ONE).unwrap();
    assert_eq!(
        (back, escrow.roster().used_by(back)),
        (a, 30),
        "the place of one that has used 30, and its use"
    );
    assert_eq!(escrow.used(), 65);
}

fn giving(limit: u64) -> Escrow {
    let by = GiveBack { quiet_after: Duration::from_secs(8), over: Duration::from_secs(16) };
    let mut escrow = minute(limit).give_back(by);
    escrow.advance(at(600));
    escrow
}

#[test]
fn a_quiet_tenant_returns_its_weight_in_eighths_and_keeps_what_covers_its_use() {
    let mut escrow = giving(170);
    let (quiet, asks) = (escrow.join(ONE), escrow.join(ONE));
    assert!(escrow.check(quiet, ONE, 5).allowed);
    let mut most = |seconds: u64| {
        escrow.advance(at(600 + seconds));
        escrow.check(asks, ONE, 171).remaining
    };
    assert_eq!([most(0), most(9)], [85, 85]);
    assert_eq!([most(10), most(11), most(12)], [91, 91, 98], "of 15 parts 8, of 14 parts 8, and what rounds");
    assert_eq!([most(22), most(24), most(40)], [152, 165, 165], "all but what is used");
}

#[test]
fn a_quiet_tenant_keeps_nothing_for_a_use_that_was_handed_back() {
    let mut escrow = giving(170);
    let (quiet, asks) = (escrow.join(ONE), escrow.join(ONE));
    assert!(escrow.check(quiet, ONE, 80).allowed);
    escrow.advance(at(640));
    assert_eq!(escrow.check(asks, ONE, 171).remaining, 90, "all but what is used");
    escrow.refund(quiet, 75);
    assert_eq!(escrow.check(asks, ONE, 171).remaining, 165);
}

#[test]
fn a_quiet_tenant_that_requests_again_has_its_weight_at_once() {
    let mut escrow = giving(170);
    let (quiet, asks) = (escrow.join(ONE), escrow.join(ONE));
    assert!(escrow.check(quiet, ONE, 5).allowed);
    escrow.advance(at(609));
    assert!(!escrow.check(asks, ONE, 171).allowed);
    escrow.advance(at(616));
    assert_eq!(
        escrow.check(quiet, ONE, 0).limit,
        57,
        "an ask of nothing tells what it has now, and does not wake"
    );
    assert_eq!(escrow.check(asks, ONE, 100).limit, 113, "two parts of three");
    assert!(escrow.check(quiet, ONE, 65).allowed, "of its guarantee of 85, what is left of the window");
    assert_eq!(escrow.used(), 170);
    assert!(!escrow.check(quiet, ONE, 1).allowed && !escrow.check(asks, ONE, 1).allowed);
}

/// The price of giving back: a returning tenant is like a late one, also to tenants that never were quiet.
#[test]
fn an_unused_guarantee_may_shrink_when_a_quiet_tenant_returns() {
    for (mut escrow, most_of_quiet, left_to_asking) in [(minute(100), 34, 33), (giving(100), 40, 30)] {
        let (silent, quiet, asking) = (escrow.join(ONE), escrow.join(ONE), escrow.join(ONE));
        assert!(escrow.check(silent, ONE, 30).allowed);
        for seconds in 0..=30 {
            escrow.advance(at(600 + seconds));
            assert!(!escrow.check(asking, ONE, 101).allowed);
        }
        assert!(!escrow.check(quiet, ONE, most_of_quiet + 1).allowed);
        assert!(escrow.check(quiet, ONE, most_of_quiet).allowed);
        assert_eq!(escrow.check(asking, ONE, 101).remaining, left_to_asking);
    }
}

/// The same where an active tenant has used what was given back: the window has 41 left, and both are guaranteed 33.
#[test]
fn units_borrowed_from_a_quiet_tenant_may_be_missing_for_another() {
    let mut escrow = giving(100);
    let (quiet, greedy, asking) = (escrow.join(ONE), escrow.join(ONE), escrow.join(ONE));
    for seconds in 0..=30 {
        escrow.advance(at(600 + seconds));
        assert!(!escrow.check(greedy, ONE, 101).allowed && !escrow.check(asking, ONE, 101).allowed);
    }
    assert!(escrow.check(greedy, ONE, 49).allowed && escrow.check(asking, ONE, 10).allowed);
    assert!(escrow.check(quiet, ONE, 33).allowed);
    let told = escrow.check(asking, ONE, 23);
    assert_eq!((told.allowed, told.remaining), (false, 8), "it has used 10 of its 33");
}

#[test]
fn a_tenant_with_only_denied_requests_is_not_quiet() {
    let mut escrow = giving(100);
    let (denied, asks) = (escrow.join(ONE), escrow.join(ONE));
    for seconds in 0_u64..50 {
        escrow.advance(at(600 + seconds));
        assert!(!escrow.check(denied, ONE, 51).allowed);
        assert_eq!(escrow.check(asks, ONE, 51).remaining, 50);
    }
}

#[test]
fn a_quiet_tenant_that_leaves_leaves_nothing_behind() {
    let mut escrow = giving(100);
    let (quiet, asks) = (escrow.join(ONE), escrow.join(ONE));
    assert!(escrow.check(quiet, ONE, 10).allowed);
    escrow.advance(at(650));
    assert_eq!((escrow.used(), escrow.check(asks, ONE, 101).remaining), (10, 89));
    escrow.leave(quiet);
    assert_eq!((escrow.used(), escrow.check(asks, ONE, 101).remaining), (0, 100));
    let newcomer = escrow.join(ONE);
    escrow.advance(at(650));
    assert_eq!((escrow.check(newcomer, ONE, 50).allowed, escrow.check(asks, ONE, 50).allowed), (true, true));
}

fn share(limit: u64) -> FairShare {
    let cadence = Cadence::every(Duration::from_secs(60));
    let mut share = FairShare::new(limit, cadence).unwrap();
    share.advance(at(600));
    share
}

#[test]
fn equal_shares_are_capped_at_the_limit_over_the_active() {
    let mut share = share(10);
    let a = share.roster_mut().join(ONE);
    assert!(share.check(a, ONE, 4).allowed);
    let (b, c) = (share.roster_mut().join(ONE), share.roster_mut().join(ONE));
    assert_eq!(share.check(b, ONE, 1).limit, 3);
    assert!(!share.check(a, ONE, 1).allowed && !share.check(b, ONE, 3).allowed);
    assert!(share.check(b, ONE, 2).allowed && share.check(c, ONE, 3).allowed);
    assert!(share.advance(at(660)));
}

#[test]
fn a_share_is_never_below_one_and_the_whole_never_above_the_limit() {
    let mut share = share(2);
    let members: Vec<_> = (0..5).map(|_| share.roster_mut().join(ONE)).collect();
    let admitted = members.iter().filter(|&&member| share.check(member, ONE, 1).allowed).count();
    assert_eq!(admitted, 2);
}

#[test]
fn weighted_shares_are_capped_by_weight() {
    let mut share = share(70);
    let (a, b) = (share.roster_mut().join(weight(4)), share.roster_mut().join(weight(3)));
    assert_eq!((share.check(a, weight(4), 41).allowed, share.check(a, weight(4), 40).allowed), (false, true));
    assert_eq!(share.check(b, weight(3), 30).remaining, 0);
    assert_eq!(share.check(b, weight(3), 71).retry_after, Retry::Never);
}

use core::time::Duration;

use super::*;
use crate::lease::{Authority, PlainWord};
use crate::rate::{Limit, Rate, State};

const SECOND: Duration = Duration::from_secs(1);

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// A holder with its local lease and its authority.
struct Rig {
    authority: Authority,
    state: State,
    holder: Holder,
    local_lease: LocalLease<PlainWord>,
}

impl Rig {
    fn new(limit: Limit, term: Term) -> Self {
        let plan =
            HolderOptions { term, margin: Margin::NONE, lease_max: 10, share: 1, denial_max: Duration::MAX };
        Self {
            authority: Authority::new(limit, term).unwrap(),
            state: State::default(),
            holder: Holder::new(plan),
            local_lease: LocalLease::new(),
        }
    }

    fn windowed() -> Self {
        Self::new(Limit::fixed_window(25, 10 * SECOND).unwrap(), Term::Window)
    }

    fn ask(&mut self, cost: Cost, now: u64) -> HolderStep {
        self.holder.handle_ask(&self.local_lease, cost, || at(now))
    }

    fn request(&mut self, id: u64, now: u64) -> Option<HolderRequest> {
        self.holder.poll_request(&self.local_lease, id, 10, at(now))
    }

    fn loan(&mut self, request: HolderRequest, store_now: u64) -> Loan {
        self.authority.lend(&mut self.state, request.want, at(store_now))
    }

    fn reply(&mut self, id: u64, loan: Loan, now: u64) -> Reply {
        self.holder.handle_reply(&self.local_lease, id, loan, at(now))
    }

    /// Requests units, and if it must wait fetches a batch and retries.
    fn serve(&mut self, cost: Cost, now: u64) -> HolderStep {
        if let turn @ (HolderStep::Spent { .. } | HolderStep::Deny(_)) = self.ask(cost, now) {
            return turn;
        }
        let request = self.request(now, now).unwrap();
        let loan = self.loan(request, now);
        self.reply(now, loan, now);
        self.ask(cost, now)
    }
}

#[test]
fn a_grant_is_credited_once_however_many_wait() {
    let mut rig = Rig::windowed();
    for _ in 0..4 {
        assert_eq!(rig.ask(1, 0), HolderStep::Wait);
    }
    let request = rig.request(7, 0).unwrap();
    assert_eq!((request.want.wants, request.want.least), (10, 1));
    assert_eq!(rig.request(8, 0), None, "one request at a time");
    let loan = rig.loan(request, 3);
    assert_eq!(rig.reply(7, loan, 5), Reply::Credited);
    assert_eq!(rig.reply(7, loan, 5), Reply::Late, "the same reply again");
    assert_eq!(rig.local_lease.units(), 10);
}

#[test]
fn those_whom_a_reply_could_not_serve_are_served_by_the_next() {
    let mut rig = Rig::windowed();
    rig.ask(1, 0);
    let first = rig.holder.poll_request(&rig.local_lease, 1, 2, at(0)).unwrap();
    for _ in 0..8 {
        rig.ask(1, 1);
    }
    let loan = rig.loan(first, 1);
    rig.reply(1, loan, 2);
    // Nine wake, two are served, and the third retries before the others have come.
    assert_eq!(
        [rig.ask(1, 2), rig.ask(1, 2), rig.ask(1, 2)],
        [HolderStep::Spent { left: 1 }, HolderStep::Spent { left: 0 }, HolderStep::Wait]
    );
    let second = rig.holder.poll_request(&rig.local_lease, 2, 2, at(2)).unwrap();
    assert_eq!(second.want.wants, 7);
}

#[test]
fn a_reply_to_a_request_that_was_given_up_is_late() {
    let mut rig = Rig::windowed();
    rig.ask(1, 0);
    let first = rig.request(1, 0).unwrap();
    let lost = rig.loan(first, 1);
    rig.holder.handle_failure(1);
    rig.ask(1, 50);
    let second = rig.request(2, 50).unwrap();
    assert_eq!(rig.reply(1, lost, 60), Reply::Late);
    let loan = rig.loan(second, 55);
    assert_eq!(rig.reply(2, loan, 60), Reply::Credited);
    assert_eq!(rig.local_lease.units(), 10);
}

#[test]
fn units_live_from_the_send_time_for_the_remaining_window() {
    let mut rig = Rig::windowed();
    rig.ask(1, 100);
    let request = rig.request(1, 100).unwrap();
    // The authority's clock shows another time altogether; only the four seconds left of its window matter.
    let loan = rig.loan(request, 6_000);
    assert_eq!(rig.reply(1, loan, 900), Reply::Credited);
    assert_eq!(rig.local_lease.until(), at(4_100));
    assert_eq!(rig.ask(1, 4_099), HolderStep::Spent { left: 9 });
    assert_eq!(rig.ask(1, 4_100), HolderStep::Wait);
}

#[test]
fn units_of_a_window_that_is_over_are_not_kept() {
    let mut rig = Rig::windowed();
    assert_eq!(rig.serve(1, 0), HolderStep::Spent { left: 9 });
    // The authority's clock is ahead, and its next window has begun.
    rig.ask(10, 5_000);
    let request = rig.request(1, 5_000).unwrap();
    assert_eq!(request.want, Want { wants: 1, least: 1, share: 1 });
    let loan = rig.loan(request, 12_000);
    rig.reply(1, loan, 5_000);
    assert_eq!(rig.local_lease.units(), 1);
}

#[test]
fn a_paused_caller_spends_no_expired_units() {
    let mut rig = Rig::windowed();
    rig.serve(1, 0);
    let slept = core::cell::Cell::new(9_999);
    let turn = rig.holder.handle_ask(&rig.local_lease, 1, || at(slept.replace(10_000)));
    assert_eq!(turn, HolderStep::Spent { left: 8 });
    let turn = rig.holder.handle_ask(&rig.local_lease, 1, || at(slept.get()));
    assert_eq!(turn, HolderStep::Wait, "the clock is read when the unit is out, and it is dead by then");
    assert_eq!(rig.local_lease.units(), 7);
}

#[test]
fn a_denial_covers_only_requests_of_at_least_its_cost() {
    let mut rig = Rig::windowed();
    for _ in 0..23 {
        assert!(matches!(rig.serve(1, 0), HolderStep::Spent { .. }));
    }
    assert_eq!(rig.local_lease.units(), 2);
    let denied = rig.serve(3, 1_000);
    assert!(matches!(denied, HolderStep::Deny(d) if d.retry_after.wait_ms() == Some(9_000)), "{denied:?}");
    assert!(matches!(rig.ask(4, 4_000), HolderStep::Deny(d) if d.retry_after.wait_ms() == Some(6_000)));
    assert_eq!(rig.ask(2, 4_000), HolderStep::Spent { left: 0 });
    assert_eq!(rig.ask(3, 10_000), HolderStep::Wait, "the denial has ended");
}

#[test]
fn held_units_never_exceed_the_maximum_lease() {
    let mut rig = Rig::new(Limit::fixed_window(1_000, 10 * SECOND).unwrap(), Term::Carry);
    rig.serve(1, 0);
    rig.holder.handle_low(at(1));
    let ahead = rig.holder.poll_request(&rig.local_lease, 2, 1_000_000, at(1)).unwrap();
    assert_eq!(ahead.want.wants, 1, "nine are held, ten may be");
    let loan = rig.loan(ahead, 1);
    rig.reply(2, loan, 1);
    assert_eq!(rig.local_lease.units(), 10);
    assert_eq!(rig.serve(15, 2), HolderStep::Spent { left: 0 });
}

#[test]
fn rolling_units_are_spent_in_the_order_in_which_they_die() {
    let gcra = Limit::gcra(Rate::per_second(10).burst(20)).unwrap();
    let mut rig = Rig::new(gcra, Term::Rolling(2 * SECOND));
    assert_eq!(rig.serve(1, 0), HolderStep::Spent { left: 9 });
    rig.ask(8, 500);
    rig.holder.handle_low(at(1_000));
    let request = rig.request(2, 1_000).unwrap();
    let loan = rig.loan(request, 1_000);
    rig.reply(2, loan, 1_000);
    assert_eq!(
        (rig.local_lease.units(), rig.local_lease.until()),
        (1, at(2_000)),
        "the first are not out yet"
    );
    assert_eq!(rig.ask(1, 1_500), HolderStep::Spent { left: 0 });
    assert_eq!(rig.ask(1, 1_500), HolderStep::Spent { left: 8 });
    assert_eq!(rig.local_lease.until(), at(3_000));
    assert_eq!(rig.holder.poll_return(&rig.local_lease, at(1_500)), None, "rolling units lapse");
}

#[test]
fn an_idle_key_returns_its_units_and_cannot_spend_them() {
    let mut rig = Rig::windowed();
    rig.serve(1, 0);
    let back = rig.holder.poll_return(&rig.local_lease, at(10)).unwrap();
    assert_eq!(back.units, 9);
    assert_eq!(rig.ask(1, 10), HolderStep::Wait);
}

#[test]
fn units_that_expired_in_flight_are_not_credited() {
    let mut rig = Rig::windowed();
    rig.ask(1, 0);
    let request = rig.request(1, 0).unwrap();
    let loan = rig.loan(request, 9_990);
    assert_eq!(rig.reply(1, loan, 10), Reply::Lapsed);
    assert_eq!(rig.holder.next_deadline(&rig.local_lease), None);
}

#[test]
fn a_cost_above_the_limit_is_denied_for_good() {
    let mut rig = Rig::windowed();
    assert!(matches!(rig.serve(26, 0), HolderStep::Deny(d) if d.retry_after == Retry::Never));
    assert!(matches!(rig.ask(26, 100_000), HolderStep::Deny(_)));
    assert!(matches!(rig.serve(1, 100_000), HolderStep::Spent { .. }));
}

#[test]
fn running_low_during_a_request_does_not_exceed_the_maximum_held() {
    for (limit, term) in [
        (Limit::fixed_window(1_000, 10 * SECOND).unwrap(), Term::Carry),
        (Limit::gcra(Rate::per_second(10).burst(20)).unwrap(), Term::Rolling(2 * SECOND)),
    ] {
        let mut rig = Rig::new(limit, term);
        rig.serve(8, 0);
        rig.holder.handle_low(at(1));
        let ahead = rig.request(1, 1).unwrap();
        rig.holder.handle_low(at(2));
        let loan = rig.loan(ahead, 2);
        rig.reply(1, loan, 2);
        assert_eq!(rig.request(2, 2), None, "{term:?}");
    }
}

#[test]
fn requests_ahead_of_need_stay_within_the_maximum_lease() {
    let gcra = || Limit::gcra(Rate::per_second(10).burst(20)).unwrap();
    let per_ten_seconds = || Limit::fixed_window(1_000, 10 * SECOND).unwrap();
    let rolling = Rig::new(gcra(), Term::Rolling(2 * SECOND));
    for mut rig in [rolling, Rig::windowed(), Rig::new(per_ten_seconds(), Term::Carry)] {
        assert_eq!(rig.serve(1, 0), HolderStep::Spent { left: 9 });
        rig.holder.handle_low(at(1));
        let ahead = rig.request(1, 1).unwrap();
        assert_eq!(ahead.want, Want { wants: 1, least: 1, share: 1 }, "nine are held, ten may be");
        // Low again while that is pending: there is nothing more to request when it has arrived.
        rig.holder.handle_low(at(1));
        let loan = rig.loan(ahead, 1);
        assert_eq!(rig.reply(1, loan, 1), Reply::Credited);
        assert_eq!(rig.request(2, 1), None);
    }
}

#[test]
fn a_cost_of_zero_never_waits() {
    let mut rig = Rig::windowed();
    assert_eq!(rig.ask(0, 0), HolderStep::Spent { left: 0 });
    rig.serve(1, 0);
    assert_eq!(rig.ask(0, 0), HolderStep::Spent { left: 9 });
    assert_eq!(rig.ask(0, 10_000), HolderStep::Spent { left: 0 });
}

#[test]
fn units_that_expired_early_are_not_held_again() {
    let mut rig = Rig::windowed();
    rig.ask(1, 0);
    let slow = rig.request(1, 0).unwrap();
    // Four seconds on the way, which the holder must take off.
    let loan = rig.loan(slow, 4_000);
    rig.reply(1, loan, 4_000);
    assert_eq!(rig.local_lease.until(), at(6_000));
    rig.ask(1, 6_000);
    let quick = rig.request(2, 6_000).unwrap();
    let loan = rig.loan(quick, 6_000);
    rig.reply(2, loan, 6_000);
    assert_eq!((rig.local_lease.units(), rig.local_lease.until()), (10, at(10_000)));
}

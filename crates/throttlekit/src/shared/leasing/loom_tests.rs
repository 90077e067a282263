//! Every interleaving of threads that spend from a local lease with one that fills it or gives it to another key.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use loom::thread;
use throttlekit_core::Timestamp;
use throttlekit_core::lease::{LocalLease, Spend};

use crate::sync::SharedWord;

const ALICE: u64 = 1;
const BOB: u64 = 2;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn local_lease(units: u64, until: u64) -> Arc<LocalLease<SharedWord>> {
    let local_lease = LocalLease::new();
    local_lease.fill(units, at(until), false);
    Arc::new(local_lease)
}

fn spent(spend: Spend) -> u64 {
    u64::from(matches!(spend, Spend::Spent { .. }))
}

#[test]
fn loom_no_unit_is_spent_twice() {
    loom::model(|| {
        let local_lease = local_lease(3, 50);
        let spenders: Vec<_> = [1, 2]
            .map(|cost| {
                let local_lease = local_lease.clone();
                thread::spawn(move || cost * spent(local_lease.spend(cost, || at(0))))
            })
            .into();
        let mine = spent(local_lease.spend(1, || at(0)));
        let total: u64 = spenders.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>() + mine;
        assert!(
            total <= 3 && total + local_lease.units() <= 3,
            "{total} spent, {} left",
            local_lease.units()
        );
    });
}

/// A thread may sleep between its steps; what it spends expires with its own fill, not the next.
#[test]
fn loom_no_unit_outlives_its_filling() {
    loom::model(|| {
        let local_lease = local_lease(2, 10);
        // The clock has passed the first deadline before the local lease is filled again.
        let late = {
            let local_lease = local_lease.clone();
            thread::spawn(move || spent(local_lease.spend(1, || at(20))))
        };
        let filler = {
            let local_lease = local_lease.clone();
            thread::spawn(move || local_lease.fill(1, at(30), false))
        };
        let spent_late = late.join().unwrap();
        filler.join().unwrap();
        let rest = spent(local_lease.spend(1, || at(20)));
        assert!(spent_late + rest <= 1, "only one unit lives at 20");
    });
}

/// The same with a seeded bug: the spender reads the deadline after it took the unit, and whichever is there.
#[test]
#[should_panic(expected = "only one unit lives at 20")]
fn loom_finds_the_seeded_bug_of_a_deadline_read_too_late() {
    loom::model(|| {
        let local_lease = local_lease(2, 10);
        let late = {
            let local_lease = local_lease.clone();
            thread::spawn(move || {
                spent(local_lease.spend(1, || at(0))) * u64::from(at(20) < local_lease.until())
            })
        };
        local_lease.fill(1, at(30), false);
        let spent_late = late.join().unwrap();
        let rest = spent(local_lease.spend(1, || at(20)));
        assert!(spent_late + rest <= 1, "only one unit lives at 20");
    });
}

#[test]
fn loom_a_kept_filling_loses_and_duplicates_only_racing_units() {
    loom::model(|| {
        let local_lease = local_lease(1, 50);
        let spender = {
            let local_lease = local_lease.clone();
            thread::spawn(move || spent(local_lease.spend(1, || at(0))))
        };
        local_lease.fill(1, at(60), true);
        let spent = spender.join().unwrap();
        assert!(spent + local_lease.units() <= 2, "{spent} spent, {} left", local_lease.units());
    });
}

/// Units of the next owner are never spent by a thread that found the local lease when it was another's.
#[test]
fn loom_a_local_lease_that_is_handed_over_takes_no_foreign_units() {
    loom::model(|| {
        let (local_lease, owner) = (local_lease(1, 50), Arc::new(AtomicU64::new(ALICE)));
        let alice = {
            let (local_lease, owner) = (local_lease.clone(), owner.clone());
            thread::spawn(move || spent(local_lease.spend_if(|| owner.load(Acquire) == ALICE, 1, || at(0))))
        };
        let hers = local_lease.empty(at(0));
        owner.store(BOB, Release);
        local_lease.fill(5, at(50), false);
        let spent = alice.join().unwrap();
        assert!(spent + hers <= 1, "Alice's one unit was spent and handed in");
    });
}

/// One thread gives back units while it has the state locked, while two spend what is there and what comes.
#[test]
fn loom_returned_units_are_spent_once() {
    loom::model(|| {
        let local_lease = local_lease(1, 50);
        let spenders: Vec<_> = [1, 2]
            .map(|cost| {
                let local_lease = local_lease.clone();
                thread::spawn(move || cost * spent(local_lease.spend(cost, || at(0))))
            })
            .into();
        local_lease.refund(1);
        let total: u64 = spenders.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert!(total + local_lease.units() <= 2, "{total} spent, {} left", local_lease.units());
    });
}

#[test]
fn loom_returned_units_join_only_their_own_filling() {
    loom::model(|| {
        let local_lease = local_lease(2, 50);
        let mut drawn = local_lease.draw(1);
        let spender = {
            let local_lease = local_lease.clone();
            thread::spawn(move || {
                let spent = spent(drawn.spend(1, || at(0)));
                local_lease.put_back(drawn);
                let again = local_lease.draw(1);
                local_lease.put_back(again);
                spent
            })
        };
        local_lease.fill(3, at(60), false);
        assert_eq!(spender.join().unwrap(), 1);
        assert!(local_lease.units() <= 3, "{} units of a filling of three", local_lease.units());
    });
}

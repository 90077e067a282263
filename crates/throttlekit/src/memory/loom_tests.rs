//! Three threads on one cell, and two on a table, under loom.
//!
//! Charging threads are run in every interleaving. Where a cell changes hands as well, CI stops at four
//! preemptions; `LOOM_MAX_PREEMPTIONS=20` runs them all and takes long.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p throttlekit --release --lib loom_`.

use std::time::Duration;

use loom::sync::Arc;
use loom::thread;
use throttlekit_core::Timestamp;
use throttlekit_core::rate::word::{GcraWord, WordRule};
use throttlekit_core::rate::{Gcra, Mark, Rate};

use super::budget::Capacity;
use super::cell::{Cell, Charged};
use super::table::WordTable;
use super::word_sketch::{WordSketch, places};
use crate::clock::Clock;

const ALICE: u64 = 0xA11CE;
const BOB: u64 = 0xB0B;
const UNIT: u64 = 1_000_000_000;

/// One unit a second: a unit is 10⁹ ticks.
fn rule(burst: u64) -> GcraWord {
    let gcra = Gcra::new(Rate::per_second(1).burst(burst)).unwrap();
    GcraWord::new(&gcra).unwrap()
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::EPOCH + Duration::from_secs(seconds)
}

fn owned_by(key: u64, word: u64) -> Cell {
    let cell = Cell::empty(0);
    assert!(cell.hold(0));
    cell.hand_over(key, word);
    cell
}

/// Returns whether a request of one unit was charged; a cell that is held or gone charges nothing.
fn charged(cell: &Cell, key: u64, burst: u64, now: Timestamp) -> bool {
    let rule = rule(burst);
    matches!(cell.charge(key, &rule, 1, rule.floor(now)), Charged::Allowed(_))
}

/// Explores at most four preemptions, unless the environment sets another number.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(4));
    builder.check(model);
}

/// Spawns one thread more than the test's own for each of these, and returns all results in order.
fn race<T: 'static>(here: impl FnOnce() -> T, there: [Box<dyn FnOnce() -> T + 'static>; 2]) -> [T; 3] {
    let [second, third] = there.map(|work| thread::spawn(work));
    [here(), second.join().unwrap(), third.join().unwrap()]
}

#[test]
fn loom_three_threads_on_one_cell_admit_exactly_the_burst() {
    loom::model(|| {
        let cell = Arc::new(owned_by(ALICE, 1));
        let asker = || {
            let cell = Arc::clone(&cell);
            move || charged(&cell, ALICE, 2, at(100))
        };
        let answers = race(asker(), [Box::new(asker()), Box::new(asker())]);
        assert_eq!(answers.iter().filter(|charged| **charged).count(), 2);
        assert_eq!(cell.word(), (102 * UNIT, false));
    });
}

/// Bob wants the cell in which Alice has no usage left; Alice sends two requests meanwhile.
fn takeover(first_word_of_bob: impl Fn(u64) -> u64 + Copy + Send + Sync + 'static) {
    explore(move || {
        let idle = 50 * UNIT;
        let cell = Arc::new(owned_by(ALICE, idle));
        let asker = || {
            let cell = Arc::clone(&cell);
            move || charged(&cell, ALICE, 5, at(100))
        };
        let bob = {
            let cell = Arc::clone(&cell);
            move || {
                let taken = cell.hold(idle);
                if taken {
                    cell.hand_over(BOB, first_word_of_bob(idle));
                }
                taken
            }
        };
        let [taken, first, second] = race(bob, [Box::new(asker()), Box::new(asker())]);
        let charged = u64::from(first) + u64::from(second);
        if taken {
            assert_eq!((cell.key(), charged), (BOB, 0), "who lost the cell was not charged in it");
            assert_eq!(cell.word(), (first_word_of_bob(idle), false), "Bob owes only what he asked for");
        } else {
            assert_eq!((cell.key(), cell.word().0), (ALICE, (100 + charged) * UNIT));
        }
    });
}

#[test]
fn loom_a_cell_that_changes_hands_is_never_charged_for_its_old_owner() {
    takeover(|_| 101 * UNIT);
}

#[test]
#[should_panic(expected = "who lost the cell was not charged in it")]
fn loom_finds_the_seeded_bug_of_a_word_that_is_not_increased() {
    takeover(|idle| idle);
}

#[test]
fn loom_a_reset_clears_earlier_charges_and_no_later_ones() {
    explore(|| {
        let cell = Arc::new(owned_by(ALICE, 1));
        let asker = || {
            let cell = Arc::clone(&cell);
            move || charged(&cell, ALICE, 2, at(100))
        };
        let reset = {
            let cell = Arc::clone(&cell);
            move || {
                cell.forgive(ALICE).expect("nobody else holds it");
                false
            }
        };
        let charged = race(reset, [Box::new(asker()), Box::new(asker())]).map(u64::from).iter().sum::<u64>();
        let (word, held) = cell.word();
        let owed = word.saturating_sub(100 * UNIT) / UNIT;
        assert!(owed <= charged && word <= 102 * UNIT && !held, "{word} after {charged} charges");
        assert_eq!(cell.key(), ALICE);
    });
}

/// Alice returns the one unit she was charged, while she requests two more of a burst of two.
fn refund(hand_back: impl Fn(&Cell, &dyn Fn(u64) -> u64) + Copy + Send + Sync + 'static) {
    explore(move || {
        let cell = Arc::new(owned_by(ALICE, 101 * UNIT));
        let asker = || {
            let cell = Arc::clone(&cell);
            move || charged(&cell, ALICE, 2, at(100))
        };
        let refund = {
            let cell = Arc::clone(&cell);
            move || {
                let mark = Mark(at(100).as_nanos());
                hand_back(&cell, &|word| rule(2).refund(word, mark, 1, at(100)));
                false
            }
        };
        let charged = race(refund, [Box::new(asker()), Box::new(asker())]).map(u64::from).iter().sum::<u64>();
        assert_eq!(cell.word(), ((100 + charged) * UNIT, false), "no charge and no refund is lost");
        assert_eq!(cell.key(), ALICE);
    });
}

#[test]
fn loom_a_refund_returns_earlier_charges_and_no_later_ones() {
    refund(|cell, next| cell.change(ALICE, next).expect("nobody else holds it"));
}

#[test]
#[should_panic(expected = "no charge and no refund is lost")]
fn loom_finds_the_seeded_bug_of_a_refund_that_does_not_hold_the_cell() {
    refund(|cell, next| cell.release(next(cell.word().0)));
}

/// Bob wants the cell of Alice, who gets a refund meanwhile and sends another request.
#[test]
fn loom_a_refund_never_reaches_the_next_owner() {
    explore(|| {
        let idle = 50 * UNIT;
        let cell = Arc::new(owned_by(ALICE, idle));
        let bob = {
            let cell = Arc::clone(&cell);
            move || {
                let taken = cell.hold(idle);
                if taken {
                    cell.hand_over(BOB, 101 * UNIT);
                }
                taken
            }
        };
        let refund = {
            let cell = Arc::clone(&cell);
            move || cell.change(ALICE, |word| word - UNIT).is_some()
        };
        let asker = {
            let cell = Arc::clone(&cell);
            move || charged(&cell, ALICE, 5, at(100))
        };
        let [taken, refunded, charged] = race(bob, [Box::new(refund), Box::new(asker)]);
        match (taken, refunded, charged) {
            (true, refunded, charged) => {
                assert_eq!(
                    (cell.key(), cell.word(), refunded, charged),
                    (BOB, (101 * UNIT, false), false, false)
                );
            }
            (false, false, false) => panic!("nobody found the cell free"),
            (false, true, false) => assert_eq!(cell.word(), (49 * UNIT, false)),
            (false, refunded, true) => {
                let (word, held) = cell.word();
                let after = [101 * UNIT, 100 * UNIT];
                assert!(!held && after[..=usize::from(refunded)].contains(&word), "{word}");
            }
        }
    });
}

struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        at(100)
    }
}

/// Creates the smallest table: sixteen cells, and a sketch of two columns for keys without a cell.
fn table(burst: u64) -> WordTable<GcraWord> {
    WordTable::new(rule(burst), Capacity { bytes: 1, expected_keys: 1 })
}

fn two_threads(mut work: impl FnMut() -> Box<dyn FnOnce() -> u64>) -> u64 {
    let other = thread::spawn(work());
    work()() + other.join().unwrap()
}

/// Explores at most two preemptions: a lookup in a table is dozens of loads.
fn explore_table(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(model);
}

#[test]
fn loom_two_threads_never_add_a_key_twice() {
    explore_table(|| {
        let table = Arc::new(table(1));
        let admitted = two_threads(|| {
            let table = Arc::clone(&table);
            Box::new(move || u64::from(table.check(ALICE, 1, &Still).allowed))
        });
        assert_eq!(admitted, 1);
    });
}

/// Neither request finds the key when it begins; one of them is over several limits and denied elsewhere.
#[test]
fn loom_a_newcomer_that_is_not_charged_leaves_the_cell_as_it_was() {
    explore_table(|| {
        let table = Arc::new(table(1));
        let mut charges = [true, false].into_iter();
        let admitted = two_threads(|| {
            let (table, charges) = (Arc::clone(&table), charges.next().unwrap());
            Box::new(move || {
                let held = table.hold(if charges { ALICE } else { BOB }, at(100));
                drop(held);
                u64::from(charges && table.check(ALICE, 1, &Still).allowed)
            })
        });
        assert_eq!((admitted, table.live(at(100))), (1, 1));
        assert_eq!(table.word(BOB), 0);
    });
}

/// Two keys share all cells of a sketch and are counted at once, one of them twice.
fn counted_at_once(raise: impl Fn(&WordSketch, u64, u64) + Copy + Send + Sync + 'static) {
    let stranger = (1..).find(|key| places(*key, 2) == places(ALICE, 2)).unwrap();
    explore(move || {
        let sketch = Arc::new(WordSketch::new(1));
        let other = {
            let sketch = Arc::clone(&sketch);
            thread::spawn(move || raise(&sketch, stranger, 5))
        };
        raise(&sketch, ALICE, sketch.least(ALICE) + 3);
        raise(&sketch, ALICE, sketch.least(ALICE) + 3);
        other.join().unwrap();
        assert!(sketch.least(ALICE) >= 6 && sketch.least(stranger) >= 5, "an estimate is too low");
    });
}

#[test]
fn loom_estimates_of_keys_that_share_cells_are_never_too_low() {
    counted_at_once(WordSketch::raise);
}

#[test]
#[should_panic(expected = "an estimate is too low")]
fn loom_finds_the_seeded_bug_of_a_cell_that_is_stored_and_not_raised() {
    counted_at_once(WordSketch::store);
}

/// All sixteen cells are taken by keys with usage: the key is counted in the sketch, by two threads.
#[test]
fn loom_two_threads_beyond_the_budget_admit_exactly_the_burst() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(1));
    builder.max_branches = 100_000;
    builder.check(|| {
        let table = Arc::new(table(1));
        for owner in 1..=16_u64 {
            assert!(table.check(owner << 60 | owner, 1, &Still).allowed);
        }
        assert_eq!(table.live(at(100)), 16, "sixteen cells, and all are taken");
        let admitted = two_threads(|| {
            let table = Arc::clone(&table);
            Box::new(move || u64::from(table.check(ALICE, 1, &Still).allowed))
        });
        assert_eq!((admitted, table.live(at(100))), (1, 16));
    });
}

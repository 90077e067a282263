//! Every invariant over ten thousand scenarios, and every seeded bug found. Names are those of
//! `docs/reference/guarantees.md`.

use throttlekit_conformance::invariants::{self, Invariant};

const CASES: u64 = 10_000;

fn invariant(name: &str) -> Invariant {
    invariants::named(name).unwrap_or_else(|| panic!("no invariant is called {name}"))
}

macro_rules! invariants {
    ($($module:ident = $name:literal finds [$($bug:ident),*];)*) => {
        $(mod $module {
            use super::*;

            #[test]
            fn holds() {
                invariant($name).check(0..CASES).unwrap_or_else(|violation| panic!("{}: {violation}", $name));
            }

            mod finds {
                use super::*;

                $(#[test]
                fn $bug() {
                    assert!(invariant($name).find(stringify!($bug), CASES).is_some(), "the invariant does not find it");
                })*
            }
        })*

        /// An invariant or a seeded bug without a test here would go unwatched.
        #[test]
        fn every_invariant_and_every_seeded_bug_is_tested() {
            let tested: Vec<(&str, Vec<&str>)> = vec![$(($name, vec![$(stringify!($bug)),*])),*];
            let known: Vec<(&str, Vec<&str>)> = invariants::all()
                .iter()
                .map(|invariant| (invariant.name, invariant.seeded.iter().map(|(bug, _)| *bug).collect()))
                .collect();
            assert_eq!(tested, known);
        }
    };
}

invariants! {
    algebra = "algebra" finds [first_limit, adds_waits, least_reset, midpoint_remaining];
    rate_exact_bound = "rate-exact/bound" finds [
        cost_ignored, one_unit_more, one_nano_early, clock_trusted, float_drift, remainder_dropped
    ];
    rate_exact_tight = "rate-exact/tight" finds [
        one_unit_fewer, one_nano_late, charge_on_denial, float_drift, remainder_dropped
    ];
    rate_exact_retry = "rate-exact/retry" finds [retry_early, retry_late, never_as_wait, next_bucket_hint];
    clock_back_each_ask = "clock-back/each-ask" finds [clock_trusted, phantom_refill];
    clock_back_total = "clock-back/total" finds [clock_trusted, phantom_refill];
    deny_is_free_one = "deny-is-free/one" finds [charge_on_denial];
    deny_is_free_many = "deny-is-free/many" finds [charges_in_turn, charges_all_for_any, names_the_first, shortest_wait];
    same_everywhere_word = "same-everywhere/word" finds [
        cost_dropped, floor_ignored, word_ignored, retry_early, from_when_it_was_built, ten_years_at_most
    ];
    bounded_memory_join = "bounded-memory/join" finds [join_keeps_smaller, join_adds];
    bounded_memory_forget = "bounded-memory/forget" finds [forget_early, forget_late];
    forecast_exact = "forecast-exact" finds [peek_spends, replenish_early, replenish_late, full_early, full_late];
    settle_replay = "settle/replay" finds [refund_twice, refund_of_any_window, refund_forgotten, debt_stops_at_limit];
    settle_refund = "settle/refund" finds [refund_by_mark_only, refund_twice, refund_forgotten, refund_of_a_shaper];
    settle_debt = "settle/debt" finds [debt_stops_at_limit, debt_without_end, debt_forgotten];
    settle_word = "settle/word" finds [
        refund_of_any_window, refund_of_what_refilled, refund_of_a_shaper, refund_twice, refund_forgotten,
        refund_from_the_cap, crossing_to_limit, debt_stops_at_limit, debt_forgotten
    ];
}

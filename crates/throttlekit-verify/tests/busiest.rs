//! The guarantees of `SpaceSaving` about the most frequent keys.

use throttlekit_verify::busiest;

#[test]
fn busiest_counts_are_within_their_error_and_heavy_keys_are_tracked() {
    let (seen, violations) = busiest::examine(200, busiest::shipped);
    println!("busiest: {seen:?}");
    assert!(violations.is_empty(), "{violations:#?}");
    let edges = [seen.errors, seen.errors_at_bound, seen.wrong_by_all, seen.level_without_place];
    assert!(edges.iter().all(|times| *times > 100), "each bound is reached: {seen:?}");
}

#[test]
fn busiest_finds_every_seeded_bug_and_nothing_without_one() {
    let outcome = busiest::find_seeded(200);
    assert_eq!(outcome.check(), Ok(()));
    assert_eq!(outcome.total(), 12);
    assert_eq!(busiest::examine(50, busiest::written_anew).1, Vec::<String>::new());
}

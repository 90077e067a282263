//! Guarantee `budget-tree`, in memory and at a small size; `cargo xtask verify budget-tree` runs every engine and more
//! scenarios.

use std::sync::Arc;

use throttlekit::store::MemoryStore;
use throttlekit_verify::budget_tree::{self, Played, TreeBug};

#[test]
fn budget_tree_holds_beside_the_model() {
    let played = budget_tree::examine(0..2_000).unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(played.missing(), Vec::<&str>::new(), "{played:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn budget_tree_holds_for_callers_at_once() {
    let (store, mut all) = (Arc::new(MemoryStore::new()), Played::default());
    for seed in 0..300 {
        let played = budget_tree::examine_at_once(&store, &format!("tree-{seed}"), seed).await;
        all.add(&played.unwrap_or_else(|violation| panic!("{violation}")));
    }
    assert_eq!(all.missing(), Vec::<&str>::new(), "{all:?}");
}

#[test]
fn budget_tree_finds_every_seeded_bug() {
    for bug in TreeBug::ALL {
        assert!(budget_tree::find_seeded(*bug, 5_000).is_some(), "{}: {}", bug.name(), bug.description());
    }
}

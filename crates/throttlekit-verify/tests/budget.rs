//! Guarantee `budget`, in memory and at a small size; `cargo xtask verify budget` runs every engine and
//! larger configurations.

use std::sync::Arc;

use throttlekit::store::MemoryStore;
use throttlekit_verify::budget;

#[tokio::test(flavor = "multi_thread")]
async fn budget_holds_for_every_configuration_and_is_reached() {
    let stores = [Arc::new(MemoryStore::new())];
    let (mut tight, mut again) = (0, 0);
    for (i, setup) in budget::setups(&[1, 8], &[1, 8], &[7, 64]).into_iter().enumerate() {
        let seen = budget::run(&stores, &format!("fleet-{i}"), setup).await;
        setup.check(&seen).unwrap_or_else(|violation| panic!("{violation}: {seen:?}"));
        tight += usize::from(setup.is_tight(&seen));
        again += seen.again;
    }
    assert!(tight > 16 && again > 1_000, "{tight} fleets at the bound, {again} debits sent again");
}

#[tokio::test(flavor = "multi_thread")]
async fn budget_finds_every_seeded_bug() {
    let outcome = budget::find_seeded().await;
    assert_eq!(outcome.check(), Ok(()));
    assert_eq!(outcome.total(), 6);
}

//! Guarantee `bid-price`, at a small size; `cargo xtask verify bid-price` runs more of everything.

use throttlekit_verify::price::{self, Size};

const SMALL: Size = Size { problems: 800, refiners: 8, streams: 300 };

#[test]
fn bid_price_duals_are_optimal_refiners_strict_and_prices_only_remove_admits() {
    let found = price::examine(SMALL);
    assert!(found.violations.is_empty(), "{:#?}", found.violations);
    assert!(found.adopted > 0, "nothing was ever adopted");
}

#[test]
fn bid_price_finds_every_seeded_bug() {
    let outcome = price::find_seeded(Size { refiners: 50, ..SMALL });
    assert_eq!(outcome.check(), Ok(()));
    assert_eq!(outcome.total(), 29);
}

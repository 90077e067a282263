//! Three ways to meter, at a small size; `cargo xtask verify metering` has the whole table.

use throttlekit_verify::metering::{self, Setup};

const SMALL: Setup = Setup { budget: 50_000, streams: 16, windows: 4 };

#[test]
fn metering_by_streams_serves_all_of_the_budget_and_no_more_than_the_last_chunk_beyond() {
    let rows = metering::table_of(1, &[256, 2_048, 16_384], &SMALL);
    let broken = metering::check(&rows);
    assert!(broken.is_empty(), "{broken:#?}\n{rows:#?}");
}

#[test]
fn metering_finds_every_seeded_meter() {
    let outcome = metering::find_seeded(1, 2_048, &SMALL);
    assert_eq!(outcome.check(), Ok(()));
    assert_eq!(outcome.total(), 6);
}

use std::time::Duration;

use throttlekit::{Limit, Rate};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A server with this row and log position, ten seconds after its start.
fn server(timeline: i64, epoch: i64, since: i64, flushed: i64) -> [i64; 7] {
    [7, timeline, epoch, since, 20_000_000, 10_000_000, flushed]
}

fn in_use(limit: Limit) -> Lineage {
    let lineage = Lineage::default();
    lineage.uses([&ScriptEncoding::of(&limit).unwrap()]);
    lineage
}

fn per_minute() -> Lineage {
    in_use(Limit::fixed_window(5, MINUTE).unwrap())
}

#[tokio::test(start_paused = true)]
async fn another_timeline_bounds_responses_until_the_longest_window_has_passed() {
    let lineage = per_minute();
    assert_eq!(lineage.learn(&server(1, 1, 0, 100)), Ok(1));
    assert_eq!(lineage.learn(&server(1, 1, 0, 120)), Ok(1));
    assert_eq!(lineage.guarantee(), Guarantee::Exact);
    assert_eq!(lineage.learn(&server(2, 2, 20_000_000, 90)), Ok(2));
    assert_eq!(lineage.remembered(), [7, 2, 2, 10_000_000, 90], "the log of the other history is forgotten");
    tokio::time::advance(MINUTE - Duration::from_millis(1)).await;
    assert_eq!(lineage.guarantee(), Guarantee::Bounded(u64::MAX));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(lineage.guarantee(), Guarantee::Exact);
    lineage.uses([&ScriptEncoding::of(&Limit::gcra(Rate::per_hour(1)).unwrap()).unwrap()]);
    assert_eq!(lineage.guarantee(), Guarantee::Bounded(u64::MAX), "a longer limit reaches further back");
}

#[tokio::test(start_paused = true)]
async fn a_later_store_reads_the_change_from_the_row() {
    let lineage = per_minute();
    lineage.learn(&server(2, 2, 5_000_000, 90)).unwrap();
    assert_eq!(lineage.guarantee(), Guarantee::Bounded(u64::MAX));
    tokio::time::advance(MINUTE - Duration::from_secs(15)).await;
    assert_eq!(lineage.guarantee(), Guarantee::Exact, "15 s had passed before it came");
}

#[tokio::test(start_paused = true)]
async fn a_pooler_that_switches_servers_is_detected_by_the_response_itself() {
    let lineage = per_minute();
    lineage.learn(&server(1, 1, 0, 100)).unwrap();
    let before = lineage.before();
    assert_eq!(lineage.seen(before, &[7, 1, 1, 130]), Ok(false));
    assert_eq!(lineage.seen(before, &[7, 1, 1, 110]), Ok(false), "it was sent before the other was answered");
    assert_eq!(lineage.guarantee(), Guarantee::Exact);
    for elsewhere in [[7, 2, 1, 200], [8, 1, 1, 200], [7, 1, 2, 200], [7, 1, 1, 129]] {
        let lineage = per_minute();
        lineage.learn(&server(1, 1, 0, 130)).unwrap();
        assert_eq!(lineage.seen(lineage.before(), &elsewhere), Ok(true), "{elsewhere:?}");
        assert_eq!(lineage.guarantee(), Guarantee::Bounded(u64::MAX));
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_an_earlier_history_does_not_vouch_for_this_one() {
    let lineage = per_minute();
    let first = lineage.learn(&server(1, 1, 0, 100)).unwrap();
    let second = lineage.learn(&server(2, 2, 20_000_000, 50)).unwrap();
    lineage.flushed(first, PgLsn::from(900));
    assert_eq!(lineage.remembered()[4], 50);
    lineage.flushed(second, PgLsn::from(60));
    assert_eq!(lineage.remembered()[4], 60);
}

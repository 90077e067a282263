//! A short fault schedule: node processes that share one ceiling of a backend process. `cargo xtask verify
//! slots fleet` runs longer.

use crate::common::single;
use throttlekit_verify::divided::{
    Bug, SCHEDULES_MAX, SHORT_CEILING, ceiling_holds, post, serve, short_schedule,
};

#[test]
fn fleet_slots_processes_never_have_more_in_flight_than_the_ceiling() {
    if let Some(post) = post() {
        return serve(&post, || async { single().connect().await.unwrap() });
    }
    ceiling_holds("nodes_divided::fleet_slots_processes_never_have_more_in_flight_than_the_ceiling");
}

#[test]
fn fleet_slots_finds_a_clock_that_stops_with_its_process() {
    if let Some(post) = post() {
        return serve(&post, || async { single().connect().await.unwrap() });
    }
    // A node has to be stopped while it is about to admit a request; on a busy machine a short schedule may
    // miss that.
    let name = "nodes_divided::fleet_slots_finds_a_clock_that_stops_with_its_process";
    let mut schedules = (0..SCHEDULES_MAX).map(|_| short_schedule(name, Some(Bug::ClockStands)));
    assert!(
        schedules.any(|seen| seen.most > SHORT_CEILING.into()),
        "not found in {SCHEDULES_MAX} fault schedules"
    );
}

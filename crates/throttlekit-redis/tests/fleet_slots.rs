//! A real fleet in a short storm: node processes that share one ceiling of a backend process. `cargo xtask verify slots
//! fleet` takes longer.

use crate::common::single;
use throttlekit_verify::fleet::{Bug, SHORT_CEILING, STORMS_MAX, ceiling_holds, post, serve, short_storm};

#[test]
fn fleet_slots_processes_never_have_more_in_flight_than_the_ceiling() {
    if let Some(post) = post() {
        return serve(&post, || async { single().connect().await.unwrap() });
    }
    ceiling_holds("fleet_slots::fleet_slots_processes_never_have_more_in_flight_than_the_ceiling");
}

#[test]
fn fleet_slots_finds_a_clock_that_stands_while_its_process_is_stopped() {
    if let Some(post) = post() {
        return serve(&post, || async { single().connect().await.unwrap() });
    }
    // A node has to be stopped while it is about to let someone in; on a busy machine a short storm may miss that.
    let name = "fleet_slots::fleet_slots_finds_a_clock_that_stands_while_its_process_is_stopped";
    let mut storms = (0..STORMS_MAX).map(|_| short_storm(name, Some(Bug::ClockStands)));
    assert!(storms.any(|seen| seen.most > SHORT_CEILING.into()), "blind to it in {STORMS_MAX} storms");
}

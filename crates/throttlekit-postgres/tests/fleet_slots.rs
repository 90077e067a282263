//! A real fleet in a short storm: node processes that share one ceiling of a backend process. `cargo xtask prove slots
//! fleet` takes longer.

mod common;

use common::builder;
use throttlekit_conformance::fleet::{SHORT_CEILING, post, serve, short_storm};

#[test]
fn fleet_slots_processes_never_have_more_in_flight_than_the_ceiling() {
    if let Some(post) = post() {
        return serve(&post, || async { builder("tk_fleet_slots").connect().await.unwrap() });
    }
    let seen = short_storm("fleet_slots_processes_never_have_more_in_flight_than_the_ceiling", None);
    assert!(seen.most.max(seen.decided) <= SHORT_CEILING.into(), "{seen:?}");
    assert!(seen.most * 4 >= u64::from(SHORT_CEILING) * 3 && seen.fences > 0, "nothing was tried: {seen:?}");
}

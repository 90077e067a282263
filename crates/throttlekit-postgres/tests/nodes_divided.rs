//! A short fault schedule: node processes that share one ceiling of a backend process. `cargo xtask verify
//! slots fleet` runs longer.

use crate::common::builder;
use throttlekit_verify::divided::{ceiling_holds, post, serve};

#[test]
fn fleet_slots_processes_never_have_more_in_flight_than_the_ceiling() {
    if let Some(post) = post() {
        return serve(&post, || async { builder("tk_fleet_slots").connect().await.unwrap() });
    }
    ceiling_holds("nodes_divided::fleet_slots_processes_never_have_more_in_flight_than_the_ceiling");
}

//! Law `reload`: a change of numbers takes nothing back and gives nothing away; and the law can fail.

use throttlekit::store::MemoryStore;
use throttlekit_conformance::reload::{RELOAD_BUGS, examine_reload, find_reload_bug};

#[tokio::test]
async fn reload_in_a_memory_store_goes_on_from_what_was_used() {
    let make = |clock| async { Ok(MemoryStore::with_clock(clock)) };
    let report = examine_reload(make, 0..5_000).await.unwrap_or_else(|violation| panic!("{violation}"));
    println!("{report:?}");
    assert!(report.carried > 1_000 && report.off_grid > 100, "{report:?}");
    assert!(report.lent > 100 && report.repeated > 10, "{report:?}");
}

#[tokio::test]
async fn reload_every_planted_bug_is_found() {
    for (name, bug) in RELOAD_BUGS {
        let worlds = find_reload_bug(bug, 2_000).await;
        assert!(worlds.is_some(), "blind to {name}");
        println!("{:>6}  {name}", worlds.unwrap_or_default());
    }
}

//! `same-everywhere` for stores can fail: each planted bug is found.

use throttlekit_conformance::stores::{STORE_BUGS, STORE_WORLDS, find_store_bug};

#[tokio::test(flavor = "multi_thread")]
async fn every_planted_bug_of_a_store_is_found() {
    let mut missed = Vec::new();
    for (name, bug) in STORE_BUGS {
        match find_store_bug(bug, STORE_WORLDS).await {
            Some(worlds) => println!("{worlds:>6}  {name}"),
            None => missed.push(name),
        }
    }
    assert_eq!(missed, [""; 0], "the examination is blind to them");
}

//! A server that is unusable in its configuration is checked again, whichever runtime found it unusable.

use std::time::Duration;

use crate::rig::{DAY, Server};
use throttlekit::store::StoreError;
use throttlekit::{Limit, SharedLimiter};
use throttlekit_redis::RedisStore;
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn an_unusable_server_is_checked_again_after_the_runtime_that_detected_it_ended() {
    let rig = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = rig.block_on(Server::start(&[]));
    let ask = |command: &str| rig.block_on(server.ask::<redis::Value>(command));
    ask("ACL SETUSER tk on >pw ~* &* +@all");
    let first = runtime();
    let url = format!("redis://tk:pw@127.0.0.1:{}", server.port);
    let builder = RedisStore::builder(url).deadline(Duration::from_secs(5));
    let store = first.block_on(builder.connect()).unwrap();
    let limiter = SharedLimiter::new(store, "unusable", Limit::fixed_window(1_000, DAY).unwrap()).unwrap();
    assert!(first.block_on(limiter.check("key")).unwrap().decision.allowed);

    ask("ACL SETUSER tk -@all +hello +client +info +auth");
    ask("CLIENT KILL USER tk");
    // The first may find the connection gone, and only the next that rights are missing.
    let refused = (0..3).filter_map(|_| first.block_on(limiter.check("key")).err()).last();
    assert!(matches!(refused, Some(StoreError::Misconfigured(_))), "{refused:?}");
    ask("ACL SETUSER tk +@all");
    drop(first);

    let second = runtime();
    let well = second.block_on(async {
        for _ in 0..40 {
            tokio::time::sleep(Duration::from_millis(250)).await;
            if limiter.check("key").await.is_ok_and(|answer| answer.decision.allowed) {
                return true;
            }
        }
        false
    });
    assert!(well, "rights were back for ten seconds");
}

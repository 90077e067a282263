//! Rounds in which a server loses charges, or could.
//!
//! `make` opens a store at an address, as a new process would, and creates its schema if needed. Rounds on
//! one server need a schema each: the losses of one affect all that follow.

use throttlekit::store::Store;
use throttlekit::{Guarantee, Limit, SharedLimiter};

use super::server::Server;
use super::window::{LIMIT, Window};

const EARLY: u64 = LIMIT * 3 / 10;
const LATE: u64 = LIMIT * 6 / 10;
const AFTER: u64 = LIMIT * 3 / 2;
/// Rows that another application writes: more log than a round does.
const OTHERS_ROWS: u64 = 100_000;

/// Promotes an asynchronous standby with stale rows. A new process connects, which is configured with the new
/// primary only. The old primary is started again beside it, and a process connects that is configured with
/// both. Returns a window of each of the three. The new primary replaces the old one.
pub async fn failover_round<S: Store>(
    primary: &mut Server,
    make: &impl AsyncFn(&str, Limit) -> SharedLimiter<S>,
) -> [(&'static str, Window); 3] {
    let old = &*primary;
    let new = old.standby();
    let mut windows = ["promoted", "later", "beside"].map(Window::of);
    let both = make(&old.url_with(&new), Window::limit()).await;
    send_each(&mut windows, &both, EARLY).await;
    old.wait_for(&new);
    new.cut_off();
    send_each(&mut windows, &both, LATE).await;
    windows.iter_mut().for_each(Window::was_healthy);

    old.stop("immediate");
    new.promote();
    let [promoted, later, beside] = &mut windows;
    promoted.send_until_back(&both).await;
    promoted.send(&both, AFTER).await;
    let fresh = make(&new.url(), Window::limit()).await;
    later.send(&fresh, AFTER).await;
    beside.send(&both, AFTER).await;
    old.start();
    let knows_both = make(&old.url_with(&new), Window::limit()).await;
    beside.send_until_back(&knows_both).await;
    beside.send(&knows_both, AFTER).await;
    old.stop("immediate");

    let passed = make(&new.url(), Window::soon()).await;
    Window::soon_has_passed().await;
    for (window, limiter) in windows.iter_mut().zip([&both, &fresh, &knows_both]) {
        window.judge_label(limiter, &passed).await;
    }
    drop((both, fresh, knows_both, passed));
    *primary = new;
    let [promoted, later, beside] = windows;
    [("promoted", promoted), ("new process", later), ("two primaries", beside)]
}

async fn send_each<S: Store>(windows: &mut [Window], limiter: &SharedLimiter<S>, requests: u64) {
    for window in windows {
        window.send(limiter, requests).await;
    }
}

/// Replaces the files of a server with an older copy: the same system and timeline, older rows. If others
/// write on it before the store is back, its log is longer than it was.
pub async fn restore_round<S: Store>(
    server: &Server,
    overtaken: bool,
    make: &impl AsyncFn(&str, Limit) -> SharedLimiter<S>,
) -> (&'static str, Window) {
    let mut window = Window::of("restored");
    let limiter = make(&server.url(), Window::limit()).await;
    window.send(&limiter, EARLY).await;
    server.stop("fast");
    server.copy_aside();
    server.start();
    window.send_until_back(&limiter).await;
    window.send(&limiter, LATE).await;
    window.was_healthy();
    server.stop("immediate");
    server.restore_copy();
    server.start();
    if overtaken {
        let others = format!("CREATE TABLE others AS SELECT generate_series(1, {OTHERS_ROWS}) n");
        server.sql(&["DROP TABLE IF EXISTS others", &others]);
    }
    window.send_until_back(&limiter).await;
    window.send(&limiter, AFTER).await;
    let passed = make(&server.url(), Window::soon()).await;
    Window::soon_has_passed().await;
    window.judge_label(&limiter, &passed).await;
    (if overtaken { "copy, overtaken" } else { "older copy" }, window)
}

/// Kills the server and starts it again. It has kept what it acknowledged, if configured to: then the label
/// stays exact.
pub async fn crash_round<S: Store>(
    server: &Server,
    make: &impl AsyncFn(&str, Limit) -> SharedLimiter<S>,
) -> (&'static str, Window) {
    let mut window = Window::of("killed");
    let limiter = make(&server.url(), Window::limit()).await;
    window.send(&limiter, EARLY).await;
    window.was_healthy();
    server.kill();
    server.start();
    window.send_until_back(&limiter).await;
    window.send(&limiter, AFTER).await;
    window.came_back = limiter.store().guarantee() == Guarantee::Exact;
    ("killed", window)
}

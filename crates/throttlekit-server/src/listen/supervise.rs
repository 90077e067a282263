//! The limits of a connection in time, for every protocol.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use super::ListenOptions;
use super::counters::count;
use super::watchdog::{Activity, Verdict, Watchdog};

/// Polls a connection until it ends, or has to. Returns its result, or `None` if it was closed and counted here.
///
/// `poll` gets true once, when a graceful close begins: requests in flight may finish, within the grace period.
pub(super) async fn supervise<T>(
    activity: &Arc<Activity>,
    options: &ListenOptions,
    mut closing: watch::Receiver<bool>,
    mut poll: impl FnMut(&mut Context<'_>, bool) -> Poll<T>,
) -> Option<T> {
    let ListenOptions { limits, counters, .. } = options;
    let mut watch = Watchdog::new(activity.clone(), Instant::now());
    let mut looks = interval(Watchdog::every(limits));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut age = pin!(sleep(limits.age()));
    let mut leaves = false;
    // Set once a graceful close has begun.
    let mut until: Option<Instant> = None;
    let end = loop {
        let leave = tokio::select! {
            ended = poll_fn(|cx| poll(cx, std::mem::take(&mut leaves))) => return Some(ended),
            () = activity.offended() => break &counters.abandoning,
            () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => break &counters.cut_off,
            _ = closing.changed(), if until.is_none() => None,
            () = age.as_mut(), if until.is_none() => Some(&counters.aged),
            now = looks.tick() => match watch.judge(now, limits) {
                Verdict::Mute => break &counters.handshake_timeouts,
                Verdict::SlowHead => break &counters.slow_heads,
                Verdict::Stalled => break &counters.stalled,
                Verdict::Idle if until.is_none() => Some(&counters.idle),
                Verdict::Idle | Verdict::Fine => continue,
            },
        };
        leave.into_iter().for_each(count);
        leaves = true;
        until = Some(Instant::now() + limits.grace);
    };
    count(end);
    None
}

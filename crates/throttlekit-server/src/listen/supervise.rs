//! The limits of a connection in time, for every protocol.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::ListenOptions;
use super::counters::count;
use super::watchdog::{Activity, Verdict, Watchdog};

/// Polls a connection until it ends, or has to. Returns its result, or `None` if it was closed and counted here.
///
/// `poll` gets true once, when a graceful close begins: requests in flight may finish, within the grace period.
pub(super) async fn supervise<T>(
    activity: &Arc<Activity>,
    options: &ListenOptions,
    closing: watch::Receiver<bool>,
    mut poll: impl FnMut(&mut Context<'_>, bool) -> Poll<T>,
) -> Option<T> {
    let ListenOptions { limits, counters, .. } = options;
    let begun = Instant::now();
    let mut watch = Watchdog::new(activity.clone(), begun);
    let (every, ages_at) = (Watchdog::every(limits), begun + limits.age());
    let mut looks_at = begun + every;
    let mut alarm = pin!(sleep_until(looks_at.min(ages_at)));
    let mut is_closing = pin!(changes(closing.clone()));
    let mut offends = pin!(activity.offended());
    let mut waker = None;
    let mut leaves = false;
    // Set once a graceful close has begun.
    let mut until: Option<Instant> = None;
    let end = loop {
        let event = poll_fn(|cx| {
            if let Poll::Ready(ended) = poll(cx, std::mem::take(&mut leaves)) {
                return Poll::Ready(Event::Ended(ended));
            }
            let closes = until.is_none() && closing.has_changed().unwrap_or(true);
            if is_waiting(&mut waker, cx) && !alarm.is_elapsed() && !closes && !activity.has_offended() {
                return Poll::Pending;
            }
            if offends.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Offends);
            }
            if until.is_none() && is_closing.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Closes);
            }
            ready!(alarm.as_mut().poll(cx));
            Poll::Ready(Event::Alarm)
        });
        let leave = match event.await {
            Event::Ended(ended) => return Some(ended),
            Event::Offends => break &counters.abandoning,
            Event::Closes => Some(None),
            Event::Alarm => {
                let now = Instant::now();
                if until.is_some_and(|until| now >= until) {
                    break &counters.cut_off;
                }
                let verdict = if now >= looks_at { watch.judge(now, limits) } else { Verdict::Fine };
                looks_at = if now >= looks_at { now + every } else { looks_at };
                match verdict {
                    Verdict::Mute => break &counters.handshake_timeouts,
                    Verdict::SlowHead => break &counters.slow_heads,
                    Verdict::Stalled => break &counters.stalled,
                    Verdict::Idle if until.is_none() => Some(Some(&counters.idle)),
                    Verdict::Idle | Verdict::Fine if until.is_none() && now >= ages_at => {
                        Some(Some(&counters.aged))
                    }
                    Verdict::Idle | Verdict::Fine => None,
                }
            }
        };
        if let Some(counter) = leave {
            counter.into_iter().for_each(count);
            leaves = true;
            until = Some(Instant::now() + limits.grace);
        }
        alarm.as_mut().reset(looks_at.min(until.unwrap_or(ages_at)));
        // An alarm that went off wakes nobody until it is polled again.
        waker = None;
    };
    count(end);
    None
}

/// An event of a connection.
enum Event<T> {
    Ended(T),
    /// The client abandoned more requests than it may.
    Offends,
    /// The server stops.
    Closes,
    /// Time for a look at the connection, or for its end.
    Alarm,
}

/// Returns whether the other events would wake this task: then they need not be polled with each request. Remembers the
/// task, whose caller polls them.
fn is_waiting(waker: &mut Option<Waker>, cx: &Context<'_>) -> bool {
    let is_known = waker.as_ref().is_some_and(|known| known.will_wake(cx.waker()));
    if !is_known {
        *waker = Some(cx.waker().clone());
    }
    is_known
}

async fn changes(mut closing: watch::Receiver<bool>) {
    // An error means that the listener is gone.
    let _ = closing.changed().await;
}

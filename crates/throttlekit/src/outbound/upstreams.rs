//! Several upstreams that serve the same calls: keys, deployments, regions.

use std::cmp::Reverse;

use super::learned::Headroom;
use super::upstream::Upstream;
use crate::admit::Admit;

/// Upstreams that serve the same calls: several keys, deployments or providers. The one with most room is called.
///
/// To fail over after a refusal, [report](Upstream::report) it and pick again: the upstream that refused has to wait now, so
/// another one is picked if there is one.
///
/// ```
/// use throttlekit::outbound::{Upstream, Upstreams};
/// use throttlekit::{Limiter, Rate};
///
/// let limiter = || Limiter::new(Rate::per_minute(500));
/// let pool = Upstreams::new([Upstream::new(limiter()?), Upstream::new(limiter()?)]);
/// let (index, upstream) = pool.pick(1_500).ok_or("no upstream")?;
/// // Wait for `upstream`, call the deployment at `index`, report the response to `upstream`.
/// # let _ = (index, upstream);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Upstreams<A>(Box<[Upstream<A>]>);

impl<A: Admit> Upstreams<A> {
    /// Creates a pool of these upstreams.
    pub fn new(upstreams: impl IntoIterator<Item = Upstream<A>>) -> Self {
        Self(upstreams.into_iter().collect())
    }

    /// Picks the upstream for a call with this estimate of tokens, and its index. `None` if the pool is empty.
    pub fn pick(&self, tokens: u64) -> Option<(usize, &Upstream<A>)> {
        let rooms: Vec<Headroom> = self.0.iter().map(|upstream| upstream.headroom(tokens)).collect();
        let index = pick(&rooms)?;
        Some((index, &self.0[index]))
    }

    /// Returns the upstreams, in order.
    pub fn all(&self) -> &[Upstream<A>] {
        &self.0
    }
}

/// Returns the index of the upstream to call: the one with the shortest wait; of those, the one with most room; of those,
/// the one that was not called for longest.
pub fn pick(rooms: &[Headroom]) -> Option<usize> {
    let order = |room: &Headroom| (room.wait, Reverse(room.free_ppm), room.last_call);
    rooms.iter().enumerate().min_by_key(|(_, room)| order(room)).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{Response, StatusCode};
    use throttlekit_core::Timestamp;

    use super::*;
    use crate::clock::ManualClock;
    use crate::{Call, Limiter, Rate};

    fn room(wait_ms: u64, free_ppm: u32, last_call_ms: u64) -> Headroom {
        let last_call = Timestamp::from_millis(last_call_ms);
        Headroom { wait: Duration::from_millis(wait_ms), free_ppm, last_call }
    }

    #[test]
    fn the_shortest_wait_comes_first_then_the_most_room_then_the_longest_idle() {
        assert_eq!(pick(&[]), None);
        assert_eq!(pick(&[room(1, 900, 0), room(0, 1, 9), room(2, 999, 0)]), Some(1));
        assert_eq!(pick(&[room(0, 10, 0), room(0, 20, 9), room(0, 15, 0)]), Some(1));
        assert_eq!(pick(&[room(0, 10, 5), room(0, 10, 4), room(0, 10, 4)]), Some(1));
    }

    #[test]
    fn a_refusal_fails_over_and_all_are_used_in_turn() {
        let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
        let one = || {
            let limiter =
                Limiter::builder(Rate::per_minute(600)).clock(clock.clone()).build().expect("a limiter");
            Upstream::new(limiter)
        };
        let pool = Upstreams::new([one(), one(), one()]);
        let mut calls = [0; 3];
        for _ in 0..30 {
            clock.advance(Duration::from_millis(1));
            let (index, upstream) = pool.pick(1).expect("three upstreams");
            let admitted = upstream.admit(Call::by("a")).now_or_later().expect("in process");
            assert!(admitted.expect("no store").allowed);
            calls[index] += 1;
        }
        assert_eq!(calls, [10; 3]);
        let (refused, upstream) = pool.pick(1).expect("three upstreams");
        let refusal = Response::builder().status(StatusCode::TOO_MANY_REQUESTS).header("retry-after", 5);
        let (parts, ()) = refusal.body(()).expect("a response").into_parts();
        upstream.report(upstream.position(), &parts, b"");
        for _ in 0..10 {
            clock.advance(Duration::from_millis(1));
            assert_ne!(pool.pick(1).expect("three upstreams").0, refused);
        }
    }
}

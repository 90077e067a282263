//! The choice among several upstreams that serve the same calls: keys, deployments, regions.

use std::cmp::Reverse;

use super::handle::Outbound;
use super::learned::Headroom;
use crate::Call;

impl Outbound {
    /// Picks one of several upstreams that serve the same calls: API keys, deployments or providers. Returns its index;
    /// `None` if there are none.
    ///
    /// Takes the one with the shortest wait by its responses; of those, the one with the fewest waiting calls; of those,
    /// the one with most room; of those, the one that was not called for longest. To fail over after a refusal,
    /// [observe](super::OutboundPermit::observe) it and pick again.
    ///
    /// ```
    /// use throttlekit::Call;
    /// use throttlekit::outbound::Outbound;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let deployment = |name: &str| Outbound::builder(name).requests_per_minute(500).build();
    /// let pool = [deployment("east")?, deployment("west")?];
    ///
    /// let call = Call::by("gpt-5").cost(1_500);
    /// let index = Outbound::pick(&pool, call).ok_or("no deployment")?;
    /// let permit = pool[index].until_ready(call).await?; // then call the deployment at this index
    /// # permit.success();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pick<'c>(pool: &[Self], call: impl Into<Call<'c>>) -> Option<usize> {
        let call = call.into();
        let rooms = pool.iter().map(|one| Room { headroom: one.headroom(call), waiting: one.waiting() });
        least(rooms)
    }
}

/// The room of one upstream for a call.
#[derive(Clone, Copy, Debug)]
struct Room {
    headroom: Headroom,
    waiting: usize,
}

fn least(rooms: impl Iterator<Item = Room>) -> Option<usize> {
    let order = |Room { headroom, waiting }: Room| {
        (headroom.wait, waiting, Reverse(headroom.free_ppm), headroom.last_call)
    };
    rooms.enumerate().min_by_key(|(_, room)| order(*room)).map(|(index, _)| index)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use http::{Response, StatusCode};
    use throttlekit_core::Timestamp;

    use super::*;
    use crate::clock::ManualClock;
    use crate::{Limiter, Rate};

    fn room(wait_ms: u64, waiting: usize, free_ppm: u32, last_call_ms: u64) -> Room {
        let last_call = Timestamp::from_millis(last_call_ms);
        Room { headroom: Headroom { wait: Duration::from_millis(wait_ms), free_ppm, last_call }, waiting }
    }

    #[test]
    fn the_shortest_wait_comes_first_then_the_shortest_queue_then_the_most_room_then_the_longest_idle() {
        let least = |rooms: &[Room]| super::least(rooms.iter().copied());
        assert_eq!(least(&[]), None);
        assert_eq!(least(&[room(1, 0, 900, 0), room(0, 9, 1, 9), room(2, 0, 999, 0)]), Some(1));
        assert_eq!(least(&[room(0, 2, 10, 0), room(0, 1, 5, 9), room(0, 3, 15, 0)]), Some(1));
        assert_eq!(least(&[room(0, 0, 10, 0), room(0, 0, 20, 9), room(0, 0, 15, 0)]), Some(1));
        assert_eq!(least(&[room(0, 0, 10, 5), room(0, 0, 10, 4), room(0, 0, 10, 4)]), Some(1));
    }

    #[tokio::test]
    async fn a_refusal_fails_over_and_all_are_used_in_turn() {
        let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
        let one = || {
            let limiter = Limiter::builder(Rate::per_minute(600)).clock(clock.clone()).build();
            Outbound::limited_by("test", limiter.expect("a limiter")).build().expect("an upstream")
        };
        let pool = [one(), one(), one()];
        let mut calls = [0; 3];
        for _ in 0..30 {
            clock.advance(Duration::from_millis(1));
            let index = Outbound::pick(&pool, "a").expect("three upstreams");
            pool[index].until_ready("a").await.expect("within the rate").success();
            calls[index] += 1;
        }
        assert_eq!(calls, [10; 3]);
        let refused = Outbound::pick(&pool, "a").expect("three upstreams");
        let refusal = Response::builder().status(StatusCode::TOO_MANY_REQUESTS).header("retry-after", 5);
        let (parts, ()) = refusal.body(()).expect("a response").into_parts();
        pool[refused].until_ready("a").await.expect("within the rate").observe(&parts);
        for _ in 0..10 {
            clock.advance(Duration::from_millis(1));
            assert_ne!(Outbound::pick(&pool, "a"), Some(refused));
        }
    }
}

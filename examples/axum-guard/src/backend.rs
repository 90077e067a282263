//! Something that works on so many requests at a time, and lets the others queue up.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::sleep;

/// A backend with a capacity that nobody announces.
pub struct Backend {
    places: Semaphore,
    now: Mutex<Pace>,
}

#[derive(Clone, Copy)]
struct Pace {
    at_a_time: usize,
    work: Duration,
}

impl Backend {
    /// A backend that works on `at_a_time` requests, on each for as long as `work`.
    pub fn new(at_a_time: usize, work: Duration) -> Self {
        Self { places: Semaphore::new(at_a_time), now: Mutex::new(Pace { at_a_time, work }) }
    }

    /// Works on one request, when its turn has come.
    pub async fn serve(&self) {
        let place = self.places.acquire().await;
        let work = self.now.lock().expect("nobody panics here").work;
        sleep(work).await;
        drop(place);
    }

    /// Works on as many from now on, as soon as those that are too many are done.
    pub async fn becomes(&self, at_a_time: usize, work: Duration) {
        let before = {
            let mut now = self.now.lock().expect("nobody panics here");
            std::mem::replace(&mut *now, Pace { at_a_time, work }).at_a_time
        };
        self.places.add_permits(at_a_time.saturating_sub(before));
        let gone = u32::try_from(before.saturating_sub(at_a_time)).unwrap_or(u32::MAX);
        if let Ok(places) = self.places.acquire_many(gone).await {
            places.forget();
        }
    }
}

//! The queue of events, and the thread that dispatches them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use throttlekit::clock::{Clock, PreciseClock};
use throttlekit::hash::{KeyHash, SecretHash};
use throttlekit::internals::Mutex;
use throttlekit::observe::Event;

use crate::counts::{Counts, PolicyAt};
use crate::queued_event::QueuedEvent;
use crate::subscriber::Subscribers;
use crate::top_keys::{Top, TopCounter};

/// Duration of the thread's first sleep after it finds nothing; it doubles from there.
const NAP_MIN: Duration = Duration::from_millis(4);
const NAP_MAX: Duration = Duration::from_millis(64);

/// Time that the thread dispatches while more is waiting, and the pause after that: a fifth of a core at most. Under a
/// flood of events it would otherwise take as much processor time as the threads that decide, milliseconds at a time.
/// Events that find the queue full in the meantime count as lost.
const BURST: Duration = Duration::from_micros(250);
const PAUSE: Duration = Duration::from_millis(1);
/// Events between two reads of the clock.
const EVENTS_PER_LOOK: usize = 16;

/// Waiting events, and the thread that dispatches them.
///
/// The thread polls, and sleeps in between. Waking it for every event would cost the caller a system call; it is woken
/// once in a quarter of the queue.
pub(crate) struct Queue {
    items: SyncSender<Item>,
    pushed: AtomicU64,
    wake_every: u64,
    link: Arc<Link>,
    hash: SecretHash,
    thread: Option<JoinHandle<()>>,
    /// Receives when the thread has dispatched everything, or has ended.
    done: Mutex<Receiver<()>>,
    drain_max: Duration,
}

enum Item {
    Event(QueuedEvent),
    /// Everything before it was dispatched.
    Flush(SyncSender<()>),
}

/// State shared by both sides.
struct Link {
    counts: Counts,
    top: Option<Mutex<TopCounter>>,
    /// Dispatch the remaining events, then end.
    stop: AtomicBool,
    /// End immediately.
    abandon: AtomicBool,
    /// Set while the thread sleeps because it found nothing. One that is blocked in a subscriber is left alone.
    asleep: AtomicBool,
}

impl Queue {
    pub(crate) fn start(
        counts: Counts,
        subscribers: Subscribers,
        top_keys: usize,
        capacity: usize,
        drain_max: Duration,
    ) -> io::Result<Self> {
        let (items, waiting) = sync_channel(capacity);
        let (finished, done) = sync_channel(1);
        let link = Arc::new(Link {
            counts,
            top: (top_keys > 0).then(|| Mutex::new(TopCounter::new(top_keys))),
            stop: AtomicBool::new(false),
            abandon: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
        });
        let dispatcher = Dispatcher {
            link: Arc::clone(&link),
            waiting,
            subscribers,
            capacity,
            clock: PreciseClock::new(),
        };
        let thread = thread::Builder::new().name("throttlekit-telemetry".into()).spawn(move || {
            dispatcher.run();
            // The receiver may be gone.
            let _ = finished.try_send(());
        })?;
        Ok(Self {
            items,
            pushed: AtomicU64::new(0),
            wake_every: (capacity as u64 / 4).max(1),
            link,
            hash: SecretHash::random(),
            thread: Some(thread),
            done: Mutex::new(done),
            drain_max,
        })
    }

    /// Queues an event, or counts it as lost.
    #[inline]
    pub(crate) fn tell(&self, event: &Event<'_>, policy: PolicyAt) {
        let note = QueuedEvent::of(event, policy, &self.hash);
        if self.items.try_send(Item::Event(note)).is_err() {
            self.link.counts.lose(1);
        }
        if self.pushed.fetch_add(1, Relaxed).is_multiple_of(self.wake_every) {
            self.wake();
        }
    }

    pub(crate) fn top(&self) -> Top {
        let top = self.link.top.as_ref().map(Mutex::lock);
        top.map(|top| top.read(&self.link.counts)).unwrap_or_default()
    }

    /// Waits until all events pushed before have been dispatched, for at most `wait`. A full queue is retried every
    /// millisecond.
    pub(crate) fn flush(&self, wait: Duration) -> bool {
        let (told, heard) = sync_channel(1);
        let mut flush = Item::Flush(told);
        let mut left = wait;
        while let Err(refused) = self.items.try_send(flush) {
            let TrySendError::Full(again) = refused else { return false };
            if left.is_zero() {
                return false;
            }
            flush = again;
            let nap = left.min(Duration::from_millis(1));
            self.wake();
            thread::sleep(nap);
            left -= nap;
        }
        self.wake();
        heard.recv_timeout(left).is_ok()
    }

    /// Wakes the thread if it sleeps. One that is just about to sleep may miss it, and polls again after its sleep.
    fn wake(&self) {
        if let Some(thread) = &self.thread
            && self.link.asleep.load(Relaxed)
        {
            thread.thread().unpark();
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.link.stop.store(true, Relaxed);
        self.wake();
        let Some(thread) = self.thread.take() else { return };
        if thread.thread().id() == thread::current().id() {
            // A subscriber held the last reference; the thread cannot wait for itself.
            return;
        }
        let ended = self.done.lock().recv_timeout(self.drain_max);
        if ended == Err(RecvTimeoutError::Timeout) {
            self.link.abandon.store(true, Relaxed);
        } else {
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Dispatcher {
    link: Arc<Link>,
    waiting: Receiver<Item>,
    subscribers: Subscribers,
    capacity: usize,
    clock: PreciseClock,
}

impl Dispatcher {
    fn run(mut self) {
        let mut nap = NAP_MIN;
        loop {
            // Read first: events pushed before it was set are dispatched after.
            let stop = self.link.stop.load(Relaxed);
            let burst = if stop { Duration::MAX } else { BURST };
            let (told, is_over) = self.tell_waiting(burst);
            if stop {
                break;
            }
            if !is_over {
                thread::sleep(PAUSE);
                continue;
            }
            nap = if told > 0 { NAP_MIN } else { (2 * nap).min(NAP_MAX) };
            self.link.asleep.store(true, Relaxed);
            thread::park_timeout(nap);
            self.link.asleep.store(false, Relaxed);
        }
        self.link.counts.lose(self.notes_left());
    }

    /// Dispatches waiting events, at most as many as the queue holds and for at most `burst`. Returns their number, and
    /// whether the queue is empty.
    fn tell_waiting(&mut self, burst: Duration) -> (usize, bool) {
        let begun = self.clock.now();
        let mut told = 0;
        while told < self.capacity && !self.link.abandon.load(Relaxed) {
            if told % EVENTS_PER_LOOK == EVENTS_PER_LOOK - 1 && self.clock.now().since(begun) >= burst {
                return (told, false);
            }
            match self.waiting.try_recv() {
                Ok(Item::Event(note)) => self.tell(&note),
                // The waiting caller may be gone.
                Ok(Item::Flush(heard)) => _ = heard.try_send(()),
                Err(_) => return (told, true),
            }
            told += 1;
        }
        (told, false)
    }

    fn tell(&mut self, note: &QueuedEvent) {
        if let Some(top) = &self.link.top {
            top.lock().count(note);
        }
        self.subscribers.show(&note.event(&self.link.counts), &self.link.counts);
    }

    fn notes_left(&self) -> u64 {
        self.waiting.try_iter().filter(|item| matches!(item, Item::Event(_))).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_events::event;

    #[test]
    fn a_flood_is_logged_in_short_bursts() {
        const EVENTS: usize = 100;
        let (items, waiting) = sync_channel(EVENTS);
        let counts = Counts::new(1);
        let event = event();
        let at = counts.count(&event);
        let slow = |_: &Event<'_>| thread::sleep(Duration::from_micros(100));
        for _ in 0..EVENTS {
            let queued = QueuedEvent::of(&event, at, &SecretHash::random());
            assert!(items.try_send(Item::Event(queued)).is_ok());
        }
        let (stop, abandon, asleep) = Default::default();
        let link = Arc::new(Link { counts, top: None, stop, abandon, asleep });
        let subscribers = Subscribers(vec![Box::new(slow)]);
        let clock = PreciseClock::new();
        let mut dispatcher = Dispatcher { link, waiting, subscribers, capacity: EVENTS, clock };
        let (first, is_over) = dispatcher.tell_waiting(BURST);
        assert!((1..=EVENTS_PER_LOOK).contains(&first) && !is_over, "{first} told at a time");
        let (rest, is_over) = dispatcher.tell_waiting(Duration::MAX);
        assert_eq!((first + rest, is_over), (EVENTS, true), "the rest is told later");
    }
}

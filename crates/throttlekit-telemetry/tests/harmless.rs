//! An observer never changes, delays or breaks a decision, whatever its subscribers do.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::{ask, event, sums};
use throttlekit::clock::{Clock, PreciseClock};
use throttlekit::observe::{Event, Observer};
use throttlekit_telemetry::{Telemetry, TelemetryBuilder};

const ASKS: u64 = 20_000;
const SECOND: Duration = Duration::from_secs(1);

/// Measures the duration of a call.
fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let clock = PreciseClock::new();
    let before = clock.now();
    let answer = run();
    (answer, Duration::from_nanos(clock.now().as_nanos().saturating_sub(before.as_nanos())))
}

/// Sends requests through a telemetry on a thread that has to return: if one decision waits for a subscriber,
/// this fails.
fn asks_come_back(builder: TelemetryBuilder) -> (Arc<Telemetry>, Duration) {
    let telemetry = Arc::new(builder.start().unwrap());
    let observer = Arc::clone(&telemetry);
    let (done, came_back) = channel();
    thread::spawn(move || done.send(timed(|| ask(ASKS, |event| observer.observe(event)))));
    let (decisions, took) = came_back.recv_timeout(20 * SECOND).expect("no decision waits");
    assert_eq!(decisions, ask(ASKS, |_| ()), "the same answers as without an observer");
    let allowed = decisions.iter().filter(|decision| decision.allowed).count() as u64;
    let [counts] = telemetry.counts().policies().try_into().unwrap();
    assert_eq!((counts.decisions(), counts.allowed()), (ASKS, allowed), "counted whatever became of events");
    sums(&counts);
    (telemetry, took)
}

/// Returns a subscriber that blocks until it is released, and the number of its events.
fn blocked() -> (impl FnMut(&Event<'_>) + Send, Sender<()>, Arc<AtomicU64>) {
    let (let_go, gate): (_, Receiver<()>) = channel();
    let shown = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&shown);
    let subscriber = move |_: &Event<'_>| {
        counter.fetch_add(1, SeqCst);
        let _ = gate.recv();
    };
    (subscriber, let_go, shown)
}

fn counting() -> (impl FnMut(&Event<'_>) + Send, Arc<AtomicU64>) {
    let shown = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&shown);
    (move |_: &Event<'_>| _ = counter.fetch_add(1, SeqCst), shown)
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("not in ten seconds: {what}");
}

#[test]
fn a_blocked_subscriber_delays_nothing_and_its_missed_events_are_counted() {
    let (subscriber, let_go, shown) = blocked();
    let (telemetry, took) = asks_come_back(Telemetry::builder().subscribe(subscriber).queue(64));
    println!("{ASKS} asks beside a blocked subscriber: {took:?}");
    // It holds one, the queue 64, and none came free meanwhile.
    eventually("it is shown one", || shown.load(SeqCst) == 1);
    let lost = telemetry.counts().events_lost();
    assert!((ASKS - 65..ASKS - 63).contains(&lost), "{lost}");
    assert!(!telemetry.flush(Duration::from_millis(20)), "a full queue is not flushed");

    drop(let_go);
    assert!(telemetry.flush(20 * SECOND));
    assert_eq!(shown.load(SeqCst) + telemetry.counts().events_lost(), ASKS, "shown or lost, each once");
}

#[test]
fn a_slow_subscriber_delays_nothing() {
    let slow = |_: &Event<'_>| thread::sleep(Duration::from_millis(5));
    let (telemetry, took) =
        asks_come_back(Telemetry::builder().subscribe(slow).queue(16).drain_max(Duration::from_millis(50)));
    println!("{ASKS} asks beside a subscriber that takes 5 ms for each: {took:?}");
    assert!(took < 10 * SECOND, "100 s if each ask waited for it");
    assert!(telemetry.counts().events_lost() > 0);
}

#[test]
fn a_subscriber_that_panics_is_removed_and_the_others_continue() {
    /// Panics with a value that panics, and again when that is dropped.
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !thread::panicking() {
                panic!("a subscriber's own panic, on purpose");
            }
        }
    }
    let (before, seen_before) = counting();
    let (after, seen_after) = counting();
    let held = Bomb;
    let panics = move |_: &Event<'_>| {
        let _ = &held;
        std::panic::panic_any(Bomb);
    };
    let mut left = 3;
    let panics_later = move |_: &Event<'_>| {
        left -= 1;
        assert!(left > 0, "on purpose");
    };
    let builder =
        Telemetry::builder().subscribe(before).subscribe(panics).subscribe(panics_later).subscribe(after);
    let (telemetry, took) = asks_come_back(builder.queue(2 * ASKS as usize));
    println!("{ASKS} asks beside subscribers that panic: {took:?}");
    assert!(telemetry.flush(20 * SECOND));
    assert_eq!(telemetry.counts().subscribers_removed(), 2);
    assert_eq!((seen_before.load(SeqCst), seen_after.load(SeqCst)), (ASKS, ASKS));
    assert_eq!(telemetry.counts().events_lost(), 0);
}

#[test]
fn events_are_delivered_unchanged_and_in_order() {
    let shown = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&shown);
    let subscriber = move |event: &Event<'_>| sink.lock().unwrap().push((event.key.to_vec(), event.decision));
    let (telemetry, _) = asks_come_back(Telemetry::builder().subscribe(subscriber).queue(2 * ASKS as usize));
    let mut told = Vec::new();
    ask(ASKS, |event| told.push((event.key.to_vec(), event.decision)));
    assert!(telemetry.flush(20 * SECOND));
    assert!(*shown.lock().unwrap() == told);
}

#[test]
fn dropping_it_delivers_queued_events() {
    let (subscriber, shown) = counting();
    let telemetry = Telemetry::builder().subscribe(subscriber).start().unwrap();
    for _ in 0..1_000 {
        telemetry.observe(&event("chat", true, None));
    }
    drop(telemetry);
    assert_eq!(shown.load(SeqCst), 1_000);
}

#[test]
fn dropping_it_waits_for_a_blocked_subscriber_up_to_the_timeout_and_counts_lost_events() {
    let (subscriber, let_go, shown) = blocked();
    let wait = Duration::from_millis(100);
    let telemetry = Telemetry::builder().subscribe(subscriber).drain_max(wait).start().unwrap();
    let counts = telemetry.counts();
    for _ in 0..1_000 {
        telemetry.observe(&event("chat", true, None));
    }
    eventually("it is shown one", || shown.load(SeqCst) == 1);
    let ((), took) = timed(move || drop(telemetry));
    assert!((wait..wait + 5 * SECOND).contains(&took), "{took:?}");
    assert_eq!(counts.events_lost(), 0);
    drop(let_go);
    eventually("the rest is lost", || counts.events_lost() == 999);
    assert_eq!(shown.load(SeqCst), 1);
}

#[test]
fn a_subscriber_may_hold_the_last_of_it() {
    let held: Arc<Mutex<Option<Arc<Telemetry>>>> = Arc::default();
    let taken = Arc::clone(&held);
    let (done, ended) = channel();
    let drops = move |_: &Event<'_>| {
        drop(taken.lock().unwrap().take());
        done.send(()).unwrap();
    };
    let telemetry = Arc::new(Telemetry::builder().subscribe(drops).start().unwrap());
    telemetry.observe(&event("chat", true, None));
    *held.lock().unwrap() = Some(telemetry);
    ended.recv_timeout(10 * SECOND).expect("the thread does not wait for itself");
}

#[test]
fn top_keys_are_within_their_bounds() {
    let telemetry = Telemetry::builder().top_keys(8).queue(1 << 16).start().unwrap();
    let mut asked = 0;
    for n in 0..20_000_u64 {
        let rare = n.to_le_bytes();
        let busy: &[u8] = if n % 4 == 0 { b"busy" } else { &rare };
        let denied = n % 8 == 0;
        asked += u64::from(n % 4 == 0);
        let shown = event("chat", !denied, denied.then_some(throttlekit::Axis::Cost));
        telemetry.observe(&Event { key: busy, ..shown });
    }
    assert!(telemetry.flush(20 * SECOND));
    let top = telemetry.top();
    assert_eq!((top.requested.events, top.denied.events), (20_000, 2_500));
    let first = &top.requested.keys[0];
    assert_eq!((first.policy.as_str(), first.key.as_slice()), ("chat", &b"busy"[..]));
    assert!(first.at_least <= asked && asked <= first.at_most, "{first:?}");
    assert!(first.at_most - first.at_least <= top.requested.error_max);
    assert_eq!((top.denied.keys[0].at_least, top.denied.keys[0].at_most), (2_500, 2_500));
    assert_eq!(top.requested.keys.len(), 8);
}

#[test]
fn what_it_costs() {
    let shown = event("chat", true, None);
    let long = Event { key: &[7; 4_096], ..shown };
    let round = |telemetry: &Telemetry, shown: &Event<'_>| {
        let (n, took) = timed(|| (0..5_000).map(|_| telemetry.observe(shown)).count());
        took.as_nanos() as u64 / n as u64
    };
    let median = |telemetry: &Telemetry, shown: &Event<'_>| {
        let mut rounds: Vec<u64> = (0..21).map(|_| round(telemetry, shown)).collect();
        rounds.sort_unstable();
        rounds[10]
    };
    let queued = || Telemetry::builder().queue(1 << 18).start().unwrap();
    let counters = median(&Telemetry::builder().top_keys(0).start().unwrap(), &shown);
    let queue = median(&queued(), &shown);
    let long = median(&queued(), &long);
    let both = queued();
    let two = thread::scope(|threads| {
        [0, 1].map(|_| threads.spawn(|| median(&both, &shown))).map(|thread| thread.join().unwrap())
    });
    let (subscriber, _let_go, _) = blocked();
    let builder = Telemetry::builder().subscribe(subscriber).queue(64).drain_max(Duration::ZERO);
    let full = median(&builder.start().unwrap(), &shown);
    println!(
        "observe: counters alone {counters} ns, with a queue {queue} ns, by two threads at once {two:?} ns, \
         with a key of 4 KiB {long} ns, with a full queue {full} ns"
    );
    assert!(
        [counters, queue, long, full, two[0], two[1]].iter().all(|ns| *ns < 100_000),
        "none of them waits"
    );
}

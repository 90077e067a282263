//! Tasks that end are restarted, and no caller waits forever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::Instant;

use super::*;

const SOON: Duration = Duration::from_secs(30);

fn eventually(what: &str, done: impl Fn() -> bool) {
    let until = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < until, "{what}: not within {SOON:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    Builder::new_current_thread().build().unwrap().block_on(work)
}

#[test]
fn a_task_needs_no_runtime_of_the_caller() {
    let background = Background::default();
    let thread = background.run(1, async { std::thread::current().name().map(str::to_owned) });
    assert_eq!(block_on(thread).unwrap().as_deref(), Some("throttlekit"));
}

#[test]
fn a_wait_ends_at_its_deadline_on_a_runtime_without_timers() {
    let background = Background::default().with_deadline(Duration::from_millis(5));
    let late = block_on(background.wait(1, std::future::pending::<()>()));
    assert_eq!(late, Err(StoreError::Deadline(Duration::from_millis(5))));
}

#[test]
fn an_attached_task_ends_with_its_caller_and_a_detached_one_does_not() {
    let (background, ended) = (Background::default(), Arc::new(AtomicU64::new(0)));
    let work = |ended: &Arc<AtomicU64>| {
        let ended = ended.clone();
        async move {
            sleep(Duration::from_millis(20)).await;
            ended.fetch_add(1, SeqCst);
        }
    };
    drop(block_on(background.within(Duration::from_millis(1), background.run_attached(work(&ended)))));
    drop(block_on(background.within(Duration::from_millis(1), background.run(1, work(&ended)))));
    eventually("the detached one", || ended.load(SeqCst) == 1);
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(ended.load(SeqCst), 1);
}

#[test]
fn a_slot_has_one_task_and_another_after_a_panic() {
    let (slot, started) = (Arc::new(TaskSlot::default()), Arc::new(AtomicU64::new(0)));
    let ensure = |panics: bool| {
        let started = started.clone();
        slot.ensure(&Background::default(), || async move {
            started.fetch_add(1, SeqCst);
            assert!(!panics, "of the test's own");
            std::future::pending::<()>().await;
        });
    };
    ensure(true);
    eventually("the panic", || !slot.is_taken());
    ensure(false);
    ensure(false);
    eventually("the second", || started.load(SeqCst) == 2);
    ensure(false);
    assert!(slot.is_taken() && started.load(SeqCst) == 2);
}

#[test]
fn a_mailbox_starts_another_task_after_a_panic() {
    let taken = Arc::new(AtomicU64::new(0));
    let counts = taken.clone();
    let mailbox = Mailbox::new(4, move |mut queue| {
        let taken = counts.clone();
        Background::default().spawn(async move {
            while let Some(item) = queue.recv().await {
                assert!(item != 0, "of the test's own");
                taken.fetch_add(item, SeqCst);
            }
            taken.fetch_add(100, SeqCst);
        });
    });
    mailbox.send(1).unwrap();
    mailbox.send(0).unwrap();
    eventually("the panic", || !mailbox.is_open());
    mailbox.send(2).unwrap();
    eventually("the rest", || taken.load(SeqCst) == 3);
    drop(mailbox);
    eventually("the end of the task", || taken.load(SeqCst) == 103);
}

#[test]
fn a_full_mailbox_returns_the_item() {
    let mailbox = Mailbox::new(1, |queue| {
        Background::default().spawn(async move {
            let _unread = queue;
            std::future::pending::<()>().await;
        });
    });
    assert_eq!([mailbox.send(1), mailbox.send(2)], [Ok(()), Err(2)]);
}

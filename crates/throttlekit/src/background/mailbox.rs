//! The queue of a background task.

use std::process;

use crate::sync::Mutex;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// The sender side of a background task. The first item starts the task; if the task has ended, the next item starts
/// another. The task ends when the mailbox is dropped and its queue is empty.
pub(crate) struct Mailbox<T> {
    depth_max: usize,
    /// Starts a task that takes from this queue. Must not hold the mailbox, which would then never be dropped.
    start: Box<dyn Fn(Receiver<T>) + Send + Sync>,
    open: Mutex<Option<Open<T>>>,
}

struct Open<T> {
    sender: Sender<T>,
    /// The process whose task takes from the queue: a forked child has the queue but not the task.
    process: u32,
}

impl<T: Send + 'static> Mailbox<T> {
    /// Creates a mailbox for up to `depth_max` items.
    pub(crate) fn new(depth_max: usize, start: impl Fn(Receiver<T>) + Send + Sync + 'static) -> Self {
        Self { depth_max, start: Box::new(start), open: Mutex::new(None) }
    }

    /// Queues an item. Returns it if the queue is full.
    pub(crate) fn send(&self, item: T) -> Result<(), T> {
        self.sender().try_send(item).map_err(mpsc::error::TrySendError::into_inner)
    }

    /// Makes sure that the task runs.
    pub(crate) fn wake(&self) {
        self.sender();
    }

    /// Checks whether the task runs, unless it was dropped.
    pub(crate) fn is_open(&self) -> bool {
        self.open.lock().as_ref().is_some_and(Open::is_taken_from)
    }

    fn sender(&self) -> Sender<T> {
        let mut open = self.open.lock();
        if let Some(open) = open.as_ref().filter(|open| open.is_taken_from()) {
            return open.sender.clone();
        }
        let (sender, queue) = mpsc::channel(self.depth_max);
        *open = Some(Open { sender: sender.clone(), process: process::id() });
        drop(open);
        (self.start)(queue);
        sender
    }
}

impl<T> Open<T> {
    fn is_taken_from(&self) -> bool {
        !self.sender.is_closed() && self.process == process::id()
    }
}

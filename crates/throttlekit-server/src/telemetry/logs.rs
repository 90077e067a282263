//! Logs: one line each to standard error, as text or as JSON.
//!
//! Lines are queued and written by a separate thread: a blocked reader does not block the code that logs. Lines that
//! exceed the queue are dropped and counted.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use throttlekit::Axis;
use throttlekit::admit::LimitName;
use throttlekit::clock::{BootClock, Clock};
use throttlekit::observe::Event;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use crate::audit::AUDIT;
use crate::server_error::ServerError;

/// Maximum number of lines in the queue.
const LINES_MAX: usize = 8_192;
/// Maximum number of bytes in the queue.
const BYTES_MAX: usize = 1024 * 1024;

/// The queue of the log of this process.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// The filter of the log of this process.
static FILTER: OnceLock<Filter> = OnceLock::new();

/// A filter that can be replaced.
struct Filter {
    /// The one that the process started with.
    first: String,
    handle: reload::Handle<EnvFilter, Registry>,
}

/// Maximum length of a filter that is set at run time, in bytes.
const FILTER_BYTES_MAX: usize = 1_024;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Sends the log of this process to standard error, restricted by the filter: `info`, or `warn,throttlekit=debug`.
/// Panics are logged too. Call [`flush_logs`] before the process ends.
///
/// # Errors
///
/// If the filter is invalid, no thread can be started, or a log is already installed.
pub fn logs(format: LogFormat, filter: &str) -> Result<(), ServerError> {
    let (layer, handle) = reload::Layer::new(parsed(filter)?);
    let registry = tracing_subscriber::registry().with(layer);
    let queue = Queue::start(io::stderr()).map_err(ServerError::telemetry)?;
    let lines = fmt::layer().with_writer({
        let queue = queue.clone();
        move || queue.clone()
    });
    let set = match format {
        LogFormat::Text => registry.with(lines.with_ansi(io::stderr().is_terminal())).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    set.map_err(ServerError::telemetry)?;
    let _ = QUEUE.set(queue);
    let _ = FILTER.set(Filter { first: filter.to_owned(), handle });
    // The default hook writes to standard error itself, and would block on its reader.
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    Ok(())
}

/// Replaces the filter of the log of this process; an empty one restores the first. The audit log is never filtered
/// out by it.
///
/// # Errors
///
/// If the filter is invalid or longer than 1,024 bytes, or [`logs`] was not called.
pub fn set_log_filter(filter: &str) -> Result<(), ServerError> {
    let Some(Filter { first, handle }) = FILTER.get() else {
        return Err(ServerError::telemetry("this process has no log of its own"));
    };
    if filter.len() > FILTER_BYTES_MAX {
        return Err(ServerError::telemetry(format_args!("log filter longer than {FILTER_BYTES_MAX} bytes")));
    }
    let filter = if filter.is_empty() { parsed(first)? } else { parsed(&format!("{filter},{AUDIT}=info"))? };
    handle.reload(filter).map_err(ServerError::telemetry)
}

fn parsed(filter: &str) -> Result<EnvFilter, ServerError> {
    let invalid = |error| ServerError::telemetry(format_args!("log filter `{filter}`: {error}"));
    EnvFilter::try_new(filter).map_err(invalid)
}

/// Waits until all lines that were logged before are written, for at most `within`. Returns whether they are.
pub fn flush_logs(within: Duration) -> bool {
    QUEUE.get().is_none_or(|queue| queue.flush(within))
}

/// Returns the number of lines that this process has dropped.
pub(super) fn dropped() -> u64 {
    QUEUE.get().map_or(0, |queue| queue.counts.dropped.load(Relaxed))
}

/// A queue of lines for the thread that writes them. Cheap to clone.
#[derive(Clone)]
struct Queue {
    items: SyncSender<Item>,
    counts: Arc<Counts>,
}

enum Item {
    Line(Vec<u8>),
    /// Notified once everything before it is written.
    Flush(SyncSender<()>),
}

#[derive(Default)]
struct Counts {
    bytes: AtomicUsize,
    dropped: AtomicU64,
}

impl Queue {
    fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (items, queued) = sync_channel(LINES_MAX);
        let queue = Self { items, counts: Arc::default() };
        let counts = queue.counts.clone();
        thread::Builder::new()
            .name("throttlekit-logs".into())
            .spawn(move || write_lines(&queued, out, &counts))?;
        Ok(queue)
    }

    /// Queues a line, or drops it if the queue is full. Never blocks.
    fn line(&self, line: &[u8]) {
        let Counts { bytes, dropped } = &*self.counts;
        let fits = bytes.fetch_add(line.len(), Relaxed) + line.len() <= BYTES_MAX;
        if !fits || self.items.try_send(Item::Line(line.to_vec())).is_err() {
            bytes.fetch_sub(line.len(), Relaxed);
            dropped.fetch_add(1, Relaxed);
        }
    }

    fn flush(&self, within: Duration) -> bool {
        let deadline = BootClock.now() + within;
        let (written, is_written) = sync_channel(1);
        let mut item = Item::Flush(written);
        while let Err(TrySendError::Full(unsent)) = self.items.try_send(item) {
            if BootClock.now() >= deadline {
                return false;
            }
            item = unsent;
            thread::sleep(Duration::from_millis(1));
        }
        is_written.recv_timeout(deadline.since(BootClock.now())).is_ok()
    }
}

/// Writes a line in one piece.
impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes until all loggers are gone. If lines were dropped, one line reports the number, once all queued ones are
/// written.
fn write_lines(queued: &Receiver<Item>, mut out: impl Write, counts: &Counts) {
    let mut told = 0;
    loop {
        let next = queued.try_recv().or_else(|_| {
            let dropped = counts.dropped.load(Relaxed);
            if dropped > told {
                tracing::warn!(lines = dropped - told, "log lines dropped");
                told = dropped;
            }
            queued.recv()
        });
        match next {
            Ok(Item::Line(line)) => {
                if out.write_all(&line).is_err() {
                    counts.dropped.fetch_add(1, Relaxed);
                }
                counts.bytes.fetch_sub(line.len(), Relaxed);
            }
            Ok(Item::Flush(written)) => drop(written.try_send(())),
            Err(_) => return,
        }
    }
}

/// Logs a denial. Its key is left out: it may be a person's name or address.
pub(super) fn denied(event: &Event<'_>) {
    if event.decision.allowed {
        return;
    }
    tracing::debug!(
        policy = event.policy,
        axis = event.denied_by.filter(|axis| *axis != Axis::Price).map(Axis::label),
        limit_name = event.limit_name.map(LimitName::as_str),
        policy_denied = event.denied_by == Some(Axis::Price),
        cost = event.cost,
        limit = event.decision.limit,
        remaining = event.decision.remaining,
        retry_after_ms = event.decision.retry_after.wait_ms(),
        guarantee = event.guarantee.label(),
        "denied"
    );
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Blocks until it is opened.
    #[derive(Clone, Default)]
    struct Pipe {
        taken: Arc<Mutex<Vec<u8>>>,
        open: Arc<OnceLock<()>>,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.open.wait();
            self.taken.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stuck_reader_holds_up_nobody_and_what_does_not_fit_is_counted() {
        let pipe = Pipe::default();
        let queue = Queue::start(pipe.clone()).unwrap();
        let (line, began) = ([b'x'; 1_024], BootClock.now());
        let lines = 2 * BYTES_MAX / line.len();
        (0..lines).for_each(|_| queue.line(&line));
        assert!(!queue.flush(Duration::from_millis(20)));
        assert!(BootClock.now().since(began) < Duration::from_secs(10), "nobody waits");
        let dropped = queue.counts.dropped.load(Relaxed);
        assert_eq!(dropped as usize, lines - BYTES_MAX / line.len());

        let _ = pipe.open.set(());
        assert!(queue.flush(Duration::from_secs(30)), "all that fit is written");
        assert_eq!(pipe.taken.lock().unwrap().len(), BYTES_MAX);
        queue.line(b"again\n");
        assert!(queue.flush(Duration::from_secs(30)));
        assert!(pipe.taken.lock().unwrap().ends_with(b"again\n"));
    }
}

//! Signals that a server handles.

use std::time::Duration;

use throttlekit_server::internals::telemetry::flush_logs;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Time limit for writing the last lines of the log.
pub(crate) const LAST_LINES_MAX: Duration = Duration::from_millis(500);

/// Signal handlers. A signal that arrives before it is awaited is not lost.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// Action that a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// SIGHUP: check the files now.
    Look,
    /// SIGTERM, from a supervisor: stop, and give load balancers time to notice.
    Stop,
    /// SIGINT, from a terminal: stop now.
    StopNow,
}

impl Signals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn next(&mut self) -> Wish {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => Wish::StopNow,
            _ = self.terminate.recv() => Wish::Stop,
            _ = self.hangup.recv() => Wish::Look,
        }
    }

    /// Exits the process at the next SIGTERM or SIGINT, whatever its state. What it holds is released when its leases
    /// expire.
    pub(crate) async fn end_at_next(mut self) {
        let code = loop {
            match self.next().await {
                Wish::Look => {}
                Wish::Stop => break 128 + SignalKind::terminate().as_raw_value(),
                Wish::StopNow => break 128 + SignalKind::interrupt().as_raw_value(),
            }
        };
        tracing::warn!("second signal: exiting immediately");
        flush_logs(LAST_LINES_MAX);
        std::process::exit(code);
    }
}

//! Signals that a server heeds.

use std::time::Duration;

use throttlekit_server::telemetry::flush_logs;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long the last lines of the log may take.
pub(crate) const LAST_LINES_MAX: Duration = Duration::from_millis(500);

/// Signals from now on: one that comes before it is waited for is heard, too.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// SIGHUP: look at the files now.
    Look,
    /// SIGTERM, from a supervisor: stop, and give balancers the time to notice.
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

    /// Ends the process at the next SIGTERM or SIGINT, wherever it stands. What it holds comes back when its leases end.
    pub(crate) async fn end_at_next(mut self) {
        let code = loop {
            match self.next().await {
                Wish::Look => {}
                Wish::Stop => break 128 + SignalKind::terminate().as_raw_value(),
                Wish::StopNow => break 128 + SignalKind::interrupt().as_raw_value(),
            }
        };
        tracing::warn!("second signal: ending at once");
        flush_logs(LAST_LINES_MAX);
        std::process::exit(code);
    }
}

//! Measurement of a server under attack.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::siege::resident_mib;

/// Maximum factor by which an attack may slow the slowest in a hundred honest requests.
pub(crate) const P99_TIMES_MAX: f64 = 2.0;
/// Below this a time says more about the machine than about the server.
pub(crate) const P99_FLOOR: Duration = Duration::from_millis(1);
pub(crate) const GROWTH_MIB_MAX: f64 = 64.0;

/// Ends this process when it takes too long, whatever it waits for. The server sees that and ends too.
pub(crate) fn end_within(time: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(time);
        eprintln!(
            "not measured within {time:?}: run it on a machine that does nothing else, or with --small"
        );
        std::process::exit(1);
    });
}

/// The value of an environment variable that sizes a measurement.
pub(crate) fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect(variable))
}

pub(crate) fn p99(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() * 99 / 100).copied().expect("honest requests")
}

/// The largest that a process is found to be, looked at all the time.
pub(crate) struct Peak {
    seen: std::sync::Arc<std::sync::Mutex<f64>>,
    watching: JoinHandle<()>,
}

impl Peak {
    pub(crate) fn watch(process: u32) -> Self {
        let seen = std::sync::Arc::new(std::sync::Mutex::new(0.0));
        let noted = seen.clone();
        let watching = tokio::spawn(async move {
            loop {
                let mib = resident_mib(process);
                if let Ok(mut seen) = noted.lock() {
                    *seen = mib.max(*seen);
                }
                sleep(Duration::from_millis(25)).await;
            }
        });
        Self { seen, watching }
    }

    /// So far.
    pub(crate) fn so_far(&self) -> f64 {
        *self.seen.lock().expect("a number")
    }
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

pub(crate) fn round(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

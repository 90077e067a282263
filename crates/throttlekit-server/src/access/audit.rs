//! The audit log: changes and use of the monitor, under one target so that it can be stored separately.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};
use throttlekit::internals::Mutex;
use throttlekit::rate::Timestamp;

use super::{Caller, Principal};
use crate::audit::AUDIT;
use crate::listen::Peer;

/// Time in which repeated requests of a dashboard are one event.
const LOOKS_EVERY: Duration = Duration::from_secs(600);
/// Maximum number of pairs of principal and address that are remembered. Beyond that some are logged more often.
const LOOKS_MAX: usize = 1_024;

/// Logs the use of the monitor: once for each principal and address within ten minutes.
#[derive(Debug, Default)]
pub(crate) struct MonitorLog {
    logged: Mutex<HashMap<(Principal, Option<IpAddr>), Timestamp>>,
}

impl MonitorLog {
    /// Records that a caller used this method of the monitor.
    pub(crate) fn opened(&self, caller: &Caller, peer: Option<&Peer>, method: &'static str) {
        let address = peer.map(|peer| peer.address.ip());
        if self.is_due(caller.principal(), address, BootClock.now()) {
            let (principal, peer) = (caller.principal().name(), address.map(tracing::field::display));
            tracing::info!(target: AUDIT, principal, peer, method, "monitor opened");
        }
    }

    fn is_due(&self, principal: &Principal, address: Option<IpAddr>, now: Timestamp) -> bool {
        let mut logged = self.logged.lock();
        let who = (principal.clone(), address);
        if logged.get(&who).is_some_and(|last| now.since(*last) < LOOKS_EVERY) {
            return false;
        }
        if logged.len() >= LOOKS_MAX {
            logged.clear();
        }
        logged.insert(who, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dashboard_is_logged_once_in_ten_minutes_and_memory_is_bounded() {
        let (log, at) = (MonitorLog::default(), |s: u64| Timestamp::from_millis(s * 1_000));
        let due = |name: &str, now| log.is_due(&Principal::named(name), None, now);
        assert!(due("a", at(1)) && !due("a", at(600)) && due("a", at(601)));
        assert!(due("b", at(2)));
        for name in 0..3 * LOOKS_MAX {
            assert!(due(&name.to_string(), at(700)));
            assert!(log.logged.lock().len() <= LOOKS_MAX);
        }
    }
}

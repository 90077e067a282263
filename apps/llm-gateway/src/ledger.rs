//! Counts of what this gateway admitted, denied and passed on, for `GET /admin/stats`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throttlekit::clock::{Clock, WallClock};
use throttlekit::rate::Timestamp;

/// Number of windows that are kept.
const WINDOWS_MAX: usize = 256;

/// All that is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct GatewayStats {
    /// Each tenant by its name.
    pub tenants: BTreeMap<String, TenantStats>,
    /// Each of the last windows, by the millisecond at which it ends on the store's clock; in it each tenant.
    pub windows: BTreeMap<u64, BTreeMap<String, WindowStats>>,
}

/// Counts of one tenant's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct TenantStats {
    /// Admitted requests.
    pub admitted: u64,
    /// Requests that were not, by the axis that said no; `outage` where the store could not be asked.
    pub denied: BTreeMap<String, u64>,
    /// Tokens that were passed on, prompts included.
    pub delivered: u64,
    /// Streams that were cut where a budget ended.
    pub cut: u64,
    /// Streams that were broken off, since nobody could say whether they might go on.
    pub lost: u64,
    /// Requests whose caller went away.
    pub gone: u64,
    /// Of the tokens that were passed on, those of such requests.
    pub delivered_gone: u64,
}

/// Counts of one tenant in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct WindowStats {
    /// Tokens that this window was charged with.
    pub charged: i64,
    /// Of them, those whose debit began in the window before. A debit is told one end of a window for all that it asks, the
    /// latest; so the store may have charged these to the window before.
    pub straddling: u64,
    /// Tokens that were passed on while it lasted.
    pub delivered: u64,
    /// Admitted requests.
    pub admitted: u64,
    /// Requests that were not.
    pub denied: u64,
    /// Streams that were cut.
    pub cut: u64,
}

/// The books of one gateway.
#[derive(Debug)]
pub struct Ledger {
    window: Duration,
    stats: Mutex<GatewayStats>,
}

impl Ledger {
    /// Empty books, over windows of this length.
    pub fn new(window: Duration) -> Self {
        Self { window, stats: Mutex::default() }
    }

    /// Returns a copy of the counts.
    pub fn read(&self) -> GatewayStats {
        self.stats.lock().expect("nobody panics here").clone()
    }

    /// Counts an admitted request.
    pub fn admitted(&self, tenant: &str) {
        self.note(tenant, self.now_ends(), |all, window| {
            all.admitted += 1;
            window.admitted += 1;
        });
    }

    /// Counts a denied request, with the reason.
    pub fn denied(&self, tenant: &str, why: &str) {
        self.note(tenant, self.now_ends(), |all, window| {
            *all.denied.entry(why.to_owned()).or_default() += 1;
            window.denied += 1;
        });
    }

    /// Tokens were passed on.
    pub fn delivered(&self, tenant: &str, tokens: u64) {
        self.note(tenant, self.now_ends(), |all, window| {
            all.delivered += tokens;
            window.delivered += tokens;
        });
    }

    /// A stream was cut.
    pub fn cut(&self, tenant: &str) {
        self.note(tenant, self.now_ends(), |all, window| {
            all.cut += 1;
            window.cut += 1;
        });
    }

    /// A stream was broken off: the limits could not be asked, or its slot was lost.
    pub fn lost(&self, tenant: &str) {
        self.note(tenant, self.now_ends(), |all, _| all.lost += 1);
    }

    /// The client of a request disconnected after this number of tokens.
    pub fn gone(&self, tenant: &str, delivered: u64) {
        self.note(tenant, self.now_ends(), |all, _| {
            all.gone += 1;
            all.delivered_gone += delivered;
        });
    }

    /// The window that ends then was charged, or got something back.
    pub fn charged(&self, tenant: &str, window_ends: Timestamp, tokens: i64) {
        self.note(tenant, window_ends.as_millis_ceil(), |_, window| window.charged += tokens);
    }

    /// The window that ends then was charged for a chunk that was asked for at this time.
    pub fn debited(&self, tenant: &str, window_ends: Timestamp, tokens: u64, asked_at: Timestamp) {
        let straddles = asked_at + self.window <= window_ends;
        self.note(tenant, window_ends.as_millis_ceil(), |_, window| {
            window.charged += tokens as i64;
            window.straddling += if straddles { tokens } else { 0 };
        });
    }

    /// When the window that lasts now ends, in milliseconds; the gateway's clock stands for the store's.
    fn now_ends(&self) -> u64 {
        let (now, ms) = (WallClock.now().as_nanos() / 1_000_000, self.window.as_millis() as u64);
        (now / ms + 1) * ms
    }

    fn note(&self, tenant: &str, ends: u64, change: impl FnOnce(&mut TenantStats, &mut WindowStats)) {
        let mut stats = self.stats.lock().expect("nobody panics here");
        let GatewayStats { tenants, windows } = &mut *stats;
        let of_tenant = tenants.entry(tenant.to_owned()).or_default();
        change(of_tenant, windows.entry(ends).or_default().entry(tenant.to_owned()).or_default());
        while windows.len() > WINDOWS_MAX {
            windows.pop_first();
        }
    }
}

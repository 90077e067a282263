//! The one place where the gateway asks whether a request may pass, and tells what it turned out to cost.
//!
//! Three ways to meter stand behind it, to be compared. All have the same limits, slots and window.
//!
//! | meter | when a request begins | while it runs | when it ends |
//! |---|---|---|---|
//! | `stream` | sets aside what such a request likely needs | debits every chunk before it is passed on, and stops it where the budget ends | gives back what is left |
//! | `reserve` | charges all that it may cost | nothing | gives back what is left |
//! | `count` | looks whether anything is left | nothing | charges what it cost |

mod baseline;
mod stream;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use throttlekit::store::StoreError;
use throttlekit::{Axis, Retry};
use throttlekit_redis::RedisStore;
use throttlekit_telemetry::Telemetry;

use crate::headers::Allowances;
use crate::ledger::Ledger;
use crate::tenants::{Config, Tenant};
use baseline::{Baseline, Charged, Way};
use stream::{Common, Metered, Stream};

/// A metering mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Meter {
    /// Debit every chunk before it is passed on, and cut the stream at the end of the budget.
    Stream,
    /// Charge the maximum cost when the request begins, and refund the rest when it ends.
    Reserve,
    /// Charge the actual cost when the request ends.
    Count,
}

impl Meter {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Stream, Self::Reserve, Self::Count];

    /// Returns the name on the command line and in tables.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Reserve => "reserve",
            Self::Count => "count",
        }
    }
}

/// Tokens that one request needs.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Tokens of its prompt.
    pub prompt: u64,
    /// Maximum number of tokens to generate. 0 if the API generates none.
    pub most: u64,
}

impl Asked {
    /// The most that it may cost.
    fn in_all(self) -> u64 {
        self.prompt.saturating_add(self.most)
    }
}

/// An admitted request.
pub struct Answer {
    /// Units that its tenant has left.
    pub allowances: Allowances,
    /// Tokens that may be generated for it now: those reserved, and those left.
    pub may_use: u64,
    /// The permit, or why there is none.
    pub outcome: Result<Permit, Denial>,
}

/// Why a request may not pass, and what to do about it.
#[derive(Clone, Debug)]
pub struct Denial {
    /// Name of the tenant.
    pub tenant: String,
    /// Reason for the denial.
    pub why: Why,
    /// The limit that did.
    pub limit: u64,
    /// Tokens that it needs.
    pub asked: u64,
    /// Length of a window.
    pub window: Duration,
    /// When to retry.
    pub retry: Retry,
}

impl Denial {
    /// The limits could not be asked.
    pub fn outage(tenant: &str) -> Self {
        let retry = Retry::After(Duration::from_secs(1));
        Self {
            tenant: tenant.to_owned(),
            why: Why::Outage,
            limit: 0,
            asked: 0,
            window: Duration::ZERO,
            retry,
        }
    }
}

/// Reason for a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A limit on this axis.
    Axis(Axis),
    /// The store does not answer, and the policy is to let nobody pass then.
    Outage,
}

impl Why {
    /// Its name in the books.
    pub fn label(self) -> &'static str {
        match self {
            Self::Axis(axis) => axis.label(),
            Self::Outage => "outage",
        }
    }
}

/// The limiter of one tenant.
pub enum TenantLimiter {
    /// Ours.
    Stream(Box<Stream>),
    /// Either baseline.
    Baseline(Arc<Baseline>),
}

impl TenantLimiter {
    /// The limiters of all tenants, by their names. The telemetry sees what [`Meter::Stream`] decides.
    pub fn each(
        meter: Meter,
        store: &RedisStore,
        policy: &str,
        region: &str,
        config: &Config,
        ledger: &Arc<Ledger>,
        telemetry: &Arc<Telemetry>,
    ) -> Result<HashMap<String, Self>> {
        let baseline = |way: Way, tenant: &Tenant| -> Result<Self> {
            Ok(Self::Baseline(Arc::new(Baseline::new(way, store, policy, config, tenant, ledger.clone())?)))
        };
        let common = Common::new(store, policy, region, config, ledger, telemetry)?;
        let limiter = |tenant: &Tenant| match meter {
            Meter::Stream => Ok(Self::Stream(Box::new(Stream::new(&common, store, policy, config, tenant)?))),
            Meter::Reserve => baseline(Way::Reserve, tenant),
            Meter::Count => baseline(Way::Count, tenant),
        };
        config.tenants.iter().map(|tenant| Ok((tenant.name.clone(), limiter(tenant)?))).collect()
    }

    /// Asks whether a request may pass.
    pub async fn admit(&self, asked: Asked) -> Result<Answer, StoreError> {
        match self {
            Self::Stream(stream) => stream.admit(asked).await,
            Self::Baseline(baseline) => baseline.admit(asked).await,
        }
    }

    /// Returns the number of the tenant's requests in flight, by the store.
    pub async fn held(&self) -> Result<u32, StoreError> {
        match self {
            Self::Stream(stream) => stream.held().await,
            Self::Baseline(baseline) => baseline.held().await,
        }
    }

    /// Returns what the tenant has left, by the store.
    pub async fn allowances(&self) -> Allowances {
        match self {
            Self::Stream(stream) => stream.allowances().await,
            Self::Baseline(baseline) => baseline.allowances().await,
        }
    }
}

/// Result of a debit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debit {
    /// They may be passed on.
    Allow,
    /// A budget has ended.
    Deny,
    /// Unknown: limits cannot be checked, or the slot is no longer held.
    Lost(&'static str),
}

/// Proof that a request may run. Dropped, it settles with what was counted.
pub enum Permit {
    /// Of ours.
    Stream(Metered),
    /// Of either baseline.
    Baseline(Charged),
}

impl Permit {
    /// Counts tokens that are about to be passed on. If not allowed they must not be, and the stream ends.
    pub async fn debit(&mut self, tokens: u64) -> Debit {
        match self {
            Self::Stream(metered) => metered.debit(tokens).await,
            Self::Baseline(charged) => charged.count(tokens),
        }
    }

    /// The model did not take the request: it costs no tokens.
    pub fn refuse(self) {
        match self {
            Self::Stream(metered) => metered.refuse(),
            Self::Baseline(charged) => charged.refuse(),
        }
    }

    /// The request has ended well. `total` is what it cost by the model's own count, if that told one.
    pub async fn finish(self, total: Option<u64>) {
        match self {
            Self::Stream(metered) => metered.finish(total).await,
            Self::Baseline(charged) => charged.finish(total).await,
        }
    }
}

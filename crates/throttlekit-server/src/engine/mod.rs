//! Policies that run. Doors translate; only this decides, and only by what the library decides.

mod answer;
mod witness;

use std::sync::Arc;
use std::time::Duration;

use throttlekit::Forecast;
use throttlekit::store::{DebitId, LeaseId};

pub use answer::{Admitted, Answered, Beats, Granted, Held, Refusal};
pub use witness::Witness;

use crate::access::Principal;
use crate::policy::PolicyFile;

/// One ask, as every door brings it.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// Who it is counted for.
    pub key: &'a [u8],
    /// Further keys, for limits that go by them.
    pub others: &'a [&'a [u8]],
    /// What it costs, at least 1; doors turn their own zero into 1.
    pub cost: u64,
}

/// How work under a lease ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// The backend was too full for it, or failed.
    pub dropped: bool,
    /// It says nothing of the backend.
    pub ignored: bool,
    /// What it did cost, where that differs from the estimate.
    pub actual_cost: Option<u64>,
    /// How long it took, where that is not the time the lease was held.
    pub latency: Option<Duration>,
}

/// Units that a client hands back.
#[derive(Clone, Copy, Debug)]
pub struct HandBack {
    /// The name of this return: random; it counts once.
    pub id: u128,
    /// How many.
    pub units: u64,
    /// Of which window.
    pub epoch: u64,
}

/// The running policies. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    _inner: Arc<()>,
}

/// What became of a new policy file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Names of policies that were not there before.
    pub added: Vec<String>,
    /// Those that changed. Their counts go on.
    pub changed: Vec<String>,
    /// Those that are gone.
    pub removed: Vec<String>,
    /// Those whose counts begin anew, since another rule cannot read them; and other things to know.
    pub warnings: Vec<String>,
}

/// How the store is doing.
#[derive(Clone, Debug, Default)]
pub struct StoreHealth {
    /// `memory`, `redis` or `postgres`.
    pub kind: &'static str,
    /// Whether it answers.
    pub serving: bool,
    /// Calls sent, answered or not.
    pub calls: u64,
    /// Calls that got no answer.
    pub outages: u64,
    /// Calls under way.
    pub in_flight: u64,
}

/// Slots of one policy at this instance.
#[derive(Clone, Debug)]
pub struct GuardView {
    /// The policy.
    pub policy: String,
    /// The ceiling now.
    pub limit: u64,
    /// How many are held here.
    pub in_flight: u64,
    /// This instance's part of a fleet's ceiling, and the ceiling.
    pub fleet: Option<(u64, u64)>,
    /// How many instances share it.
    pub nodes: u64,
    /// Whether this instance has lost touch with the others, and lets nobody in.
    pub fenced: bool,
}

impl Engine {
    /// Decides, and charges if allowed. For policies without slots.
    pub async fn check(&self, _ask: Ask<'_>) -> Result<Answered, Refusal> {
        unimplemented!()
    }

    /// The same for several keys, in one flight; the answers in the order of the keys.
    pub async fn check_many(
        &self,
        _policy: &str,
        _keys: &[&[u8]],
        _cost: u64,
    ) -> Result<Vec<Answered>, Refusal> {
        unimplemented!()
    }

    /// What is left, spending nothing.
    pub async fn peek(&self, _ask: Ask<'_>) -> Result<Answered, Refusal> {
        unimplemented!()
    }

    /// What could be spent, now and later.
    pub async fn forecast(&self, _ask: Ask<'_>) -> Result<Forecast, Refusal> {
        unimplemented!()
    }

    /// Charges a token budget for what was produced. The cost is the tokens. A debit with a name counts once.
    pub async fn debit(&self, _ask: Ask<'_>, _name: Option<DebitId>) -> Result<Answered, Refusal> {
        unimplemented!()
    }

    /// The same for work that was admitted: its estimate covers it first.
    pub async fn debit_held(
        &self,
        _who: &Principal,
        _lease: LeaseId,
        _tokens: u64,
    ) -> Result<Answered, Refusal> {
        unimplemented!()
    }

    /// Admits work that holds something while it runs.
    pub async fn admit(
        &self,
        _who: &Principal,
        _ask: Ask<'_>,
        _value: f64,
        _hold: Option<f64>,
    ) -> Result<Admitted, Refusal> {
        unimplemented!()
    }

    /// Ends work. Says whether the lease was held by this principal; doors do not tell.
    pub fn release(&self, _who: &Principal, _lease: LeaseId, _how: Ended) -> bool {
        unimplemented!()
    }

    /// Lets leases live as long again.
    pub fn heartbeat(&self, _who: &Principal, _leases: &[LeaseId]) -> Beats {
        unimplemented!()
    }

    /// Lends units of a limit to a client; takes back first what it returns.
    pub async fn reserve(&self, _ask: Ask<'_>, _back: Option<HandBack>) -> Result<Granted, Refusal> {
        unimplemented!()
    }

    /// Puts a new file in force, or says why not and changes nothing. What stays the same keeps running.
    pub async fn reload(&self, _file: &PolicyFile) -> Result<Reloaded, String> {
        unimplemented!()
    }

    /// The file in force.
    pub fn file(&self) -> Arc<PolicyFile> {
        unimplemented!()
    }

    /// How the store is doing.
    pub fn store_health(&self) -> StoreHealth {
        unimplemented!()
    }

    /// The slots of every policy that has some.
    pub fn guards(&self) -> Vec<GuardView> {
        unimplemented!()
    }

    /// Ends every lease and hands back what was fetched and not spent. For a server that is about to stop.
    pub async fn drain(&self) {
        unimplemented!()
    }
}

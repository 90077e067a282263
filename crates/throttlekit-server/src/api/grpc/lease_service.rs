//! `throttlekit.v1.Fleet`: leases of units to clients.

use std::time::Duration;

use throttlekit_proto::v1::fleet_server::Fleet;
use throttlekit_proto::v1::{Axis, Lease, ReserveRequest, ReserveResponse};
use tonic::{Request, Response, Status};

use super::calls::units;
use super::status::status;
use crate::access::Caller;
use crate::engine::{Engine, Granted, HandBack, PolicyCall};
use crate::policy::Endpoint;
use crate::wire_format::{NEVER_WAIT, millis, millis_at, millis_down, signed, slices};

/// Maximum error of a client's wall clock, if the client relies on it: it gets an earlier expiry, and close to the end
/// of a window nothing is safe to spend.
const CLOCK_ERROR: Duration = Duration::from_millis(50);

/// The service `throttlekit.v1.Fleet` of an engine.
#[derive(Clone)]
pub struct LeaseApi {
    engine: Engine,
}

impl LeaseApi {
    /// Creates the service of this engine.
    pub fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

#[tonic::async_trait]
impl Fleet for LeaseApi {
    async fn reserve(&self, request: Request<ReserveRequest>) -> Result<Response<ReserveResponse>, Status> {
        let asker = Caller::of(request.extensions(), &self.engine);
        let request = request.into_inner();
        if matches!(request.axis(), Axis::Concurrency | Axis::TokenBudget) {
            return Err(Status::unimplemented(
                "only rates can be leased: use Admit for slots, and Debit for tokens",
            ));
        }
        let domain = request.caller.as_ref().map_or("", |caller| caller.domain.as_str());
        let named = [request.key.as_str(), domain, request.policy.as_str()];
        let key = named.into_iter().find(|name| !name.is_empty()).unwrap_or_default().as_bytes();
        let others = slices(&request.keys);
        asker.may(Endpoint::Reserve, &request.policy, key).map_err(status)?;
        asker.may_each(Endpoint::Reserve, &request.policy, &others).map_err(status)?;
        let back = match &request.returned {
            Some(back) => {
                let loan = u128::from_str_radix(&back.return_id, 16);
                let loan =
                    loan.map_err(|_| Status::invalid_argument("invalid return_id: not issued by Reserve"))?;
                Some(HandBack { loan, units: u64::try_from(back.units).unwrap_or(0) })
            }
            None => None,
        };
        // A request that only returns units wants none.
        let wants = if back.is_some() && request.wants == 0 { 0 } else { units("wants", request.wants)? };
        let least = units("least", request.least)?;
        if wants > 0 && least > wants {
            return Err(Status::invalid_argument("invalid least: greater than wants"));
        }
        let ask = PolicyCall { policy: &request.policy, key, others: &others, cost: wants };
        let granted =
            self.engine.reserve_at_least(asker.principal(), ask, least, back).await.map_err(status)?;
        Ok(Response::new(ReserveResponse { lease: Some(lease(&granted)) }))
    }
}

/// Encodes the lease of units.
pub(crate) fn lease(granted: &Granted) -> Lease {
    let left = granted.lives.saturating_sub(CLOCK_ERROR);
    let denied = granted.units == 0;
    // A denial reports the window's real end, since that is when to retry.
    let expiry = millis_at(granted.until) - if denied { 0 } else { millis(CLOCK_ERROR.min(granted.lives)) };
    Lease {
        capacity: signed(granted.units),
        expiry_ms: expiry,
        refresh_interval_ms: millis(granted.refresh_after),
        safe_capacity: if left.is_zero() { 0 } else { signed(granted.units) },
        retry_after_ms: if denied { millis(granted.retry_after.unwrap_or(NEVER_WAIT)) } else { 0 },
        limit: signed(granted.limit),
        lease_for_ms: millis_down(granted.lives),
        epoch: String::new(),
        return_id: granted.loan.map(|loan| format!("{loan:032x}")).unwrap_or_default(),
    }
}

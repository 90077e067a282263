//! Admission of work by a remote policy, also behind the library's [`Admit`].

use throttlekit::admit::{Admitting, LimitInfo};
use throttlekit::clock::{BootClock, Clock, WallClock};
use throttlekit::rate::Timestamp;
use throttlekit::{Admission, Admit, Axis, Call, Limit, SharedPermit, StoreError};
use throttlekit_proto::v1::Decision;

use crate::failure::Failure;
use crate::permit::RemotePermit;
use crate::request::Request;
use crate::{RemotePolicy, wire};

impl RemotePolicy {
    /// Makes one call per request: `Admit` if the policy holds something while work runs, otherwise `Check`. The first
    /// request finds out.
    pub(crate) async fn admit_request(&self, request: Request) -> Result<Admission, StoreError> {
        if self.holds() {
            match self.admit_held(&request).await {
                Err(Failure::Unsupported(_)) => self.set_holds(false),
                Err(failure) => return self.admit_by_fallback(failure, request),
                Ok(admission) => return Ok(admission),
            }
        }
        match self.client().check(self.name(), &request).await {
            Ok(decision) => Ok(self.admission(&decision, None, SharedPermit::none())),
            Err(failure) => {
                if matches!(failure, Failure::Unsupported(_)) {
                    // The policy may have been given slots since.
                    self.set_holds(true);
                }
                Ok(self.answer(Err(failure), &request)?.into())
            }
        }
    }

    async fn admit_held(&self, request: &Request) -> Result<Admission, Failure> {
        let sent = BootClock.now();
        let (server, decision, response) = self.client().admit(self.name(), request, self.wait()).await?;
        let axis =
            if response.policy_denied { Some(Axis::Price) } else { wire::axis(&response.binding_axis) };
        let permit = if decision.allowed {
            let permit = RemotePermit::held(self.clone(), server, response, sent, request.clone());
            SharedPermit::new(permit.weaken(wire::guarantee(&decision)))
        } else {
            SharedPermit::none()
        };
        Ok(self.admission(&decision, axis, permit))
    }

    /// Returns the admission by the fallback. Its permit holds nothing.
    fn admit_by_fallback(&self, failure: Failure, request: Request) -> Result<Admission, StoreError> {
        let mut admission = Admission::from(self.answer(Err(failure), &request)?);
        let permit = RemotePermit::unheld(self.clone(), request).weaken(admission.guarantee);
        admission.permit = admission.permit.map(|_| SharedPermit::new(permit));
        Ok(admission)
    }

    /// Returns the admission for a response. The server reports one decision, and the axis only of a denial.
    fn admission(&self, decision: &Decision, axis: Option<Axis>, permit: SharedPermit) -> Admission {
        let answer = self.note(wire::answer(decision));
        let axis = axis.or_else(|| wire::axis(&decision.binding_axis)).unwrap_or(Axis::Rate);
        let mut admission = Admission::of(axis, answer.decision, permit).named(answer.limit_name);
        (admission.guarantee, admission.shadow_denied) = (answer.guarantee, answer.shadow_denied);
        admission
    }
}

/// The same as the inherent [`admit`](RemotePolicy::admit). Set the policy's
/// [limit](crate::RemotePolicyBuilder::limit) to include its period in `RateLimit-Policy`.
impl Admit for RemotePolicy {
    fn admit(&self, call: Call<'_>) -> Admitting {
        match Request::of(&call) {
            Ok(request) => {
                let policy = self.clone();
                Admitting::pending(async move { policy.admit_request(request).await })
            }
            Err(error) => Admitting::ready(Err(error)),
        }
    }

    fn limits(&self) -> Vec<LimitInfo> {
        let info = LimitInfo::new(Axis::Rate, self.units(), self.limit().map(Limit::period));
        vec![if self.holds() { info.refundable() } else { info }]
    }

    fn now(&self) -> Timestamp {
        WallClock.now()
    }
}

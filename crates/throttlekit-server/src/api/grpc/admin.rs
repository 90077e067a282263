//! Actions of operators.

use throttlekit_proto::v1;
use throttlekit_proto::v1::admin_server::Admin;
use tonic::{Request, Response, Status};

use super::status::status;
use crate::access::Caller;
use crate::api::admin::Operator;
use crate::engine::Engine;

/// The service of operators' actions.
#[derive(Clone)]
pub struct AdminApi {
    engine: Engine,
    operator: Operator,
}

impl AdminApi {
    /// Creates the service of this engine.
    pub fn new(engine: Engine) -> Self {
        Self { operator: Operator::new(engine.clone()), engine }
    }

    /// Sets the operator whose actions it offers.
    pub(crate) fn operator(self, operator: Operator) -> Self {
        Self { operator, ..self }
    }

    fn caller<T>(&self, request: Request<T>) -> (Caller, T) {
        let caller = Caller::of(request.extensions(), &self.engine);
        (caller, request.into_inner())
    }
}

/// Calls a method of the operator.
macro_rules! action {
    ($api:ident, $request:ident, |$operator:ident, $caller:ident, $body:ident| $action:expr) => {{
        let ($caller, $body) = $api.caller($request);
        let $operator = &$api.operator;
        let $caller = &$caller;
        $action.map(Response::new).map_err(status)
    }};
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Admin for AdminApi {
    async fn reset(&self, request: Request<v1::ResetRequest>) -> Answer<v1::ResetResponse> {
        action!(self, request, |operator, caller, body| operator.reset(caller, body).await)
    }

    async fn grant(&self, request: Request<v1::GrantRequest>) -> Answer<v1::GrantResponse> {
        action!(self, request, |operator, caller, body| operator.grant(caller, body).await)
    }

    async fn set_override(
        &self,
        request: Request<v1::SetOverrideRequest>,
    ) -> Answer<v1::SetOverrideResponse> {
        action!(self, request, |operator, caller, body| operator.set_override(caller, body).await)
    }

    async fn remove_override(
        &self,
        request: Request<v1::RemoveOverrideRequest>,
    ) -> Answer<v1::RemoveOverrideResponse> {
        action!(self, request, |operator, caller, body| operator.remove_override(caller, body).await)
    }

    async fn list_overrides(
        &self,
        request: Request<v1::ListOverridesRequest>,
    ) -> Answer<v1::ListOverridesResponse> {
        action!(self, request, |operator, caller, body| operator.list_overrides(caller, &body))
    }

    async fn set_plan(&self, request: Request<v1::SetPlanRequest>) -> Answer<v1::SetPlanResponse> {
        action!(self, request, |operator, caller, body| operator.set_plan(caller, body).await)
    }

    async fn remove_plan(&self, request: Request<v1::RemovePlanRequest>) -> Answer<v1::RemovePlanResponse> {
        action!(self, request, |operator, caller, body| operator.remove_plan(caller, body).await)
    }

    async fn list_plans(&self, request: Request<v1::ListPlansRequest>) -> Answer<v1::ListPlansResponse> {
        action!(self, request, |operator, caller, body| operator.list_plans(caller, &body))
    }

    async fn list_leases(&self, request: Request<v1::ListLeasesRequest>) -> Answer<v1::ListLeasesResponse> {
        action!(self, request, |operator, caller, body| operator.list_leases(caller, body).await)
    }

    async fn release_leases(
        &self,
        request: Request<v1::ReleaseLeasesRequest>,
    ) -> Answer<v1::ReleaseLeasesResponse> {
        action!(self, request, |operator, caller, body| operator.release_leases(caller, body).await)
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Answer<v1::DrainResponse> {
        action!(self, request, |operator, caller, _body| operator.drain(caller))
    }

    async fn reload(&self, request: Request<v1::ReloadRequest>) -> Answer<v1::ReloadResponse> {
        action!(self, request, |operator, caller, _body| operator.reload(caller).await)
    }

    async fn set_log_filter(
        &self,
        request: Request<v1::SetLogFilterRequest>,
    ) -> Answer<v1::SetLogFilterResponse> {
        action!(self, request, |operator, caller, body| operator.set_log_filter(caller, &body))
    }

    async fn get_config(&self, request: Request<v1::GetConfigRequest>) -> Answer<v1::GetConfigResponse> {
        let (caller, _) = self.caller(request);
        let json = self.operator.configuration(&caller).map_err(status)?.to_string();
        Ok(Response::new(v1::GetConfigResponse { json }))
    }
}

//! Actions of operators.

use throttlekit_proto::v1::admin_server::Admin;
use throttlekit_proto::v1::{ResetRequest, ResetResponse};
use tonic::{Request, Response, Status};

use super::status::status;
use crate::access::Caller;
use crate::api::admin;
use crate::engine::Engine;

/// The service of operators' actions.
#[derive(Clone)]
pub struct AdminApi(Engine);

impl AdminApi {
    /// Creates the service of this engine.
    pub fn new(engine: Engine) -> Self {
        Self(engine)
    }
}

#[tonic::async_trait]
impl Admin for AdminApi {
    async fn reset(&self, request: Request<ResetRequest>) -> Result<Response<ResetResponse>, Status> {
        let caller = Caller::of(request.extensions(), &self.0);
        let ResetRequest { policy, key, keys } = request.into_inner();
        admin::reset(&self.0, &caller, &policy, &key, &keys).await.map_err(status)?;
        Ok(Response::new(ResetResponse {}))
    }
}

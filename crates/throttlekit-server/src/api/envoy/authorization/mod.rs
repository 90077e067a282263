//! Envoy's external authorization, version 3: one decision for each request, as its route configures it.
//!
//! The settings of a route (`context_extensions`) are those of a forward-auth request: `policy`, `key` or `key_header`,
//! `cost`. Responses have the same headers, and denials the same problem document.
//!
//! Clients of the proxy choose the value of a key header, so any bytes of any length are a key.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use axum::body::to_bytes;
use axum::extract::ConnectInfo;
use http::{HeaderMap, StatusCode};
use throttlekit::http::KeyExtractor;
use throttlekit::store::StoreError;
use throttlekit_proto::envoy::authorization_server::{Authorization, AuthorizationServer};
use throttlekit_proto::envoy::{
    AttributeContext, CheckRequest, CheckResponse, DeniedHttpResponse, HeaderValue, HeaderValueOption,
    HttpResponse, HttpStatus, OkHttpResponse, Status as RpcStatus,
};
use tonic::{Code, Request, Response, Status};

use super::key::fitted;
use crate::access::Caller;
use crate::api::grpc::status;
use crate::api::http::Problem;
use crate::api::http::forward_auth::{address, period, told};
use crate::engine::{COST_MAX, Engine, PolicyCall, Refusal};
use crate::limits::ENVOY_BYTES_MAX;
use crate::policy::Endpoint;

/// Maximum size of the body of a denial.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Envoy's `OVERWRITE_IF_EXISTS_OR_ADD`.
const REPLACE: i32 = 2;

/// The service. Cheap to clone.
#[derive(Clone)]
pub struct EnvoyAuthorization(Engine);

impl EnvoyAuthorization {
    /// Creates the service of this engine.
    pub fn new(engine: Engine) -> Self {
        Self(engine)
    }

    /// Converts it to a service for a gRPC server.
    pub fn into_service(self) -> AuthorizationServer<Self> {
        AuthorizationServer::new(self).max_decoding_message_size(ENVOY_BYTES_MAX)
    }
}

#[tonic::async_trait]
impl Authorization for EnvoyAuthorization {
    /// Decides about a request.
    ///
    /// An error means that the proxy, its route or the store is misconfigured. Envoy's `failure_mode_allow` then
    /// determines the outcome. So no client of the proxy can cause an error: a request without a decision for any other
    /// reason is denied.
    async fn check(&self, request: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        let caller = Caller::of(request.extensions(), &self.0);
        caller.may_use(Endpoint::Envoy).map_err(status)?;
        if caller.is_crowded() {
            let why = "the proxy has too many requests in progress: retry later";
            return Ok(Response::new(refused(&Problem::new(StatusCode::TOO_MANY_REQUESTS, why))));
        }
        let attributes = request.into_inner().attributes.unwrap_or_default();
        let route = Route::of(&attributes.context_extensions)?;
        let Some(key) = route.key(&attributes)? else {
            let why = "the request has no key: its header is missing or empty";
            return Ok(Response::new(refused(&Problem::bad(why))));
        };
        let decided = self.decide(&caller, &route, &key).await;
        decided.or_else(denied_by).map(Response::new).map_err(status)
    }
}

impl EnvoyAuthorization {
    /// Decides about a key, if the caller may use it as the client wrote it.
    async fn decide(&self, caller: &Caller, route: &Route<'_>, key: &[u8]) -> Result<CheckResponse, Refusal> {
        caller.may(Endpoint::Envoy, route.policy, key)?;
        let key = fitted(key);
        let ask = PolicyCall { policy: route.policy, key: &key, others: &[], cost: route.cost };
        let answer = self.0.check(ask).await?;
        caller.got([&answer]);
        let answer = answer.decided()?;
        let file = self.0.file();
        let period = file.policies.get(route.policy).and_then(|spec| period(spec, &answer));
        let (parts, body) = told(route.policy, &answer, period).into_parts();
        if answer.decision.allowed {
            return Ok(allowed(&parts.headers));
        }
        // The body is in memory and short. Without it the denial is still a denial.
        let body = to_bytes(body, BODY_BYTES_MAX).await.unwrap_or_default();
        Ok(denied(parts.status, &parts.headers, String::from_utf8_lossy(&body).into_owned()))
    }
}

/// Converts a refusal to a denial. Returns the refusal if it is a fault of the configuration, which no client of the
/// proxy can cause. Clients read the denial: it names no caller and no address of a store.
fn denied_by(refusal: Refusal) -> Result<CheckResponse, Refusal> {
    let problem = match refusal {
        Refusal::Forbidden(_) => {
            Problem::new(StatusCode::FORBIDDEN, "the proxy may not make requests with this key")
        }
        Refusal::Store(error) if error.is_outage() => Refusal::Outage.into(),
        overloaded @ Refusal::Store(StoreError::Overloaded) => overloaded.into(),
        // The route names a policy that is not loaded or that has slots, or the store cannot be used.
        fault @ (Refusal::UnknownPolicy(_) | Refusal::Unsupported(_) | Refusal::Store(_)) => {
            return Err(fault);
        }
        refusal @ (Refusal::Invalid(_) | Refusal::TooMany(_) | Refusal::Outage) => refusal.into(),
    };
    Ok(refused(&problem))
}

/// The settings of a route.
struct Route<'a> {
    policy: &'a str,
    key: Option<&'a str>,
    key_header: Option<&'a str>,
    cost: u64,
}

impl<'a> Route<'a> {
    fn of(settings: &'a BTreeMap<String, String>) -> Result<Self, Status> {
        let wrong = |why: &str| Err(Status::invalid_argument(format!("context_extensions: {why}")));
        let known = ["policy", "key", "key_header", "cost"];
        if let Some(unknown) = settings.keys().find(|name| !known.contains(&name.as_str())) {
            return wrong(&format!(
                "unknown `{}`: expected policy, key, key_header, cost",
                unknown.escape_debug()
            ));
        }
        let get = |name: &str| settings.get(name).map(String::as_str);
        let Some(policy) = get("policy") else { return wrong("`policy` is missing") };
        let (key, key_header) = (get("key"), get("key_header"));
        if key.is_some() && key_header.is_some() {
            return wrong("`key` and `key_header` exclude each other");
        }
        let cost = match get("cost").map(str::parse) {
            None => 1,
            Some(Ok(cost)) if (1..=COST_MAX).contains(&cost) => cost,
            Some(_) => return wrong(&format!("invalid `cost`: expected 1 to {COST_MAX}")),
        };
        Ok(Self { policy, key, key_header, cost })
    }

    /// Returns the key of a request; `None` if it lacks the header. Default: the client's address, as Envoy knows it.
    fn key(&self, attributes: &AttributeContext) -> Result<Option<Vec<u8>>, Status> {
        if let Some(key) = self.key {
            return Ok(Some(key.as_bytes().to_vec()));
        }
        if let Some(name) = self.key_header {
            let http = attributes.request.as_ref().and_then(|request| request.http.as_ref());
            let value = http.and_then(|http| http.headers.get(&name.to_ascii_lowercase()));
            return Ok(value.filter(|value| !value.is_empty()).map(|value| value.to_vec()));
        }
        let source = attributes.source.as_ref().and_then(|source| source.address.as_ref());
        let source = source.and_then(|address| address.socket_address.as_ref());
        // A link-local address may have a zone (`fe80::1%eth0`), which is no part of an `IpAddr`.
        let source = source.and_then(|socket| socket.address.split('%').next()?.parse::<IpAddr>().ok());
        let Some(source) = source else {
            return Err(Status::invalid_argument("the client has no IP address: set `key` or `key_header`"));
        };
        let mut parts = http::Request::new(()).into_parts().0;
        parts.extensions.insert(ConnectInfo(SocketAddr::new(source, 0)));
        let key =
            address(0).extract(&parts).map_err(|_| Status::internal("the client's address is unknown"))?;
        Ok(Some(key.as_bytes().to_vec()))
    }
}

fn allowed(headers: &HeaderMap) -> CheckResponse {
    let ok = OkHttpResponse { response_headers_to_add: options(headers) };
    CheckResponse { status: rpc(Code::Ok), http_response: Some(HttpResponse::OkResponse(ok)) }
}

/// Creates the denial of a request that got no decision.
fn refused(problem: &Problem) -> CheckResponse {
    let (parts, body) = problem.response().into_parts();
    denied(parts.status, &parts.headers, body)
}

fn denied(status: StatusCode, headers: &HeaderMap, body: String) -> CheckResponse {
    let status = Some(HttpStatus { code: status.as_u16().into() });
    let denied = DeniedHttpResponse { status, headers: options(headers), body };
    let code = rpc(Code::ResourceExhausted);
    CheckResponse { status: code, http_response: Some(HttpResponse::DeniedResponse(denied)) }
}

fn rpc(code: Code) -> Option<RpcStatus> {
    Some(RpcStatus { code: code as i32, message: String::new() })
}

/// Converts headers. Envoy sets the length itself.
fn options(headers: &HeaderMap) -> Vec<HeaderValueOption> {
    let each = headers.iter().filter(|(name, _)| *name != http::header::CONTENT_LENGTH);
    let option = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        let value = value.to_str().ok()?.to_owned();
        let header = HeaderValue { key: name.as_str().to_owned(), value, ..HeaderValue::default() };
        Some(HeaderValueOption { header: Some(header), append_action: REPLACE })
    };
    each.filter_map(option).collect()
}

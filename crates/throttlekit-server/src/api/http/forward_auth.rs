//! Forward-auth for proxies that check a request before they forward it: nginx's `auth_request`, Traefik's
//! `ForwardAuth`, Caddy's `forward_auth`.

use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, Path, Query, Request, State};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::request::Parts;
use http::{HeaderName, StatusCode};
use serde::Deserialize;
use throttlekit::admit::{Admission, Admit, Admitting, LimitInfo, SharedPermit, StoreError};
use throttlekit::clock::{Clock, WallClock};
use throttlekit::http::{AdmissionLayer, ClientIp, HeaderStyle, KeyExtractor, client_ip, fixed};
use throttlekit::rate::Timestamp;
use throttlekit::{Axis, Call, Guarantee};
use tower::{Layer, ServiceExt, service_fn};

use super::HttpApi;
use super::problem::Problem;
use crate::access::Caller;
use crate::engine::{Answered, PolicyCall, Refusal};
use crate::listen::Peer;
use crate::policy::{Endpoint, PolicySpec};

/// Query parameters of a forward-auth request. The proxy's operator writes them, never the client.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The key itself.
    key: Option<String>,
    /// The header whose value is the key.
    key_header: Option<String>,
    /// Cost of the request.
    cost: Option<u64>,
    /// Status of a denial.
    deny: Option<u16>,
}

/// Returns the peer's address, as our own listener or axum's reports it, or the client's address before `hops` proxies.
pub(in crate::api) fn address(hops: u8) -> ClientIp {
    client_ip().behind_proxies(hops).peer_from(|extensions| {
        let served = extensions.get::<Peer>().map(|peer| peer.address);
        let served = served.or_else(|| extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0));
        served.map(|address| address.ip())
    })
}

/// Returns 200, or 429 (403 with `deny=403`) and a problem document; either with the standard rate limit headers.
pub(super) async fn auth(
    State(api): State<HttpApi>,
    Path(policy): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, _) = request.into_parts();
    let options = Query::<Options>::try_from_uri(&parts.uri).map_err(|error| {
        Problem::bad(format!(
            "{}: valid query parameters are key, key_header, cost and deny",
            error.body_text()
        ))
    })?;
    let denied = match options.deny {
        None | Some(429) => StatusCode::TOO_MANY_REQUESTS,
        Some(403) => StatusCode::FORBIDDEN,
        Some(_) => {
            return Err(Problem::bad("invalid `deny`: expected 429 or 403 (nginx's auth_request needs 403)"));
        }
    };
    let key = api.key(&options, &parts)?;
    // If 403 is the status of a denial, a proxy without the right must not get the same status.
    let may_not = |refusal: Refusal| match denied {
        StatusCode::FORBIDDEN => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, refusal.to_string()),
        _ => refusal.into(),
    };
    let caller = Caller::of(&parts.extensions, &api.engine);
    caller.may(Endpoint::Check, &policy, &key).map_err(may_not)?;
    let ask = PolicyCall { policy: &policy, key: &key, others: &[], cost: options.cost.unwrap_or(1).max(1) };
    let answer = api.engine.check(ask).await?;
    caller.got([&answer]);
    let answer = answer.decided()?;
    let period = api.engine.file().policies.get(&policy).and_then(|spec| period(spec, &answer));
    let mut response = told(&policy, &answer, period);
    if response.status() == StatusCode::TOO_MANY_REQUESTS {
        *response.status_mut() = denied;
    }
    Ok(response)
}

impl HttpApi {
    /// Returns the key: from the query, or the header that it names, or the client's address.
    fn key(&self, options: &Options, parts: &Parts) -> Result<Vec<u8>, Problem> {
        match (&options.key, &options.key_header) {
            (Some(_), Some(_)) => Err(Problem::bad("the query has `key` and `key_header`: send one of them")),
            (Some(key), None) => Ok(key.clone().into_bytes()),
            (None, Some(name)) => header(name, parts),
            (None, None) => {
                let lost = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the peer address is unknown");
                Ok(self.address.extract(parts).map_err(lost)?.as_bytes().to_vec())
            }
        }
    }
}

/// Returns the value of a header. A repeated header is no key: the upstream service might use the other value.
fn header(name: &str, parts: &Parts) -> Result<Vec<u8>, Problem> {
    let name: HeaderName =
        name.parse().map_err(|_| Problem::bad("invalid `key_header`: not a header name"))?;
    let mut values = parts.headers.get_all(&name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) if !value.is_empty() => Ok(value.as_bytes().to_vec()),
        _ => Err(Problem::bad(format!("the request must have the header `{name}` once, and not empty"))),
    }
}

/// Returns the time in which the limit of a response is full again.
pub(in crate::api) fn period(spec: &PolicySpec, answer: &Answered) -> Option<Duration> {
    let rates = spec.rate.iter().filter_map(|rate| rate.to_limit().ok());
    let costs = spec.cost.iter().filter_map(|cost| cost.to_limit().ok());
    let fair = spec.fair.iter().filter_map(|fair| fair.to_limit().ok());
    let limits: Vec<_> = rates.chain(costs).chain(fair).collect();
    let same = limits.iter().find(|limit| limit.units() == answer.decision.limit);
    same.or(limits.first()).map(throttlekit::Limit::period)
}

/// A keyless limiter with a decision already made, so that the library writes the response as it does for its own
/// limits.
struct Answers {
    answer: Answered,
    period: Option<Duration>,
}

impl Admit for Answers {
    /// Reports every denial as one of a rate: 429, also if no slot is free.
    fn admit(&self, _: Call<'_>) -> Admitting {
        let Answered { decision, guarantee, .. } = self.answer;
        let mut admission = Admission::of(Axis::Rate, decision, SharedPermit::none());
        admission.guarantee = guarantee;
        admission.outage = (guarantee == Guarantee::Open).then(|| StoreError::unavailable("no response"));
        Admitting::ready(Ok(admission))
    }

    fn limits(&self) -> Vec<LimitInfo> {
        vec![LimitInfo::new(Axis::Rate, self.answer.decision.limit, self.period)]
    }

    fn now(&self) -> Timestamp {
        WallClock.now()
    }
}

/// Creates the response with its headers. Ignores the request's own headers: those of a gRPC call would turn the denial
/// into a 200 that only a gRPC client understands.
pub(in crate::api) fn told(policy: &str, answer: &Answered, period: Option<Duration>) -> Response {
    if answer.decision.limit == u64::MAX {
        return StatusCode::OK.into_response();
    }
    let layer = |name| {
        let answers = Answers { answer: *answer, period };
        AdmissionLayer::builder(answers, fixed(""))
            .name(name)
            .headers(HeaderStyle::Both)
            .retry_jitter(0.0)
            .build()
    };
    // A name that is not valid in a header is replaced.
    let Ok(layer) = layer(policy).or_else(|_| layer("policy")) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let pass = service_fn(|_: Request| ready(Ok::<_, Infallible>(Response::new(Body::empty()))));
    // Both are ready immediately.
    let response = layer.layer(pass).oneshot(Request::new(Body::empty())).now_or_never();
    let Some(Ok(response)) = response else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    response.map(Body::new)
}

//! `throttlekit.v1.RateLimiter`.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::stream::Empty;
use hyper::body::Bytes;
use throttlekit::store::LeaseId;
use throttlekit_proto::v1::rate_limiter_server::RateLimiter;
use throttlekit_proto::v1::{
    AdmitRequest, AdmitResponse, CheckManyRequest, CheckManyResponse, CheckRequest, CheckResponse,
    DebitRequest, DebitResponse, Forecast, ForecastRequest, ForecastResponse, HeartbeatRequest,
    HeartbeatResponse, PeekRequest, PeekResponse, ReleaseRequest, ReleaseResponse, SessionRequest,
    SessionResponse,
};
use tonic::{Request, Response, Status, Streaming};

use super::calls::{self, cost_hint, decision, millis, units};
use super::encoding::check_response;
use super::status::status;
use crate::access::Caller;
use crate::api::lease_id;
use crate::api::unary::Method;
use crate::engine::{Answered, Ended, Engine, PolicyCall, WorkTerms};
use crate::policy::Endpoint;
use crate::wire_format::{self, axis_name, class, millis_at, millis_down, signed, slices};

/// Maximum number of leases that one heartbeat renews.
const HEARTBEATS_MAX: usize = 1_900;
/// Size of a lease in a message: a tag, a length and 32 digits.
const HEARTBEAT_BYTES: usize = 34;
const _: () = assert!(HEARTBEATS_MAX * HEARTBEAT_BYTES <= crate::limits::MESSAGE_BYTES_MAX);

/// The service `throttlekit.v1.RateLimiter` of an engine.
#[derive(Clone)]
pub struct RateLimiterApi {
    engine: Engine,
}

impl RateLimiterApi {
    /// Creates the service of this engine.
    pub fn new(engine: Engine) -> Self {
        Self { engine }
    }

    async fn decide(&self, caller: &Caller, request: &CheckRequest) -> Result<Answered, Status> {
        let answer = calls::check(&self.engine, caller, request).await?;
        caller.got([&answer]);
        Ok(answer)
    }

    /// Splits a request into its caller and its message.
    fn from<T>(&self, request: Request<T>) -> (Caller, T) {
        (Caller::of(request.extensions(), &self.engine), request.into_inner())
    }
}

/// The method `Check`.
impl Method for RateLimiterApi {
    const PATH: &'static str = "/throttlekit.v1.RateLimiter/Check";
    type Request = CheckRequest;

    async fn answer(&self, caller: Caller, request: CheckRequest) -> Result<Bytes, Status> {
        self.decide(&caller, &request).await.map(|answer| check_response(&answer))
    }
}

#[tonic::async_trait]
impl RateLimiter for RateLimiterApi {
    async fn check(&self, request: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        let (caller, request) = self.from(request);
        let answer = self.decide(&caller, &request).await?;
        Ok(Response::new(CheckResponse { decision: Some(decision(&answer)) }))
    }

    async fn check_many(
        &self,
        request: Request<CheckManyRequest>,
    ) -> Result<Response<CheckManyResponse>, Status> {
        let (caller, CheckManyRequest { policy, keys, cost, others }) = self.from(request);
        caller.may_use(Endpoint::Check).map_err(status)?;
        let others: Vec<_> = others.iter().map(|others| &others.keys[..]).collect();
        let calls = wire_format::calls(&keys, &others).map_err(status)?;
        for keys in &calls {
            caller.may_each(Endpoint::Check, &policy, keys).map_err(status)?;
        }
        let answers = self.engine.check_parts(caller.turn(), &policy, &calls, units("cost", cost)?).await;
        let answers = answers.map_err(status)?;
        caller.got(&answers);
        Ok(Response::new(CheckManyResponse { decisions: answers.iter().map(decision).collect() }))
    }

    async fn peek(&self, request: Request<PeekRequest>) -> Result<Response<PeekResponse>, Status> {
        let (caller, request) = self.from(request);
        let answer = calls::peek(&self.engine, &caller, &request).await?;
        Ok(Response::new(PeekResponse { decision: Some(decision(&answer)) }))
    }

    async fn forecast(
        &self,
        request: Request<ForecastRequest>,
    ) -> Result<Response<ForecastResponse>, Status> {
        let (caller, ForecastRequest { policy, key, cost, keys }) = self.from(request);
        let others = slices(&keys);
        caller.may(Endpoint::Peek, &policy, key.as_bytes()).map_err(status)?;
        caller.may_each(Endpoint::Peek, &policy, &others).map_err(status)?;
        let ask =
            PolicyCall { policy: &policy, key: key.as_bytes(), others: &others, cost: units("cost", cost)? };
        let forecast = self.engine.forecast(ask).await.map_err(status)?;
        let forecast = Forecast {
            spendable_now: signed(forecast.spendable_now),
            next_replenish_at: millis_at(forecast.next_replenish_at),
            full_at: millis_at(forecast.full_at),
        };
        Ok(Response::new(ForecastResponse { forecast: Some(forecast) }))
    }

    async fn debit(&self, request: Request<DebitRequest>) -> Result<Response<DebitResponse>, Status> {
        let (caller, request) = self.from(request);
        let answer = calls::debit(&self.engine, &caller, &request).await?;
        caller.got([&answer]);
        Ok(Response::new(DebitResponse { decision: Some(decision(&answer)) }))
    }

    async fn admit(&self, request: Request<AdmitRequest>) -> Result<Response<AdmitResponse>, Status> {
        let (caller, AdmitRequest { policy, key, cost, hold, value, keys, wait_ms, priority, hint }) =
            self.from(request);
        let others = slices(&keys);
        caller.may(Endpoint::Admit, &policy, key.as_bytes()).map_err(status)?;
        caller.may_each(Endpoint::Admit, &policy, &others).map_err(status)?;
        let ask =
            PolicyCall { policy: &policy, key: key.as_bytes(), others: &others, cost: units("cost", cost)? };
        // The value of the work, and the milliseconds for which it expects to hold its slot.
        let value = units("value", value)? as f64;
        let hold = millis("hold", hold)?;
        let hold = (!hold.is_zero()).then_some(hold.as_secs_f64());
        let (wait, priority) = (millis("wait_ms", wait_ms)?, class(priority));
        let learned = if cost == 0 { Some(cost_hint(hint.as_ref())?) } else { None };
        let terms = WorkTerms { value, hold, wait, priority, learned };
        let admitted = self.engine.admit_in_turn(caller.principal(), ask, terms, caller.turn()).await;
        let admitted = admitted.map_err(status)?;
        caller.got([&admitted.answer]);
        admitted.answer.decided().map_err(status)?;
        let (lease_id, lease_expires_at, lives) = match admitted.lease {
            Some(held) => (lease_id::written(held.id), millis_at(held.until), held.lives),
            None => (String::new(), 0, Duration::ZERO),
        };
        let answer = &admitted.answer;
        Ok(Response::new(AdmitResponse {
            decision: Some(decision(answer)),
            lease_id,
            lease_expires_at,
            binding_axis: axis_name(answer.binding_axis),
            policy_denied: answer.policy_denied,
            lease_for_ms: millis_down(lives),
            waited_ms: millis_down(admitted.waited),
            reserved: signed(admitted.reserved),
        }))
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        let (caller, ReleaseRequest { lease_id, dropped, actual_cost, ignored, latency_ms }) =
            self.from(request);
        caller.may_use(Endpoint::Admit).map_err(status)?;
        let actual_cost = actual_cost.map(|cost| {
            u64::try_from(cost)
                .map_err(|_| Status::invalid_argument("invalid actual_cost: expected 0 or more"))
        });
        let latency = u64::try_from(latency_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis);
        let how = Ended { dropped, ignored, actual_cost: actual_cost.transpose()?, latency };
        // An unknown or expired lease and one of another owner get the same response: empty.
        if let Some(lease) = lease_id::read(&lease_id) {
            self.engine.release(caller.principal(), lease, how);
        }
        Ok(Response::new(ReleaseResponse {}))
    }

    async fn heartbeat(
        &self,
        request: Request<HeartbeatRequest>,
    ) -> Result<Response<HeartbeatResponse>, Status> {
        let (caller, HeartbeatRequest { lease_ids }) = self.from(request);
        caller.may_use(Endpoint::Admit).map_err(status)?;
        if lease_ids.len() > HEARTBEATS_MAX {
            return Err(Status::invalid_argument(format!(
                "too many leases: at most {HEARTBEATS_MAX} per request"
            )));
        }
        caller.asks_for(lease_ids.len());
        let known: Vec<_> = lease_ids.iter().filter_map(|name| lease_id::read(name)).collect();
        let heartbeats = self.engine.heartbeat(caller.principal(), &known);
        let alive: HashSet<LeaseId> = heartbeats.live.into_iter().collect();
        let lives = |name: &String| lease_id::read(name).is_some_and(|lease| alive.contains(&lease));
        let (live, reclaimed) = lease_ids.into_iter().partition(lives);
        let next_deadline = heartbeats.next_deadline.map_or(0, millis_at);
        Ok(Response::new(HeartbeatResponse { live_ids: live, reclaimed_ids: reclaimed, next_deadline }))
    }

    type SessionStream = Empty<Result<SessionResponse, Status>>;

    /// Reports that there are no sessions: a server routes them to `SessionApi`.
    async fn session(
        &self,
        _: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        Err(Status::unimplemented("no sessions here: use the unary methods"))
    }
}

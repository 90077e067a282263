//! The JSON routes for programs.

use std::collections::HashSet;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::State;
use axum::response::IntoResponse;
use http::{Request, Response, StatusCode};
use tower::Service;

use super::HttpApi;
use super::body::{Asked, json};
use super::problem::Problem;
use super::wire::{
    AdmitRequest, Admitted, CheckManyRequest, CheckRequest, CostHint, DebitRequest, Decided, DecidedMany,
    Done, ForecastRequest, Forecasted, HeartbeatRequest, Lent, PeekRequest, ReleaseRequest, Renewed,
    ReserveRequest, at, number, unsigned,
};
use crate::api::debit_id::{self, Stream};
use crate::api::fair_use::Whole;
use crate::api::{grpc, lease_id};
use crate::engine::{Ended, HandBack, PolicyCall, WorkTerms};
use crate::policy::Endpoint;
use crate::wire_format::{calls, class, held, millis_down, slices};

type Answer = Result<Response<String>, Problem>;

/// The route of [`check`], for use without the router.
#[derive(Clone)]
pub(crate) struct CheckRoute(pub(super) HttpApi);

impl Service<Request<Whole>> for CheckRoute {
    type Response = axum::response::Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Whole>) -> Self::Future {
        let api = self.0.clone();
        Box::pin(async move {
            let answer = match Asked::read_whole(request, &api).await {
                Ok(asked) => check_one(&api, &asked).await,
                Err(problem) => Err(problem),
            };
            Ok(answer.into_response())
        })
    }
}

pub(super) async fn check(State(api): State<HttpApi>, asked: Asked<CheckRequest>) -> Answer {
    check_one(&api, &asked).await
}

/// Checks one key.
pub(super) async fn check_one(api: &HttpApi, asked: &Asked<CheckRequest>) -> Answer {
    let CheckRequest { policy, key, cost, keys } = &asked.body;
    let others = slices(keys);
    asked.caller.may(Endpoint::Check, policy, key.as_bytes())?;
    asked.caller.may_each(Endpoint::Check, policy, &others)?;
    let ask = PolicyCall { policy, key: key.as_bytes(), others: &others, cost: units(*cost) };
    let answer = api.engine.check(ask).await?.decided()?;
    asked.caller.got([&answer]);
    Ok(asked.answer(&answer, &Decided { decision: (&answer).into() }))
}

/// Checks many keys. Always 200: one status cannot report several denials.
pub(super) async fn check_many(State(api): State<HttpApi>, asked: Asked<CheckManyRequest>) -> Answer {
    let CheckManyRequest { policy, keys, cost, others } = &asked.body;
    let others: Vec<_> = others.iter().map(Vec::as_slice).collect();
    let calls = calls(keys, &others)?;
    asked.caller.may_use(Endpoint::Check)?;
    for keys in &calls {
        asked.caller.may_each(Endpoint::Check, policy, keys)?;
    }
    let answers = api.engine.check_parts(asked.caller.turn(), policy, &calls, units(*cost)).await?;
    asked.caller.got(&answers);
    Ok(json(StatusCode::OK, &DecidedMany { decisions: answers.iter().map(Into::into).collect() }))
}

pub(super) async fn peek(State(api): State<HttpApi>, asked: Asked<PeekRequest>) -> Answer {
    let PeekRequest { policy, key, keys } = &asked.body;
    let others = slices(keys);
    asked.caller.may(Endpoint::Peek, policy, key.as_bytes())?;
    asked.caller.may_each(Endpoint::Peek, policy, &others)?;
    let ask = PolicyCall { policy, key: key.as_bytes(), others: &others, cost: 1 };
    let answer = api.engine.peek(ask).await?.decided()?;
    Ok(asked.answer(&answer, &Decided { decision: (&answer).into() }))
}

pub(super) async fn forecast(State(api): State<HttpApi>, asked: Asked<ForecastRequest>) -> Answer {
    let ForecastRequest { policy, key, cost, keys } = &asked.body;
    let others = slices(keys);
    asked.caller.may(Endpoint::Peek, policy, key.as_bytes())?;
    asked.caller.may_each(Endpoint::Peek, policy, &others)?;
    let ask = PolicyCall { policy, key: key.as_bytes(), others: &others, cost: units(*cost) };
    let forecast = api.engine.forecast(ask).await?;
    Ok(json(StatusCode::OK, &Forecasted { forecast: forecast.into() }))
}

pub(super) async fn debit(State(api): State<HttpApi>, asked: Asked<DebitRequest>) -> Answer {
    let DebitRequest { policy, key, tokens, stream, number, lease_id: lease, keys } = &asked.body;
    let tokens = units(*tokens);
    let answer = if lease.is_empty() {
        let others = slices(keys);
        asked.caller.may(Endpoint::Debit, policy, key.as_bytes())?;
        asked.caller.may_each(Endpoint::Debit, policy, &others)?;
        let name = debit_id::name(Stream::Digits(stream), *number)?;
        api.engine
            .debit(PolicyCall { policy, key: key.as_bytes(), others: &others, cost: tokens }, name)
            .await?
    } else {
        let lease =
            lease_id::read(lease).ok_or_else(|| Problem::bad("invalid lease_id: not issued by admit"))?;
        let (policy, keys) = api.engine.lease_of(asked.caller.principal(), lease)?;
        asked.caller.may_each(Endpoint::Debit, &policy, &held(&keys))?;
        api.engine.debit_held(asked.caller.principal(), lease, tokens).await?
    };
    asked.caller.got([&answer]);
    let answer = answer.decided()?;
    Ok(asked.answer(&answer, &Decided { decision: (&answer).into() }))
}

pub(super) async fn admit(State(api): State<HttpApi>, asked: Asked<AdmitRequest>) -> Answer {
    let AdmitRequest { policy, key, cost, hold, value, keys, wait_ms, priority, hint } = &asked.body;
    let others = slices(keys);
    asked.caller.may(Endpoint::Admit, policy, key.as_bytes())?;
    asked.caller.may_each(Endpoint::Admit, policy, &others)?;
    let ask = PolicyCall { policy, key: key.as_bytes(), others: &others, cost: units(*cost) };
    let hold = (*hold > 0).then(|| Duration::from_millis(*hold).as_secs_f64());
    let (value, wait) = (units(*value) as f64, Duration::from_millis(*wait_ms));
    let learned = (*cost == 0).then(|| hint.as_ref().map_or_else(Default::default, CostHint::read));
    let terms = WorkTerms { value, hold, wait, priority: class(*priority), learned };
    let (who, turn) = (asked.caller.principal(), asked.caller.turn());
    let admitted = api.engine.admit_in_turn(who, ask, terms, turn).await?;
    asked.caller.got([&admitted.answer]);
    admitted.answer.decided()?;
    let body = Admitted {
        decision: (&admitted.answer).into(),
        lease_id: admitted.lease.map(|held| lease_id::written(held.id)).unwrap_or_default(),
        lease_expires_at: admitted.lease.map_or(0, |held| at(held.until)),
        lease_for_ms: admitted.lease.map_or(0, |held| unsigned(millis_down(held.lives))),
        waited_ms: unsigned(millis_down(admitted.waited)),
        reserved: number(admitted.reserved),
    };
    Ok(asked.answer(&admitted.answer, &body))
}

/// Releases an admission. One that is unknown, expired or another owner's gets the same response as a held one: empty.
pub(super) async fn release(State(api): State<HttpApi>, asked: Asked<ReleaseRequest>) -> Answer {
    let ReleaseRequest { lease_id: held, dropped, actual_cost, ignored, latency_ms } = &asked.body;
    asked.caller.may_use(Endpoint::Admit)?;
    let latency = (*latency_ms > 0).then(|| Duration::from_millis(*latency_ms));
    let how = Ended { dropped: *dropped, ignored: *ignored, actual_cost: *actual_cost, latency };
    if let Some(lease) = lease_id::read(held) {
        api.engine.release(asked.caller.principal(), lease, how);
    }
    Ok(json(StatusCode::OK, &Done {}))
}

pub(super) async fn heartbeat(State(api): State<HttpApi>, asked: Asked<HeartbeatRequest>) -> Answer {
    asked.caller.may_use(Endpoint::Admit)?;
    asked.caller.asks_for(asked.body.lease_ids.len());
    let known: Vec<_> = asked.body.lease_ids.iter().filter_map(|name| lease_id::read(name)).collect();
    let heartbeats = api.engine.heartbeat(asked.caller.principal(), &known);
    let live: HashSet<_> = heartbeats.live.into_iter().collect();
    let is_live = |name: &String| lease_id::read(name).is_some_and(|lease| live.contains(&lease));
    let (live_ids, reclaimed_ids) = asked.body.lease_ids.into_iter().partition(is_live);
    let next_deadline = heartbeats.next_deadline.map_or(0, at);
    Ok(json(StatusCode::OK, &Renewed { live_ids, reclaimed_ids, next_deadline }))
}

/// Leases units of a rate, which the client spends locally.
pub(super) async fn reserve(State(api): State<HttpApi>, asked: Asked<ReserveRequest>) -> Answer {
    let ReserveRequest { policy, key, wants, least, returned, keys } = &asked.body;
    let others = slices(keys);
    asked.caller.may(Endpoint::Reserve, policy, key.as_bytes())?;
    asked.caller.may_each(Endpoint::Reserve, policy, &others)?;
    let back = match returned {
        Some(back) => {
            let loan = lease_id::read(&back.return_id);
            let loan = loan.ok_or_else(|| Problem::bad("invalid return_id: not issued by reserve"))?;
            Some(HandBack { loan: loan.0, units: back.units })
        }
        None => None,
    };
    // A request that only returns units wants none.
    let wants = if back.is_some() { *wants } else { units(*wants) };
    if wants > 0 && *least > wants {
        return Err(Problem::bad("invalid least: greater than wants"));
    }
    let ask = PolicyCall { policy, key: key.as_bytes(), others: &others, cost: wants };
    let granted = api.engine.reserve_at_least(asked.caller.principal(), ask, units(*least), back).await?;
    Ok(json(StatusCode::OK, &Lent { lease: grpc::lease(&granted).into() }))
}

/// Replaces zero by one, as in every wire format.
fn units(units: u64) -> u64 {
    units.max(1)
}

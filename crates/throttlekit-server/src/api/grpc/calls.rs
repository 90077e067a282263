//! Calls that unary methods and sessions decide alike: rights, validation, engine.

use std::time::Duration;

use throttlekit::Retry;
use throttlekit_proto::v1::{
    CheckRequest, CostHint, DebitRequest, Decision, PeekRequest, Retry as RetryName,
};
use tonic::Status;

use super::status::status;
use crate::access::Caller;
use crate::api::debit_id::{self, Stream};
use crate::api::lease_id;
use crate::engine::{self, Answered, Engine, PolicyCall, Refusal};
use crate::policy::Endpoint;
use crate::wire_format::{axis_name, held, limit_name, millis_at, overshoot, retry_millis, signed, slices};

/// Returns the call of a check, if its caller may make it. `others` are the further keys of the request.
pub(super) fn check_call<'a>(
    caller: &Caller,
    request: &'a CheckRequest,
    others: &'a [&'a [u8]],
) -> Result<PolicyCall<'a>, Status> {
    let CheckRequest { policy, key, cost, .. } = request;
    caller.may(Endpoint::Check, policy, key.as_bytes()).map_err(status)?;
    caller.may_each(Endpoint::Check, policy, others).map_err(status)?;
    Ok(PolicyCall { policy, key: key.as_bytes(), others, cost: units("cost", *cost)? })
}

/// Decides a check.
pub(super) async fn check(
    engine: &Engine,
    caller: &Caller,
    request: &CheckRequest,
) -> Result<Answered, Status> {
    let others = slices(&request.keys);
    let call = check_call(caller, request, &others)?;
    engine.check(call).await.and_then(Answered::decided).map_err(status)
}

/// Returns the state of a key.
pub(super) async fn peek(
    engine: &Engine,
    caller: &Caller,
    request: &PeekRequest,
) -> Result<Answered, Status> {
    let PeekRequest { policy, key, keys } = request;
    let others = slices(keys);
    caller.may(Endpoint::Peek, policy, key.as_bytes()).map_err(status)?;
    caller.may_each(Endpoint::Peek, policy, &others).map_err(status)?;
    let call = PolicyCall { policy, key: key.as_bytes(), others: &others, cost: 1 };
    engine.peek(call).await.and_then(Answered::decided).map_err(status)
}

/// Charges a debit.
pub(super) async fn debit(
    engine: &Engine,
    caller: &Caller,
    request: &DebitRequest,
) -> Result<Answered, Status> {
    let DebitRequest { policy, key, tokens, stream, number, lease_id, keys } = request;
    let tokens = units("tokens", *tokens)?;
    let answer = if lease_id.is_empty() {
        let others = slices(keys);
        caller.may(Endpoint::Debit, policy, key.as_bytes()).map_err(status)?;
        caller.may_each(Endpoint::Debit, policy, &others).map_err(status)?;
        let name = debit_id::name(Stream::Bytes(stream), *number).map_err(status)?;
        let call = PolicyCall { policy, key: key.as_bytes(), others: &others, cost: tokens };
        engine.debit(call, name).await
    } else {
        match lease_id::read(lease_id) {
            Some(lease) => {
                let (policy, keys) = engine.lease_of(caller.principal(), lease).map_err(status)?;
                caller.may_each(Endpoint::Debit, &policy, &held(&keys)).map_err(status)?;
                engine.debit_held(caller.principal(), lease, tokens).await
            }
            None => Err(Refusal::Invalid("invalid lease_id: not issued by Admit".into())),
        }
    };
    answer.and_then(Answered::decided).map_err(status)
}

/// Parses a number of units: zero means one, and a negative number is an error.
pub(super) fn units(name: &str, units: i64) -> Result<u64, Status> {
    match u64::try_from(units) {
        Ok(0) => Ok(1),
        Ok(units) => Ok(units),
        Err(_) => Err(Status::invalid_argument(format!(
            "invalid {name} {units}: expected at least 1, or 0 for the default of 1"
        ))),
    }
}

/// Parses what is known of a cost in advance.
pub(super) fn cost_hint(hint: Option<&CostHint>) -> Result<engine::CostHint<'_>, Status> {
    let Some(CostHint { input_tokens, max_tokens, class }) = hint else {
        return Ok(engine::CostHint::default());
    };
    let tokens = |name: &str, tokens: i64| {
        let wrong = |_| Status::invalid_argument(format!("invalid {name} {tokens}: expected 0 or more"));
        u64::try_from(tokens).map_err(wrong)
    };
    let max_tokens = max_tokens.map(|max| tokens("max_tokens", max)).transpose()?;
    Ok(engine::CostHint { input_tokens: tokens("input_tokens", *input_tokens)?, max_tokens, class })
}

/// Parses a number of milliseconds.
pub(super) fn millis(name: &str, millis: i64) -> Result<Duration, Status> {
    let wrong = |_| Status::invalid_argument(format!("invalid {name}: expected 0 or more"));
    u64::try_from(millis).map(Duration::from_millis).map_err(wrong)
}

/// Returns the advice on the wire.
pub(super) fn retry_name(retry: Retry) -> RetryName {
    match retry {
        Retry::Now => RetryName::Now,
        Retry::After(_) => RetryName::After,
        Retry::OnRelease => RetryName::OnRelease,
        Retry::Never => RetryName::Never,
    }
}

/// Decides a check, if that needs no store.
pub(super) fn check_now(
    engine: &Engine,
    caller: &Caller,
    request: &CheckRequest,
) -> Option<Result<Answered, Status>> {
    let others = slices(&request.keys);
    match check_call(caller, request, &others) {
        Ok(call) => Some(engine.check_now(&call)?.and_then(Answered::decided).map_err(status)),
        Err(refused) => Some(Err(refused)),
    }
}

/// Encodes a decision.
pub(super) fn decision(answer: &Answered) -> Decision {
    let decided = &answer.decision;
    Decision {
        allowed: decided.allowed,
        limit: signed(decided.limit),
        remaining: signed(decided.remaining),
        reset_at: millis_at(decided.reset_at),
        retry_after_ms: retry_millis(decided.retry_after),
        retry: retry_name(decided.retry_after).into(),
        guarantee: answer.guarantee.label().into(),
        overshoot_bound: overshoot(answer.guarantee),
        binding_axis: axis_name(answer.binding_axis),
        shadow_denied: answer.shadow_denied,
        limit_name: limit_name(answer),
    }
}

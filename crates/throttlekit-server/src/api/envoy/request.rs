//! Requests of Envoy, converted to requests to the engine.

use std::future::Future;
use std::pin::Pin;

use throttlekit::store::StoreError;
use throttlekit_proto::envoy::{RateLimitDescriptor, RateLimitRequest};
use tonic::Status;

use super::key::fitted;
use super::limit_override::LimitOverride;
use super::matcher::Found;
use super::rules::Table;
use crate::access::Caller;
use crate::engine::{Answered, Engine, PolicyCall, Refusal};
use crate::policy::Endpoint;

/// Maximum number of descriptors of one request.
pub const DESCRIPTORS_MAX: usize = 64;
/// Maximum number of units of one descriptor. More exceed every limit, and count as this many.
const UNITS_MAX: u64 = i64::MAX as u64;
/// Maximum length of a domain, in bytes.
pub const DOMAIN_BYTES_MAX: usize = 1_024;

/// Charge that one descriptor requests.
#[derive(Debug, PartialEq)]
pub(super) enum Charge<'a> {
    /// None: no rule matches.
    NoRule,
    /// None: a rule allows it.
    Unlimited,
    /// None: another descriptor of the request replaces its policy.
    Replaced,
    /// A charge to a policy.
    Of { policy: &'a str, keys: Vec<Vec<u8>>, how: How, own_limit: Option<LimitOverride>, rule: usize },
}

/// Kind of a request to a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum How {
    /// Peek, which charges nothing.
    Look,
    /// Check of `n` units.
    Check(u64),
    /// Debit of `n` tokens.
    Debit(u64),
    /// Charge of `n` units, whatever is left.
    Charge(u64),
    /// Return of `n` units.
    Refund(u64),
}

type Later<'a> = Pin<Box<dyn Future<Output = Result<Answered, Refusal>> + Send + 'a>>;

/// Result of one descriptor.
pub(super) enum Judged {
    /// Allowed without a policy.
    Passes,
    /// A policy decided.
    Answered(Answered),
    /// Refused, so it is not allowed: the caller lacks the right, no policy can count it, or it is too large.
    Refused,
    /// No decision, for a reason that no client of the proxy can cause.
    Failed(Refusal),
}

impl Judged {
    /// Returns the response of a policy.
    pub(super) fn answer(&self) -> Option<&Answered> {
        match self {
            Self::Answered(answer) => Some(answer),
            Self::Passes | Self::Refused | Self::Failed(_) => None,
        }
    }
}

/// Rejects what only a misconfigured proxy sends. No client of the proxy can cause any of it: Envoy allows a request
/// whose response is an error.
pub(super) fn check_form(request: &RateLimitRequest) -> Result<(), Status> {
    let wrong = |why: String| Err(Status::invalid_argument(why));
    if request.domain.is_empty() || request.domain.len() > DOMAIN_BYTES_MAX {
        return wrong(format!(
            "a request needs a domain of at most {DOMAIN_BYTES_MAX} bytes: set `domain` of the filter"
        ));
    }
    if request.descriptors.is_empty() || request.descriptors.len() > DESCRIPTORS_MAX {
        return wrong(format!("a request needs 1 to {DESCRIPTORS_MAX} descriptors: send fewer actions"));
    }
    Ok(())
}

impl<'a> Charge<'a> {
    /// Returns the charge of each descriptor of a request.
    pub(super) fn all(table: &'a Table, request: &RateLimitRequest) -> Vec<Self> {
        let found: Vec<_> =
            request.descriptors.iter().map(|descriptor| table.find(&request.domain, descriptor)).collect();
        let places = found.iter().enumerate().filter_map(|(place, found)| Some((place, found.as_ref()?)));
        let replaced: Vec<(usize, &str)> = places
            .flat_map(|(place, found)| found.replaces.iter().map(move |name| (place, &**name)))
            .collect();
        let is_replaced = |place: usize, found: &Found<'_>| {
            replaced.iter().any(|(by, name)| *by != place && found.policy == Some(*name))
        };
        let each = request.descriptors.iter().zip(found).enumerate();
        each.map(|(place, (descriptor, found))| match found {
            None => Self::NoRule,
            Some(found) if is_replaced(place, &found) => Self::Replaced,
            Some(found) => Self::of(table, request, descriptor, found),
        })
        .collect()
    }

    fn of(
        table: &Table,
        request: &RateLimitRequest,
        descriptor: &RateLimitDescriptor,
        found: Found<'a>,
    ) -> Self {
        let Some(policy) = found.policy else { return Self::Unlimited };
        let units = descriptor.hits_addend.unwrap_or_else(|| request.hits_addend.max(1).into());
        let units = units.min(UNITS_MAX);
        let counting = found.counting;
        let how = match units {
            0 => How::Look,
            units if descriptor.is_negative_hits && counting.refunds => How::Refund(units),
            // A refund belongs to the window that was charged, by the receipt of its admission. Envoy sends none, and a
            // refund to another window would allow more than the limit. Charging it would be worse than ignoring it.
            _ if descriptor.is_negative_hits => How::Look,
            tokens if table.told(policy).is_some_and(|told| told.is_budget) => How::Debit(tokens),
            units if counting.debit => How::Charge(units),
            units => How::Check(units),
        };
        let own_limit = LimitOverride::of(descriptor).filter(|_| counting.limit_override);
        Self::Of { policy, keys: found.keys, how, own_limit, rule: found.rule }
    }

    /// Checks whether the limit of the descriptor is used.
    pub(super) fn has_own_limit(&self) -> bool {
        matches!(self, Self::Of { own_limit: Some(_), .. })
    }

    /// Checks whether it returns units.
    pub(super) fn is_refund(&self) -> bool {
        matches!(self, Self::Of { how: How::Refund(_), .. })
    }

    /// Requests a decision, if the caller may use these keys as its clients wrote them.
    pub(super) async fn ask(&self, caller: &Caller, engine: &Engine) -> Judged {
        let Self::Of { policy, keys, how, own_limit, .. } = self else { return Judged::Passes };
        if !keys.iter().all(|key| caller.allows(Endpoint::Envoy, policy, key)) {
            return Judged::Refused;
        }
        let keys: Vec<_> = keys.iter().map(|key| fitted(key)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let Some((key, others)) = keys.split_first() else { return Judged::Passes };
        let ask = |cost| PolicyCall { policy, key, others, cost };
        if own_limit.is_some_and(|limit| limit.requests == 0) {
            return Judged::Refused;
        }
        let own_limit = own_limit.map(LimitOverride::own_limit);
        let answer = match *how {
            How::Check(units) if own_limit.is_none() => engine.check(ask(units)).await,
            how => {
                let answer: Later<'_> = match how {
                    How::Look => Box::pin(engine.peek_by(ask(1), own_limit)),
                    How::Check(units) => Box::pin(engine.check_by(ask(units), own_limit)),
                    How::Debit(tokens) => Box::pin(engine.debit(ask(tokens), None)),
                    How::Charge(units) => Box::pin(engine.charge(ask(units))),
                    How::Refund(units) => Box::pin(engine.refund(ask(units))),
                };
                answer.await
            }
        };
        match answer {
            Ok(answer) => Judged::Answered(answer),
            // A policy with slots, which loading the file warned about; or one that a reload removed.
            Err(Refusal::Unsupported(_) | Refusal::UnknownPolicy(_)) => Judged::Passes,
            Err(
                Refusal::Invalid(_)
                | Refusal::Forbidden(_)
                | Refusal::Outage
                | Refusal::Store(StoreError::Overloaded),
            ) => Judged::Refused,
            Err(failure @ (Refusal::TooMany(_) | Refusal::Store(_))) => Judged::Failed(failure),
        }
    }
}

//! From a request of Envoy's to asks of the engine.

use std::future::Future;
use std::pin::Pin;

use throttlekit_proto::envoy::{RateLimitDescriptor, RateLimitRequest};
use tonic::Status;

use super::table::Table;
use crate::engine::{Answered, Ask, Engine, Refusal};

/// The most descriptors of one request.
pub const DESCRIPTORS_MAX: usize = 64;
/// The most entries of one descriptor.
pub const ENTRIES_MAX: usize = 16;
/// The longest domain, or key of an entry.
pub const NAME_BYTES_MAX: usize = 1_024;
/// The longest value of an entry: a header of a request fits.
pub const VALUE_BYTES_MAX: usize = 8_192;

/// What one descriptor asks.
#[derive(Debug, PartialEq)]
pub(super) enum Charge<'a> {
    /// Nothing: no rule matches.
    NoRule,
    /// Nothing: a rule says that it passes.
    Unlimited,
    /// This of a policy.
    Of { policy: &'a str, keys: Vec<String>, how: How },
}

/// How a policy is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum How {
    /// Without charging anything.
    Look,
    /// For so many units.
    Check(u64),
    /// So many tokens were used.
    Debit(u64),
}

type Later<'a> = Pin<Box<dyn Future<Output = Result<Answered, Refusal>> + Send + 'a>>;

/// Refuses what is too large to be a descriptor of anything.
pub(super) fn judge(request: &RateLimitRequest) -> Result<(), Status> {
    let wrong = |why: &str| Err(Status::invalid_argument(why));
    if request.domain.is_empty() || request.domain.len() > NAME_BYTES_MAX {
        return wrong("a request has a domain, of 1024 bytes at the most");
    }
    if request.descriptors.is_empty() || request.descriptors.len() > DESCRIPTORS_MAX {
        return wrong("a request has 1 to 64 descriptors");
    }
    for descriptor in &request.descriptors {
        if descriptor.entries.len() > ENTRIES_MAX {
            return wrong("a descriptor has at most 16 entries");
        }
        let fits = |text: &str, most| text.len() <= most;
        if !descriptor
            .entries
            .iter()
            .all(|entry| fits(&entry.key, NAME_BYTES_MAX) && fits(&entry.value, VALUE_BYTES_MAX))
        {
            return wrong("a key of an entry has at most 1024 bytes and a value 8192");
        }
        if descriptor.hits_addend.is_some_and(|units| i64::try_from(units).is_err()) {
            return wrong("an addend is below 2^63");
        }
    }
    Ok(())
}

impl<'a> Charge<'a> {
    pub(super) fn of(table: &'a Table, request: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> Self {
        let Some(found) = table.find(&request.domain, descriptor) else { return Self::NoRule };
        let Some(policy) = found.policy else { return Self::Unlimited };
        let units = descriptor.hits_addend.unwrap_or_else(|| request.hits_addend.max(1).into());
        let how = match units {
            0 => How::Look,
            // What is given back goes into the window it was charged to, by the receipt of its admission. Envoy sends none,
            // and into another window it would let pass more than the limit. Charging it would be worse than keeping it.
            _ if descriptor.is_negative_hits => How::Look,
            tokens if table.told(policy).is_some_and(|told| told.is_budget) => How::Debit(tokens),
            units => How::Check(units),
        };
        Self::Of { policy, keys: found.keys, how }
    }

    /// The policy and the keys that a caller must be allowed to use.
    pub(super) fn target(&self) -> Option<(&str, Vec<&[u8]>)> {
        match self {
            Self::Of { policy, keys, .. } => Some((policy, keys.iter().map(String::as_bytes).collect())),
            Self::NoRule | Self::Unlimited => None,
        }
    }

    /// Asks. Nothing, where there is nobody to ask.
    pub(super) async fn ask(&self, engine: &Engine) -> Result<Option<Answered>, Refusal> {
        let Self::Of { policy, keys, how } = self else { return Ok(None) };
        let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
        let Some((key, others)) = keys.split_first() else { return Ok(None) };
        let ask = |cost| Ask { policy, key, others, cost };
        let answer: Later<'_> = match *how {
            How::Look => Box::pin(engine.peek(ask(1))),
            How::Check(units) => Box::pin(engine.check(ask(units))),
            How::Debit(tokens) => Box::pin(engine.debit(ask(tokens), None)),
        };
        match answer.await {
            Ok(answer) => Ok(Some(answer)),
            // A policy with slots, of which whoever loaded the file was warned; or one that went with a new file.
            Err(Refusal::Unsupported(_) | Refusal::UnknownPolicy(_)) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }
}

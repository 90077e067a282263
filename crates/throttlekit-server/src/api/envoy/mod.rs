//! Envoy's rate limit service, version 3; external authorization is in `authorization`.
//!
//! A request has descriptors; each matches a rule, and through it a policy and a key. Descriptors are charged
//! independently, as envoyproxy/ratelimit charges them: the charge of one stays though another is over its limit.
//! Several limits that must be charged atomically belong in one policy.

mod authorization;
mod key;
mod limit_override;
mod matcher;
mod metadata;
mod request;
mod response;
mod rules;
mod statistics;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use hyper::body::Bytes;
use throttlekit::clock::{Clock, WallClock};
use throttlekit::internals::Mutex;
use throttlekit_proto::envoy::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};
use throttlekit_proto::envoy::{Code, RateLimitRequest, RateLimitResponse};
use tonic::{Request, Response, Status};

pub use authorization::EnvoyAuthorization;
pub use key::joined;
pub use matcher::{Counting, Found, Matcher};
pub use request::{DESCRIPTORS_MAX, DOMAIN_BYTES_MAX};

use crate::access::Caller;
use crate::api::grpc::status;
use crate::api::unary::{Method, framed};
use crate::engine::Engine;
use crate::limits::ENVOY_BYTES_MAX;
use crate::policy::Endpoint;
use crate::telemetry::{EnvoyRuleStats, EnvoyStats};
use request::{Charge, Judged};
use response::Told;
use rules::Table;
use statistics::RuleCounts;

/// The service. Cheap to clone.
#[derive(Clone)]
pub struct EnvoyRls {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Engine,
    table: ArcSwap<Table>,
    /// Held to compile a new file once, however many requests see it.
    compiling: Mutex<()>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    unmatched: AtomicU64,
    overrides_ignored: AtomicU64,
    refunds_ignored: AtomicU64,
    refused: AtomicU64,
}

impl EnvoyRls {
    /// Creates the service of this engine. Its rules are those of the current file.
    pub fn new(engine: Engine) -> Self {
        let table = ArcSwap::from_pointee(Table::of(engine.file(), &RuleCounts::default()));
        let shared = Shared { engine, table, compiling: Mutex::default(), counts: Counts::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Converts it to a service for a gRPC server.
    pub fn into_service(self) -> RateLimitServiceServer<Self> {
        RateLimitServiceServer::new(self).max_decoding_message_size(ENVOY_BYTES_MAX)
    }

    /// Returns its counters.
    pub fn stats(&self) -> EnvoyStats {
        let Counts { requests, unmatched, overrides_ignored, refunds_ignored, refused } = &self.shared.counts;
        EnvoyStats {
            requests: requests.load(Relaxed),
            unmatched: unmatched.load(Relaxed),
            overrides_ignored: overrides_ignored.load(Relaxed),
            refunds_ignored: refunds_ignored.load(Relaxed),
            refused: refused.load(Relaxed),
        }
    }

    /// Returns the counts of each rule of the current file.
    pub fn rule_stats(&self) -> Vec<EnvoyRuleStats> {
        self.table().counts.stats()
    }

    /// Returns the rules of the current file, compiled once for each file.
    fn table(&self) -> Arc<Table> {
        let file = self.shared.engine.file();
        let table = self.shared.table.load_full();
        if Arc::ptr_eq(&table.file, &file) {
            return table;
        }
        let _alone = self.shared.compiling.lock();
        let file = self.shared.engine.file();
        let table = self.shared.table.load_full();
        if Arc::ptr_eq(&table.file, &file) {
            return table;
        }
        let table = Arc::new(Table::of(file, &table.counts));
        self.shared.table.store(table.clone());
        table
    }

    /// Decides about every descriptor of a request, independently of the others.
    ///
    /// An error means that a proxy is misconfigured, or that a descriptor got no decision and none was over its limit.
    /// Envoy's `failure_mode_deny` then determines the outcome, which is to allow the request by default. So no client
    /// of the proxy can cause an error: a descriptor that cannot be counted is over its limit.
    pub async fn decide(
        &self,
        caller: &Caller,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, Status> {
        // First: a caller without the right learns nothing about domains and rules.
        caller.may_use(Endpoint::Envoy).map_err(status)?;
        if caller.is_crowded() {
            return Ok(self.over_limit());
        }
        request::check_form(request)?;
        let table = self.table();
        let charges = Charge::all(&table, request);
        self.count(request, &charges);
        if caller.turn_for(charges.len()).await.is_err() {
            return Ok(self.over_limit());
        }
        let engine = &self.shared.engine;
        let judged = match &charges[..] {
            [one] => vec![one.ask(caller, engine).await],
            several => join_all(several.iter().map(|charge| charge.ask(caller, engine))).await,
        };
        caller.got(judged.iter().filter_map(Judged::answer));
        let told: Vec<_> =
            charges.iter().zip(judged).map(|(charge, judged)| Told { charge, judged }).collect();
        told.iter().for_each(|told| told.count(&table.counts));
        let refused = told.iter().filter(|told| matches!(told.judged, Judged::Refused)).count();
        self.shared.counts.refused.fetch_add(refused as u64, Relaxed);
        let response = response::response(&table, table.adds(&request.domain), &told, WallClock.now());
        let failure = told.into_iter().find_map(Told::failure);
        match failure.filter(|_| response.overall_code() == Code::Ok) {
            Some(failure) => Err(status(failure)),
            None => Ok(response),
        }
    }

    /// Creates the response to a request that gets no turn: an error would allow it.
    fn over_limit(&self) -> RateLimitResponse {
        self.shared.counts.refused.fetch_add(1, Relaxed);
        RateLimitResponse { overall_code: Code::OverLimit.into(), ..Default::default() }
    }

    fn count(&self, request: &RateLimitRequest, charges: &[Charge<'_>]) {
        let counts = &self.shared.counts;
        let add = |count: &AtomicU64, by: usize| {
            if by > 0 {
                count.fetch_add(by as u64, Relaxed);
            }
        };
        let each = || request.descriptors.iter().zip(charges);
        add(&counts.requests, 1);
        add(&counts.unmatched, charges.iter().filter(|charge| **charge == Charge::NoRule).count());
        let ignored = each().filter(|(one, charge)| one.limit.is_some() && !charge.has_own_limit());
        add(&counts.overrides_ignored, ignored.count());
        let ignored = each().filter(|(one, charge)| one.is_negative_hits && !charge.is_refund());
        add(&counts.refunds_ignored, ignored.count());
    }
}

impl Method for EnvoyRls {
    const PATH: &'static str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    type Request = RateLimitRequest;

    async fn answer(&self, caller: Caller, request: RateLimitRequest) -> Result<Bytes, Status> {
        self.decide(&caller, &request).await.map(|response| framed(&response))
    }
}

#[tonic::async_trait]
impl RateLimitService for EnvoyRls {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let caller = Caller::of(request.extensions(), &self.shared.engine);
        self.decide(&caller, request.get_ref()).await.map(Response::new)
    }
}

//! Conversion of one limiter to a policy.

use std::time::Duration;

use super::super::super::check::{At, Report};
use super::super::super::model::{
    AdaptiveSpec, Algorithm, ConcurrencySpec, CostSpec, EstimatorSpec, FairSpec, FleetSpec, LeaseMode,
    LeaseSpec, Period, PolicySpec, RateSpec, Scope,
};
use super::super::super::span::Span;
use super::super::super::tree::shown;
use super::wire::{Concurrency, FairEscrow, Federated, Limiter, TokenBudget, TwoTier};

/// Limits of an adaptive limit of that server that states none.
const MIN_LIMIT: u32 = 4;
const MAX_LIMIT: u32 = 512;

/// A limiter while it is imported.
pub(super) struct OneLimiter<'i> {
    pub(super) name: &'i str,
    pub(super) limiter: &'i Limiter,
    pub(super) at: At,
    pub(super) report: &'i mut Report,
    pub(super) notes: &'i mut Vec<String>,
}

impl OneLimiter<'_> {
    /// Returns the policy; after an error, a part of it.
    pub(super) fn policy(mut self) -> PolicySpec {
        self.check_blocks();
        let rate = self.rate();
        if self.limiter.prefix.is_some() {
            self.note("`prefix` is ignored: keys in the store are named by the policy");
        }
        let limiter = self.limiter;
        let mut policy = PolicySpec::default();
        if let Some(two_tier) = &limiter.two_tier {
            policy.rate = rate.map(|rate| self.leased(rate, two_tier)).into_iter().collect();
        } else if let Some(federated) = &limiter.federated {
            policy.rate = rate.map(|rate| self.federated(rate, federated)).into_iter().collect();
            policy.fleet = Some(FleetSpec::default());
        } else {
            policy.rate = rate.into_iter().collect();
        }
        policy.cost = limiter
            .token_budget
            .iter()
            .chain(&limiter.fleet_budget)
            .map(|budget| self.cost(budget))
            .collect();
        policy.concurrency = match (&limiter.concurrency, &limiter.distributed_concurrency) {
            (Some(slots), _) => Some(self.concurrency("concurrency", slots, Scope::Instance)),
            (_, Some(slots)) => Some(self.concurrency("distributedConcurrency", slots, Scope::Fleet)),
            (None, None) => None,
        };
        policy.fair = match (&limiter.fair_escrow, &limiter.federated_fair_escrow) {
            (Some(fair), _) => Some(self.fair(fair, false)),
            (_, Some(fair)) => Some(self.fair(fair, true)),
            (None, None) => None,
        };
        policy
    }

    /// Reports what that server reports: several blocks, a strategy where none belongs, or none where one is needed.
    fn check_blocks(&mut self) {
        let limiter = self.limiter;
        // Each block, and whether a strategy must be beside it (`true`), may be (`None`) or must not (`false`).
        let blocks = [
            ("tokenBudget", limiter.token_budget.is_some(), Some(false)),
            ("fleetBudget", limiter.fleet_budget.is_some(), Some(false)),
            ("twoTier", limiter.two_tier.is_some(), Some(true)),
            ("concurrency", limiter.concurrency.is_some(), None),
            ("distributedConcurrency", limiter.distributed_concurrency.is_some(), None),
            ("fairEscrow", limiter.fair_escrow.is_some(), Some(false)),
            ("federatedFairEscrow", limiter.federated_fair_escrow.is_some(), Some(false)),
            ("federated", limiter.federated.is_some(), Some(true)),
        ];
        let present: Vec<_> = blocks.iter().filter(|(_, present, _)| *present).collect();
        if let [(first, ..), (second, ..), ..] = present[..] {
            self.wrong(
                second,
                format!("a limiter has one block, and this one has `{first}`: split the limiter"),
            );
        }
        let has_strategy = limiter.strategy.is_some();
        match present.first() {
            None if !has_strategy => self.missing("strategy"),
            Some((block, _, Some(true))) if !has_strategy => {
                self.wrong(block, "needs a strategy beside it: add `strategy`".into());
            }
            Some((block, _, Some(false))) if has_strategy => {
                self.wrong(
                    "strategy",
                    format!("`{block}` has no strategy beside it: move one to another limiter"),
                );
            }
            _ => {}
        }
    }

    fn leased(&mut self, rate: RateSpec, block: &TwoTier) -> RateSpec {
        let lease = match block.mode.as_deref().unwrap_or("leased") {
            "strict" => None,
            "cached-deny" => Some(LeaseSpec { mode: LeaseMode::CachedDeny, ..LeaseSpec::default() }),
            "leased" => Some(LeaseSpec { mode: LeaseMode::Leased, batch: block.batch, hold: None }),
            other => {
                let message = format!("unknown mode `{}`. Modes: strict, cached-deny, leased", shown(other));
                self.wrong("twoTier.mode", message);
                None
            }
        };
        if block.window_coupled == Some(false) {
            self.note("`windowCoupled: false` is ignored: leased units always expire with their window");
        }
        if block.low_water.is_some() || block.return_idle_after_ms.is_some() {
            self.note("`lowWater` and `returnIdleAfterMs` are ignored: the server refills and returns units by itself");
        }
        RateSpec { lease, ..rate }
    }

    /// Converts a global budget. That server counts it in windows from the epoch, whatever the strategy.
    fn federated(&mut self, rate: RateSpec, block: &Federated) -> RateSpec {
        self.regional(block.region.as_ref());
        if block.batch.is_some() || block.prefix.is_some() {
            self.note(
                "`federated.batch` and `federated.prefix` are ignored: clients choose how much they reserve",
            );
        }
        match rate.algorithm {
            Algorithm::SlidingWindow => {
                self.note("`federated` counted the sliding window in fixed windows: it is one here");
                RateSpec { algorithm: Algorithm::FixedWindow, buckets: None, ..rate }
            }
            Algorithm::FixedWindow | Algorithm::Quota => rate,
            _ => {
                self.wrong(
                    "federated",
                    "needs fixedWindow, slidingWindow or quota: change `strategy`".into(),
                );
                rate
            }
        }
    }

    fn cost(&mut self, block: &TokenBudget) -> CostSpec {
        if block.max_keys.is_some() || block.prefix.is_some() {
            self.note("`maxKeys` and `prefix` of the budget are ignored: it is counted on the store");
        }
        CostSpec {
            name: None,
            budget: block.budget,
            per: Period::Span(window(block.window_ms)),
            utc_offset_minutes: 0,
            week_starts: None,
            month_starts: None,
            time_zone: None,
            anchor: None,
            by: vec![0],
        }
    }

    fn concurrency(&mut self, block: &str, slots: &Concurrency, scope: Scope) -> ConcurrencySpec {
        let algorithm = match slots.algorithm.as_deref().unwrap_or("gradient2") {
            "gradient2" => EstimatorSpec::Gradient,
            "aimd" => EstimatorSpec::Aimd,
            other => {
                let message = format!("unknown algorithm `{}`. Algorithms: gradient2, aimd", shown(other));
                self.wrong(&format!("{block}.algorithm"), message);
                EstimatorSpec::Gradient
            }
        };
        let tuned = [&slots.rtt_window, &slots.smoothing, &slots.tolerance, &slots.backoff_ratio];
        if tuned.iter().any(|option| option.is_some()) {
            self.note("`rttWindow`, `smoothing`, `tolerance` and `backoffRatio` are ignored: the estimator is another one");
        }
        let shared = [&slots.aggregate, &slots.prefix, &slots.heartbeat_ms, &slots.on_coordinator_outage];
        if shared.iter().any(|option| option.is_some()) {
            self.note(
                "`aggregate`, `prefix`, `heartbeatMs` and `onCoordinatorOutage` are ignored: without the store, servers \
                 stop granting slots",
            );
        }
        if self.limiter.strategy.is_some() {
            self.note("the rate charges the cost of a call, not 1: send cost 1, or none");
        }
        let (min, max) = (slots.min_limit.unwrap_or(MIN_LIMIT), slots.max_limit.unwrap_or(MAX_LIMIT));
        let limit = slots.initial_limit.unwrap_or(min);
        let adaptive = (min != max).then_some(AdaptiveSpec { min, max, algorithm });
        ConcurrencySpec { limit, scope, adaptive, lease_for: None }
    }

    fn fair(&mut self, block: &FairEscrow, regions: bool) -> FairSpec {
        if regions {
            self.regional(block.region.as_ref());
        }
        if block.key.is_some() || block.prefix.is_some() {
            self.note("`key` and `prefix` of the budget are ignored: it is named by the policy");
        }
        let shown = [&block.cost_room, &block.cost_room_max_keys, &block.cost_room_ring_size, &block.unit];
        if shown.iter().any(|option| option.is_some()) {
            self.note("`costRoom` and `unit` are ignored: `throttlekit top` shows shares without them");
        }
        FairSpec {
            limit: block.limit,
            per: window(block.window_ms),
            weights: block.weights.clone(),
            regions,
            tenants_max: block.max_keys,
        }
    }

    fn regional(&mut self, region: Option<&String>) {
        if let Some(region) = region {
            self.note(&format!(
                "`region` is set for the server, not in the file: start it with --region {}",
                shown(region)
            ));
        }
    }

    pub(super) fn wrong(&mut self, key: &str, message: String) {
        self.report.error(&self.at.then(key), message);
    }

    pub(super) fn missing(&mut self, key: &str) {
        self.report.error(&self.at, format!("missing key `{key}`: add it"));
    }

    fn note(&mut self, text: &str) {
        self.notes.push(format!("{}: {text}", self.name));
    }
}

fn window(millis: u64) -> Span {
    Span(Duration::from_millis(millis))
}

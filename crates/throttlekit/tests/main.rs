//! Tests of the public API.

mod axum_layer;
mod bounded_memory;
mod conformance;
mod fair;
mod fair_clock;
mod guard_tails;
mod guard_threads;
mod isolated_callers;
mod key_capacity;
mod leasing;
mod newcomers;
mod outage;
mod outbound;
mod overload;
mod policy;
#[cfg(feature = "outbound")]
#[expect(unreachable_pub, reason = "shared with the benchmark")]
mod provider;
mod queue;
mod shared_fair;
mod shared_limiter;
mod shared_policy;
mod slots;
mod stores;
mod threads;
mod threads_at_the_cap;
mod token_budget;
mod token_budget_use;
mod wrong_clock;

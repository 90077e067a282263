//! One budget, many tenants, several participants: regions or processes.
//!
//! A [`SharedFairLimiter`] is one participant. It fetches units of the budget as its tenants need them and shares them
//! by weight; requests that find enough units locally take a short lock and do not wait. Its source of units is
//!
//! * one window that all participants share, first come, first served: tenants of one participant share fairly, and
//!   between participants requests are served as they come;
//! * with [`region`](SharedFairLimiterBuilder::region), a [`RegionStore`](crate::store::RegionStore), which has the
//!   weight of every region and reserves the share of each. Then a tenant gets what it would get from a single limiter:
//!   guarantee `fair-regions`.
//!
//! In both no window admits more than the limit, whatever the network does. The guide is
//! [docs/guides/regions.md](https://github.com/throttlekit/throttlekit/blob/main/docs/guides/regions.md).

mod branch_state;
mod builder;
mod limiter;
mod share;
mod source;

#[cfg(all(test, not(loom)))]
mod tests;

pub use builder::SharedFairLimiterBuilder;
pub use limiter::{SharedFairLimiter, SharedFairStats};
pub use share::TenantShare;

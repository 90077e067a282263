//! One budget, many tenants, in several places at once: regions, or the processes of a fleet.
//!
//! A [`SharedFairLimiter`] is one of the places. It fetches units of the budget as its tenants need them and shares them
//! by weight; asks that find enough in hand take a short lock and wait for nobody. Where it fetches is a [`Budget`]:
//!
//! * [`Region`] asks a [`RegionPool`](crate::store::RegionPool), which knows the weight of every region and keeps apart
//!   what each is due. Then a tenant gets what it would get if one place answered for all: law `fair-regions`.
//! * [`Quanta`] takes quanta from one window that all places share, whoever comes first. Tenants of one place share
//!   fairly; between places those are served who ask.
//!
//! In both no window admits more than the limit, whatever the network does. The guide is
//! [docs/regions.md](https://github.com/throttlekit/throttlekit/blob/main/docs/regions.md).

mod branch_state;
mod budget;
mod builder;
mod fetch;
mod limiter;
mod share;

pub use budget::{Budget, Quanta, Region};
pub use builder::SharedFairBuilder;
pub use limiter::{SharedFairLimiter, SharedFairStats};
pub use share::TenantShare;

/// The guide's code, run as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../../../../../docs/regions.md")]
struct Guide;

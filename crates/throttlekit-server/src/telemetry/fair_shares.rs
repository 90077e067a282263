//! The shares of tenants of fair policies.
//!
//! A fair limiter stores its tenants by fingerprints, so it is queried by name: of the busiest keys, and of those with
//! a weight in the file.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use throttlekit_proto::v1::FairShare;
use throttlekit_telemetry::TopKey;

use super::server_telemetry::ServerTelemetry;
use crate::engine::Engine;
use crate::wire_format::signed;

/// Maximum number of tenants of a policy that are shown: those that used most.
const SHARES_SHOWN: usize = 20;
/// Maximum number of names of a file that are looked up. Others are found while they are among the busiest keys.
const WEIGHED_MAX: usize = 1_000;

/// Returns the shares of a policy's tenants in the current window, at this instance. Empty if the policy is not fair.
pub(super) fn of(
    telemetry: &ServerTelemetry,
    engine: &Engine,
    policy: &str,
    busiest: &[TopKey],
) -> Vec<FairShare> {
    let file = engine.file();
    let Some(fair) = file.policies.get(policy).and_then(|spec| spec.fair.as_ref()) else {
        return Vec::new();
    };
    let weighed = fair.weights.keys().take(WEIGHED_MAX).map(String::as_bytes);
    let busy = busiest.iter().filter(|key| key.policy == policy).map(|key| key.key.as_slice());
    let tenants: BTreeSet<&[u8]> = weighed.chain(busy).collect();
    let mut shares: Vec<FairShare> =
        tenants.into_iter().filter_map(|tenant| share(telemetry, engine, policy, tenant)).collect();
    shares.sort_by_key(|share| Reverse(share.used));
    shares.truncate(SHARES_SHOWN);
    shares
}

fn share(telemetry: &ServerTelemetry, engine: &Engine, policy: &str, tenant: &[u8]) -> Option<FairShare> {
    let share = engine.share_of(policy, tenant)?;
    Some(FairShare {
        tenant: telemetry.keys().show(tenant),
        used: signed(share.used),
        guaranteed: signed(share.guaranteed),
        weight: signed(share.weight),
    })
}

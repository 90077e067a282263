//! Actions of operators: rights, engine, audit log.

use crate::access::Caller;
use crate::audit::AUDIT;
use crate::engine::{Engine, PolicyCall, Refusal};
use crate::policy::Endpoint;
use crate::wire_format::slices;

/// Forgets what the keys of one call have used.
pub(super) async fn reset(
    engine: &Engine,
    caller: &Caller,
    policy: &str,
    key: &str,
    keys: &[String],
) -> Result<(), Refusal> {
    let others = slices(keys);
    caller.may(Endpoint::Admin, policy, key.as_bytes())?;
    caller.may_each(Endpoint::Admin, policy, &others)?;
    engine.reset(PolicyCall { policy, key: key.as_bytes(), others: &others, cost: 1 }).await?;
    let (principal, peer) = (caller.principal().name(), caller.address().map(tracing::field::display));
    // Other logs leave out keys. An audit log has to name the one that was changed.
    tracing::info!(target: AUDIT, principal, peer, policy, key, ?keys, "key reset");
    Ok(())
}

//! Pools of regions: one script call grants one region.

use throttlekit::forward_store;
use throttlekit::store::{RegionGrant, RegionRequest, RegionStore, StoreError};

use crate::RedisStore;
use crate::wire;

impl RegionStore for RedisStore {
    async fn grant(&self, ask: &RegionRequest<'_>) -> Result<RegionGrant, StoreError> {
        ask.pool()?;
        let slot = self.slot(ask.key);
        let call = self.fenced_call(slot, &self.scripts.pool, &self.scripts.fenced_pool);
        let most = ask.wants.min(ask.form.limit().units());
        let reply = self.route.charge(slot, most, |by| wire::grant(call, by, ask)).await?;
        let granted = wire::granted(ask, &reply.value)?;
        self.answered(granted.now, std::iter::once(ask.form), reply.since);
        reply.spend(granted.grant.granted).map_or(Ok(granted), Err)
    }

    forward_store!(Store for self => *self; guarantee, background);
}

//! Pools of regions: one script call grants one region.

use throttlekit::Guarantee;
use throttlekit::store::{Background, RegionAsk, RegionGrant, RegionPool, Store, StoreError};

use crate::RedisStore;
use crate::wire;

impl RegionPool for RedisStore {
    async fn grant(&self, ask: &RegionAsk<'_>) -> Result<RegionGrant, StoreError> {
        ask.pool()?;
        let (scripts, head, slot) = (&self.scripts, self.preamble(), self.slot(ask.key));
        let cmd = |by| match &self.fences {
            None => wire::grant(&scripts.pool, by, head, ask, None),
            Some(fences) => wire::grant(&scripts.fenced_pool, by, head, ask, Some(&fences.at(slot))),
        };
        let most = ask.wants.min(ask.form.limit().units());
        let reply = self.route.charge(slot, most, cmd).await?;
        let granted = wire::granted(ask, &reply.value)?;
        self.answered(granted.now, std::iter::once(ask.form), reply.since);
        reply.spend(granted.grant.granted).map_or(Ok(granted), Err)
    }

    fn guarantee(&self) -> Guarantee {
        Store::guarantee(self)
    }

    fn background(&self) -> Background {
        Store::background(self)
    }
}

//! Pools of regions: one function call grants one region.

use std::sync::Arc;

use throttlekit::forward_store;
use throttlekit::rate::shared::ScriptEncoding;
use throttlekit::store::{RegionGrant, RegionRequest, RegionStore, StoreError, TooManyRegions};
use tokio_postgres::types::Type;

use crate::PostgresStore;
use crate::batch::{Reply, filled, kind};
use crate::error::Failure;
use crate::store::Inner;
use crate::store_connections::Param;

impl RegionStore for PostgresStore {
    async fn grant(&self, ask: &RegionRequest<'_>) -> Result<RegionGrant, StoreError> {
        ask.pool()?;
        self.inner.lineage.uses([ask.form]);
        let reply = self.call(self.inner.grant(ask)).await?;
        let mut reply = Reply(&reply);
        let (granted, now) = (reply.number()?, reply.instant()?);
        if granted == -2 {
            return Err(StoreError::misconfigured(TooManyRegions));
        }
        let seen = [reply.number()?, reply.number()?, reply.number()?, reply.number()?];
        RegionGrant::of(ask, seen, now, granted)
    }

    forward_store!(Store for self => *self; guarantee, background);
}

impl Inner {
    async fn grant(self: &Arc<Self>, ask: &RegionRequest<'_>) -> Result<Vec<i64>, Failure> {
        let form: &ScriptEncoding = ask.form;
        let [_, units, c3, c4] = filled(&form.charge(0, self.about_now()));
        // At most the limit, which fits the server's numbers.
        let wants = ask.wants.min(form.limit().units()) as i64;
        let (now, kind, weight) = (self.now(), kind(form), ask.weight.get() as i64);
        let params: [Param<'_>; 9] = [
            (&now, Type::INT8),
            (&ask.key, Type::TEXT),
            (&kind, Type::INT4),
            (&units, Type::INT8),
            (&c3, Type::INT8),
            (&c4, Type::INT8),
            (&ask.region, Type::TEXT),
            (&weight, Type::INT8),
            (&wants, Type::INT8),
        ];
        self.numbers(&self.statements.grant_region, &params).await
    }
}

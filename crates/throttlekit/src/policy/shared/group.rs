//! The limits of a policy on its own store, as one atomic group.

use std::sync::Arc;

use throttlekit_core::rate::Limit;

use super::part::{Dimensions, Part, Parts};
use crate::policy::Dimension;
use crate::policy::names::names;
use crate::store::Store;
use crate::{BuildError, OnOutage, SharedLimiter};

/// Limits that one round trip charges, all or none.
pub(super) struct Group<'a, S> {
    pub(super) store: Arc<S>,
    pub(super) policy: &'a str,
    pub(super) limits: Vec<(Dimension, Limit)>,
    /// The key that selects the cluster slot, if the user chose one.
    pub(super) route_by: Option<usize>,
    pub(super) on_outage: OnOutage,
}

impl<S: Store> Group<'_, S> {
    /// Adds the group to the steps of a policy.
    pub(super) fn join(self, parts: &mut Parts) -> Result<(), BuildError> {
        let on: Vec<Dimension> = self.limits.iter().map(|(on, _)| *on).collect();
        let names = names(&on);
        let mut named = self.limits.iter().zip(&names);
        let Some(((first, limit), name)) = named.next() else { return Ok(()) };
        let builder = SharedLimiter::builder(self.store, self.policy, *limit).first_limit(first.key, name);
        let builder =
            named.fold(builder, |builder, ((on, limit), name)| builder.limit_by(on.key, name, *limit));
        let builder = match self.route_by {
            Some(index) => builder.route_by(index),
            None => builder,
        };
        builder.on_outage(self.on_outage).build()?.join(&Dimensions::from(on), parts)
    }
}

//! The limits of a policy on its own store, as one atomic group.

use std::fmt::Write;
use std::sync::Arc;

use throttlekit_core::rate::Limit;

use super::part::{Dimensions, Part, Parts};
use crate::policy::Dimension;
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

/// Returns the names of the limits on the store. A name depends on the limit's own dimension only, so that adding a
/// limit does not reset the others.
fn names(on: &[Dimension]) -> Vec<String> {
    let name = |(place, on_it): (usize, &Dimension)| {
        let same = |other: &&Dimension| (other.axis, other.key) == (on_it.axis, on_it.key);
        let mut name = on_it.axis.label().to_owned();
        if on_it.key > 0 {
            let _ = write!(name, "{}", on_it.key);
        }
        match on[..place].iter().filter(same).count() {
            0 => {}
            before => {
                let _ = write!(name, ".{}", before + 1);
            }
        }
        name
    };
    on.iter().enumerate().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Axis;

    #[test]
    fn the_name_of_a_limit_does_not_depend_on_other_dimensions() {
        let on = [Axis::Rate.by(0), Axis::Rate.by(1), Axis::Cost.by(0), Axis::Rate.by(1), Axis::Rate.by(0)];
        assert_eq!(names(&on), ["rate", "rate1", "cost", "rate1.2", "rate.2"]);
        assert_eq!(names(&on[2..3]), ["cost"]);
    }
}

//! Limits under the names that clients see.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use super::header_style::{Reported, policy_field};
use crate::admit::{Admit, Axes, Axis, LimitInfo};
use crate::sync::Mutex;
use crate::{BuildError, Decision};

/// Something that decides, under a name such as `free` or `pro`. The name appears in the headers and in the response to
/// a denied request.
///
/// Clones share the limits. See [`AdmissionLayer::by_plan`](super::AdmissionLayer::by_plan).
///
/// ```
/// use throttlekit::{Limiter, Rate, http::Plan};
///
/// let free = Plan::new("free", Limiter::new(Rate::per_minute(60))?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Plan(Arc<Inner>);

struct Inner {
    name: sfv::String,
    admit: Box<dyn Admit>,
    /// The limits for which fields were last encoded: a limit may change while it is in use.
    fields: Mutex<Fields>,
}

/// Limits, and the name and the `RateLimit-Policy` member of each.
#[derive(Default)]
struct Fields {
    limits: Vec<LimitInfo>,
    encoded: Vec<(Arc<sfv::String>, HeaderValue)>,
}

impl Plan {
    /// Creates a plan. The name must be printable ASCII, as the headers require.
    pub fn new(name: &str, admit: impl Admit) -> Result<Self, BuildError> {
        Self::boxed(name, Box::new(admit))
    }

    pub(super) fn boxed(name: &str, admit: Box<dyn Admit>) -> Result<Self, BuildError> {
        let name = sfv::String::from_string(name.to_owned())
            .map_err(|(_, name)| BuildError::InvalidName(name.into()))?;
        Ok(Self(Arc::new(Inner { name, admit, fields: Mutex::default() })))
    }

    pub(super) fn admit(&self) -> &dyn Admit {
        &*self.0.admit
    }

    /// Returns the name that a denial by this axis is reported under.
    pub(super) fn name_of(&self, axis: Axis) -> String {
        self.0.name_of(axis, &self.0.admit.limits()).as_str().to_owned()
    }

    /// Returns what is reported about each evaluated axis. Concurrency is not: how many slots are free by the time of the
    /// next request is unknown.
    pub(super) fn report(&self, axes: &Axes) -> Vec<Reported> {
        let (limits, now) = (self.0.admit.limits(), self.0.admit.now());
        let mut fields = self.0.fields.lock();
        if fields.limits != limits {
            *fields = self.0.encode(limits);
        }
        let evaluated = axes.iter().filter(|(axis, _)| *axis != Axis::Concurrency);
        let report = |(axis, decision): (Axis, &Decision)| {
            let place = fields.place_of(axis, decision)?;
            let (name, policy) = fields.encoded[place].clone();
            let period = fields.limits[place].period.unwrap_or(Duration::MAX);
            let reset_in = decision.reset_at.since(now).min(period);
            Some(Reported { axis, decision: *decision, name, policy, reset_in })
        };
        evaluated.filter_map(report).collect()
    }
}

impl Inner {
    /// Returns the plan's name; followed by the axis, if limits of several axes are reported.
    fn name_of(&self, axis: Axis, limits: &[LimitInfo]) -> sfv::String {
        let mut reported = limits.iter().map(|limit| limit.axis).filter(|axis| *axis != Axis::Concurrency);
        let first = reported.next();
        if first.is_none_or(|first| reported.all(|other| other == first)) {
            return self.name.clone();
        }
        let name = format!("{}-{axis}", self.name);
        sfv::String::from_string(name).unwrap_or_else(|_| self.name.clone())
    }

    fn encode(&self, limits: Vec<LimitInfo>) -> Fields {
        let encode = |limit: &LimitInfo| {
            let name = self.name_of(limit.axis, &limits);
            let field = policy_field(&name, limit.units, limit.period);
            (Arc::new(name), field)
        };
        Fields { encoded: limits.iter().map(encode).collect(), limits }
    }
}

impl Fields {
    /// Returns the index of the limit of this axis that decided.
    fn place_of(&self, axis: Axis, decision: &Decision) -> Option<usize> {
        let of_axis = || self.limits.iter().enumerate().filter(|(_, limit)| limit.axis == axis);
        let same = of_axis().find(|(_, limit)| limit.units == decision.limit);
        same.or_else(|| of_axis().next()).map(|(place, _)| place)
    }
}

debug_fields!([] Plan, |it| name = it.0.name);

//! A limit as reported to clients.

use std::borrow::Cow;
use std::time::Duration;

use throttlekit_core::rate::Limit;

use super::Axis;

/// One limit of an [`Admit`](super::Admit), as reported to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitInfo {
    /// Name of the limit.
    pub name: Cow<'static, str>,
    /// Axis of the limit.
    pub axis: Axis,
    /// Maximum number of units that ever pass at once.
    pub units: u64,
    /// Time until all of them are back; `None` if they do not come back with time.
    pub period: Option<Duration>,
    /// `true` if the permit returns units that were charged and not used.
    pub refundable: bool,
}

impl LimitInfo {
    /// Describes a limit that is named after its axis and returns nothing.
    pub fn new(axis: Axis, units: u64, period: Option<Duration>) -> Self {
        Self { name: axis.label().into(), axis, units, period, refundable: false }
    }

    /// Describes a rate limit.
    pub fn of(axis: Axis, limit: &Limit) -> Self {
        Self::new(axis, limit.units(), Some(limit.period()))
    }

    /// Sets the name.
    pub fn named(self, name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Marks the limit as one whose charges the permit settles.
    pub fn refundable(self) -> Self {
        Self { refundable: true, ..self }
    }
}

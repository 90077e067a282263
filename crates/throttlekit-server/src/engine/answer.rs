//! Responses of the engine, independent of any API.

use std::fmt;
use std::time::Duration;

use throttlekit::admit::LimitName;
use throttlekit::clock::{Clock, WallClock};
use throttlekit::rate::Timestamp;
use throttlekit::store::{LeaseId, StoreError};
use throttlekit::{Answer, Axis, Decision, Guarantee, Retry};

use crate::policy::COST_NAME;

/// The response to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The decision. In shadow mode always allowed.
    pub decision: Decision,
    /// Guarantee of the decision.
    pub guarantee: Guarantee,
    /// The axis that denied, also in shadow mode.
    pub binding_axis: Option<Axis>,
    /// Name of the limit that denied, as in the policy file; also in shadow mode. The first limit of an axis may have
    /// none.
    pub limit_name: Option<LimitName>,
    /// True if the price denied, and no axis.
    pub policy_denied: bool,
    /// True if it would have been denied without shadow mode.
    pub shadow_denied: bool,
}

impl Answered {
    /// Creates a response; `axis` is the binding axis if the decision denied. During an outage of the store there is
    /// none.
    pub(super) fn of(decision: Decision, guarantee: Guarantee, axis: Axis) -> Self {
        let binding_axis = (!decision.allowed && guarantee != Guarantee::Closed).then_some(axis);
        let (policy_denied, shadow_denied) = (false, false);
        Self { decision, guarantee, binding_axis, limit_name: None, policy_denied, shadow_denied }
    }

    /// Creates the response of a limiter whose limits are on this axis.
    pub(super) fn by_limiter(answer: &Answer, axis: Axis) -> Self {
        Self::of(answer.decision, answer.guarantee, axis).by_limit(answer.limit_name)
    }

    /// Sets the limit that denied, by its name on the store.
    pub(super) fn by_limit(self, name: Option<LimitName>) -> Self {
        let limit_name = self.binding_axis.zip(name).and_then(|(axis, name)| name_in_file(axis, name));
        Self { limit_name, ..self }
    }

    /// Returns the axis that denied, or the price.
    pub(super) fn denied_by(&self) -> Option<Axis> {
        if self.policy_denied { Some(Axis::Price) } else { self.binding_axis }
    }

    /// Checks whether it is not a decision but `on_outage: closed` of the policy during an outage.
    pub fn is_outage(&self) -> bool {
        !self.decision.allowed && self.guarantee == Guarantee::Closed
    }

    /// Returns the decision, or the outage as a refusal. For APIs that can report it.
    pub(crate) fn decided(self) -> Result<Self, Refusal> {
        if self.is_outage() { Err(Refusal::Outage) } else { Ok(self) }
    }

    /// Creates the response of a policy without limits.
    pub(super) fn free() -> Self {
        Self::of(throttlekit::rate::ALLOW_FULL, Guarantee::Exact, Axis::Rate)
    }

    pub(super) fn admitted<P>(admission: &throttlekit::Admission<P>) -> Self {
        let answer = Self {
            decision: admission.decision(),
            guarantee: admission.guarantee,
            binding_axis: admission.axes().denied_by().filter(|_| admission.guarantee != Guarantee::Closed),
            limit_name: None,
            policy_denied: admission.denied_by() == Some(Axis::Price),
            shadow_denied: false,
        };
        answer.by_limit(admission.limit_name())
    }

    /// Returns the decisions, or a refusal if there are none. If only some are missing, the guarantee of each reports
    /// it.
    pub(crate) fn all_decided(answers: Vec<Self>) -> Result<Vec<Self>, Refusal> {
        let none = !answers.is_empty() && answers.iter().all(Self::is_outage);
        if none { Err(Refusal::Outage) } else { Ok(answers) }
    }

    /// Converts the response of a policy in shadow mode: always allowed, with a flag if it would have been denied.
    pub(super) fn shadowed(mut self) -> Self {
        if !self.decision.allowed {
            self.shadow_denied = true;
            self.decision.allowed = true;
            self.decision.retry_after = Retry::Now;
        }
        self
    }
}

/// Returns the name of a limit in the policy file, for its name on the store. `None` if it has none there.
fn name_in_file(axis: Axis, name: LimitName) -> Option<LimitName> {
    match axis {
        Axis::Cost => LimitName::new(name.as_str().strip_prefix(COST_NAME)?.strip_prefix('.')?),
        _ => Some(name),
    }
}

/// The response to a call that holds a lease while its work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The response.
    pub answer: Answered,
    /// The lease, if the call was admitted.
    pub lease: Option<WorkLease>,
    /// Time that the call waited until it was decided.
    pub waited: Duration,
    /// Tokens reserved for a call without a cost, if the policy learns. Otherwise 0.
    pub reserved: u64,
}

impl Admitted {
    /// Creates the response to a call that was decided at once and holds nothing.
    pub(super) fn at_once(answer: Answered) -> Self {
        Self { answer, lease: None, waited: Duration::ZERO, reserved: 0 }
    }
}

/// A lease that a client holds until it releases it, or until its heartbeats stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkLease {
    /// Its ID: random, and valid for its owner only.
    pub id: LeaseId,
    /// Time until it expires without a heartbeat, from now.
    pub lives: Duration,
    /// Expiry as an instant of this server's wall clock, for clients that show it.
    pub until: Timestamp,
}

/// Results of a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatResult {
    /// Renewed leases, in the order of the request.
    pub live: Vec<LeaseId>,
    /// Leases that were not renewed: expired, released, another owner's or unknown.
    pub reclaimed: Vec<LeaseId>,
    /// Time at which the first of the live ones expires without another heartbeat, by this server's wall clock.
    pub next_deadline: Option<Timestamp>,
}

/// Units of a limit that a client may spend locally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Number of units; fewer than requested is not an error, zero is a denial.
    pub units: u64,
    /// Time for which they may be spent, counted from when the client sent its request.
    pub lives: Duration,
    /// Expiry as an instant of the store's clock, for clients that compare it with their own.
    pub until: Timestamp,
    /// Recommended time until the next request.
    pub refresh_after: Duration,
    /// If none were granted: the time to wait. `None` if waiting does not help.
    pub retry_after: Option<Duration>,
    /// The limit.
    pub limit: u64,
    /// ID of the loan, under which unspent units may be returned; `None` if they expire instead.
    pub loan: Option<u128>,
}

/// Time for which units are lent where they are not counted.
const FREE_FOR: Duration = Duration::from_secs(1);

impl Granted {
    /// Grants all requested units for a short time, without counting them.
    pub(super) fn freely(units: u64) -> Self {
        let until = WallClock.now() + FREE_FOR;
        Self { units, lives: FREE_FOR, until, refresh_after: FREE_FOR, limit: units, ..Self::nothing() }
    }

    /// Creates the response to a request for no units.
    pub(super) fn nothing() -> Self {
        Self {
            units: 0,
            lives: Duration::ZERO,
            until: Timestamp::EPOCH,
            refresh_after: Duration::ZERO,
            retry_after: Some(Duration::ZERO),
            limit: 0,
            loan: None,
        }
    }
}

/// Number of characters of an unknown policy's name that an error repeats: it must fit the headers of gRPC.
const POLICY_CHARS_SHOWN: usize = 60;

/// Reason why there is no decision.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no policy of this name.
    UnknownPolicy(String),
    /// The policy does not support this; with the alternative.
    Unsupported(String),
    /// The request is invalid; with the cause.
    Invalid(String),
    /// The caller is anonymous, or lacks the right.
    Forbidden(String),
    /// A limit on work in progress is reached.
    TooMany(String),
    /// The store is unavailable, and the policy fails closed (`on_outage: closed`).
    Outage,
    /// The store is unavailable and the policy has no fallback for this request, or it is misconfigured.
    Store(StoreError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPolicy(name) => {
                let shown: String = name.chars().take(POLICY_CHARS_SHOWN).collect();
                let more = if shown.len() < name.len() { "…" } else { "" };
                write!(f, "no policy `{}{more}` is loaded", shown.escape_debug())
            }
            Self::Unsupported(why) | Self::Invalid(why) | Self::Forbidden(why) | Self::TooMany(why) => {
                f.write_str(why)
            }
            Self::Outage => {
                f.write_str("the store is unavailable, and this policy fails closed (`on_outage: closed`)")
            }
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_denied_has_its_name_of_the_file_or_none() {
        let denied = throttlekit::rate::ALLOW_FULL;
        let denied = Decision { allowed: false, ..denied };
        let name = |axis, guarantee, name: &str| {
            let answer = Answered::of(denied, guarantee, axis).by_limit(LimitName::new(name));
            answer.limit_name.map(LimitName::as_str)
        };
        assert_eq!(name(Axis::Cost, Guarantee::Exact, "cost.team"), Some("team"));
        assert_eq!(name(Axis::Cost, Guarantee::Exact, "cost"), None);
        assert_eq!(name(Axis::Rate, Guarantee::Exact, "daily"), Some("daily"));
        assert_eq!(name(Axis::Rate, Guarantee::Exact, "cost.x"), Some("cost.x"));
        assert_eq!(name(Axis::Rate, Guarantee::Closed, "daily"), None, "the outage denied");
        let free = Answered::free().by_limit(LimitName::new("daily"));
        assert_eq!(free.limit_name, None);
    }

    #[test]
    fn an_unknown_name_of_any_length_is_an_error_that_fits_a_header() {
        let told = |name: &str| Refusal::UnknownPolicy(name.into()).to_string();
        assert_eq!(told("chat"), "no policy `chat` is loaded");
        assert_eq!(told(&"x".repeat(60)), format!("no policy `{}` is loaded", "x".repeat(60)));
        assert_eq!(told(&"x".repeat(9_000)), format!("no policy `{}…` is loaded", "x".repeat(60)));
        assert!(told(&"\u{7}".repeat(9_000)).len() < 512, "escaped");
    }
}

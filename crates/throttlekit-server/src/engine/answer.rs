//! Responses of the engine, independent of any API.

use std::fmt;
use std::time::Duration;

use throttlekit::store::{LeaseId, StoreError};
use throttlekit::{Axis, Clock, Decision, Guarantee, Retry, Timestamp, WallClock};

/// The answer to one ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// What was decided. Of a policy in shadow mode always allowed.
    pub decision: Decision,
    /// What the answer is worth.
    pub guarantee: Guarantee,
    /// The axis that denied, also in shadow mode.
    pub binding_axis: Option<Axis>,
    /// Whether the price denied, and no axis.
    pub policy_denied: bool,
    /// Whether it would have been denied, were the policy not in shadow mode.
    pub shadow_denied: bool,
}

impl Answered {
    /// What was decided, on an axis that denied if any did. Where the store was away none did.
    pub(super) fn of(decision: Decision, guarantee: Guarantee, axis: Axis) -> Self {
        let binding_axis = (!decision.allowed && guarantee != Guarantee::Closed).then_some(axis);
        Self { decision, guarantee, binding_axis, policy_denied: false, shadow_denied: false }
    }

    /// Whether it is no decision, but a policy's `on_outage: closed` while the store is away.
    pub fn is_outage(&self) -> bool {
        !self.decision.allowed && self.guarantee == Guarantee::Closed
    }

    /// The decision, or why there is none. For doors that can say so.
    pub(crate) fn decided(self) -> Result<Self, Refusal> {
        if self.is_outage() { Err(Refusal::Outage) } else { Ok(self) }
    }

    /// Nobody was asked.
    pub(super) fn free() -> Self {
        Self::of(throttlekit::ALLOW_FULL, Guarantee::Exact, Axis::Rate)
    }

    pub(super) fn admitted<P>(admission: &throttlekit::admission::Admission<P>) -> Self {
        Self {
            decision: admission.decision,
            guarantee: admission.guarantee,
            binding_axis: admission.binding_axis().filter(|_| admission.guarantee != Guarantee::Closed),
            policy_denied: admission.policy_denied,
            shadow_denied: false,
        }
    }

    /// The decisions, or why there are none. Where only some are none, each says so by its guarantee.
    pub(crate) fn all_decided(answers: Vec<Self>) -> Result<Vec<Self>, Refusal> {
        let none = !answers.is_empty() && answers.iter().all(Self::is_outage);
        if none { Err(Refusal::Outage) } else { Ok(answers) }
    }

    /// The answer of a policy that only looks: everything passes, and what would not have is marked.
    pub(super) fn shadowed(mut self) -> Self {
        if !self.decision.allowed {
            self.shadow_denied = true;
            self.decision.allowed = true;
            self.decision.retry_after = Retry::Now;
        }
        self
    }
}

/// The answer to a call that holds something while its work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The answer.
    pub answer: Answered,
    /// What is held, if the call was admitted.
    pub lease: Option<WorkLease>,
}

/// Something that is held for a client until it releases it, or falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkLease {
    /// Its name: random, and of use to its owner alone.
    pub id: LeaseId,
    /// For how long, from now on, unless a heartbeat comes.
    pub lives: Duration,
    /// The same as an instant of this server's wall clock, for clients that show it.
    pub until: Timestamp,
}

/// What became of leases that were renewed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beats {
    /// Those that live on, in the order in which they were named.
    pub live: Vec<LeaseId>,
    /// Those that do not: over, released, another's or never given.
    pub reclaimed: Vec<LeaseId>,
    /// When the first of the live ones is over without another beat, by this server's wall clock.
    pub next_deadline: Option<Timestamp>,
}

/// Units of a limit that a client may spend by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// How many; fewer than were wanted is no error, none is a denial.
    pub units: u64,
    /// For how long they may be spent, counted from when the client sent its request.
    pub lives: Duration,
    /// The same as an instant of the store's clock, for clients that compare it with their own.
    pub until: Timestamp,
    /// After how long it is best to ask again.
    pub refresh_after: Duration,
    /// Where none were granted: how long to wait. Nothing if waiting does not help.
    pub retry_after: Option<Duration>,
    /// The limit itself.
    pub limit: u64,
    /// The name of the loan, under which what is left of it may be handed back; nothing if it lapses.
    pub loan: Option<u128>,
}

/// For how long units are lent where nobody counts them.
const FREE_FOR: Duration = Duration::from_secs(1);

impl Granted {
    /// As many as are wanted, for a short while: nobody counts them.
    pub(super) fn freely(units: u64) -> Self {
        let until = WallClock.now() + FREE_FOR;
        Self { units, lives: FREE_FOR, until, refresh_after: FREE_FOR, limit: units, ..Self::nothing() }
    }

    /// Where nothing was wanted.
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

/// How many characters of an unknown policy's name are repeated to whoever sent it: an error must fit the headers of gRPC.
const POLICY_CHARS_SHOWN: usize = 60;

/// Why nothing was decided.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// No policy of this name.
    UnknownPolicy(String),
    /// The policy does not do this; what to do instead.
    Unsupported(String),
    /// The request makes no sense; what is wrong with it.
    Invalid(String),
    /// Nobody in particular, or one who may not do this.
    Forbidden(String),
    /// As much as is allowed at a time is under way.
    TooMany(String),
    /// The store is away, and the policy refuses meanwhile (`on_outage: closed`).
    Outage,
    /// The store is away and its policy has no word for this request, or it is set up wrongly.
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
            Self::Outage => f.write_str(
                "the store does not answer, and this policy refuses until it does (`on_outage: closed`)",
            ),
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
    fn an_unknown_name_of_any_length_is_an_error_that_fits_a_header() {
        let told = |name: &str| Refusal::UnknownPolicy(name.into()).to_string();
        assert_eq!(told("chat"), "no policy `chat` is loaded");
        assert_eq!(told(&"x".repeat(60)), format!("no policy `{}` is loaded", "x".repeat(60)));
        assert_eq!(told(&"x".repeat(9_000)), format!("no policy `{}…` is loaded", "x".repeat(60)));
        assert!(told(&"\u{7}".repeat(9_000)).len() < 512, "escaped");
    }
}

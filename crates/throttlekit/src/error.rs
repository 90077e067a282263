//! Errors of builders.

use std::fmt;
use std::time::Duration;

use throttlekit_core::rate::LimitError;

/// Reason why a builder cannot build.
///
/// Reported once, by `new` or `build`; what was built does not fail for these reasons later.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The numbers of a limit are out of range. Correct the limit.
    Limit(LimitError),
    /// A shared store cannot represent the limit; names the parameter. Use a coarser rate or a shorter period.
    NotShareable(&'static str),
    /// The rule cannot be leased. Build the limiter without `leased`.
    NotLeasable,
    /// Units with this lease duration expire before they can be spent. Use a longer window or hold.
    LeaseTooShort(Duration),
    /// A leased limiter has one limit. Put it into a policy to combine it with others.
    LeasedSeveral,
    /// More limits than one limiter evaluates together. Split them over two limiters.
    TooManyLimits {
        /// Maximum number of limits.
        max: usize,
    },
    /// Two limits have the same name. Rename one of them.
    DuplicateName(Box<str>),
    /// A name that metrics, store keys or HTTP headers cannot carry. Use letters, digits, `-`, `_`, `.` and `:`.
    InvalidName(Box<str>),
    /// Bounds of a concurrency limit that exclude each other or are zero.
    InvalidConcurrency,
    /// The error bounds of a sketch, or a rule that sketches cannot count; states the reason.
    InvalidSketch(&'static str),
    /// A layer that settles costs has a limiter that gives nothing back. Use a policy.
    NotSettleable,
    /// A limit that gives nothing back is not the last one of a policy. Move it to the end.
    OrderOfLimits,
    /// An axis that this kind of limit does not belong to; states where to put it.
    WrongAxis(&'static str),
    /// The address of a server, or its TLS settings. Correct what the reason names.
    InvalidEndpoint {
        /// The address.
        endpoint: Box<str>,
        /// The reason.
        reason: Box<str>,
    },
    /// A token that cannot be read or sent; states the reason. Use printable ASCII.
    InvalidToken(Box<str>),
    /// A setting outside its range.
    OutOfRange {
        /// Name of the setting.
        setting: &'static str,
        /// The valid range.
        expected: &'static str,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(error) => write!(f, "invalid limit: {error}"),
            Self::NotShareable(why) => write!(f, "a shared store cannot represent this limit: {why}"),
            Self::NotLeasable => f.write_str(
                "this rule cannot be leased: use a window or a smooth rate, or build without `leased`",
            ),
            Self::LeaseTooShort(lease) => {
                write!(
                    f,
                    "units leased for {lease:?} expire before they can be spent: use a longer window or hold"
                )
            }
            Self::LeasedSeveral => {
                f.write_str("a leased limiter has exactly one limit: combine leased limiters in a policy")
            }
            Self::TooManyLimits { max } => write!(f, "too many limits: at most {max} are evaluated together"),
            Self::DuplicateName(name) => write!(f, "two limits are named {name:?}: rename one of them"),
            Self::InvalidName(name) => {
                write!(f, "invalid name {name:?}: use letters, digits, `-`, `_`, `.` and `:`")
            }
            Self::InvalidConcurrency => {
                f.write_str("invalid concurrency limit: bounds must be at least 1 and in ascending order")
            }
            Self::InvalidSketch(why) => write!(f, "invalid sketch: {why}"),
            Self::NotSettleable => {
                f.write_str("this limiter gives nothing back, so costs cannot be settled: use a policy")
            }
            Self::OrderOfLimits => f.write_str(
                "a limit that gives nothing back must be the last one of a policy: move it to the end",
            ),
            Self::WrongAxis(why) => write!(f, "wrong axis: {why}"),
            Self::InvalidEndpoint { endpoint, reason } => {
                write!(f, "invalid endpoint {endpoint:?}: {reason}")
            }
            Self::InvalidToken(reason) => write!(f, "invalid token: {reason}"),
            Self::OutOfRange { setting, expected } => {
                write!(f, "{setting} is out of range: expected {expected}")
            }
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Limit(error) = self { Some(error) } else { None }
    }
}

/// Errors about sharing and leasing keep their own variants.
impl From<LimitError> for BuildError {
    fn from(error: LimitError) -> Self {
        match error {
            LimitError::NotShareable(why) => Self::NotShareable(why),
            LimitError::NotLeasable => Self::NotLeasable,
            LimitError::LeaseTooShort(lease) => Self::LeaseTooShort(lease),
            other => Self::Limit(other),
        }
    }
}

/// Allows a value that already is a limit where a description is expected.
impl From<std::convert::Infallible> for BuildError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

//! The response to a request.

use throttlekit::{Axis, Decision, Guarantee};

use crate::ClientError;

/// A decision and its guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteAnswer {
    /// The decision. Its instants are of the server's clock, in whole milliseconds, rounded up.
    pub decision: Decision,
    /// The guarantee, as reported by the server or by the fallback.
    pub guarantee: Guarantee,
    /// The axis that denied, if the server reports it.
    pub binding_axis: Option<Axis>,
    /// Allowed, though a policy in shadow mode would have denied.
    pub shadow_denied: bool,
    /// Reason why the server did not respond, if the fallback decided.
    pub outage: Option<ClientError>,
}

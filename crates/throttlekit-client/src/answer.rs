//! What an ask comes back with.

use throttlekit::{Axis, Decision, Guarantee};

use crate::ClientError;

/// The answer to one ask, and what it is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteAnswer {
    /// The answer. Its instants are of the server's clock, in whole milliseconds, rounded up.
    pub decision: Decision,
    /// What it is worth, as the server says; or as whoever stood in for it does.
    pub guarantee: Guarantee,
    /// The axis that denied, where the server says.
    pub binding_axis: Option<Axis>,
    /// Allowed, though a policy that is only being tried would have denied.
    pub shadow_denied: bool,
    /// Why the server did not answer, where something stood in for it.
    pub outage: Option<ClientError>,
}

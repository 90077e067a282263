//! The groups between which capacity is shared.

use std::net::IpAddr;
use std::num::NonZeroU32;

use crate::principal::Principal;

/// Callers that share one allowance: a principal, or, where callers have no name, an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Group {
    Named(Principal),
    At(IpAddr),
}

/// One connection, its group, and the weight of that group.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(super) group: Group,
    pub(super) weight: NonZeroU32,
    pub(super) connection: u64,
}

impl Who {
    /// Returns the group of an address, for a connection whose caller has no name.
    pub(crate) fn at(network: IpAddr, connection: u64) -> Self {
        Self { group: Group::At(network), weight: NonZeroU32::MIN, connection }
    }

    /// Moves the connection to the group of a principal.
    pub(crate) fn named(self, principal: Principal, weight: NonZeroU32) -> Self {
        Self { group: Group::Named(principal), weight, ..self }
    }
}

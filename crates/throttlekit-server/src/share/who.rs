//! The groups between which capacity is shared.

use std::net::IpAddr;
use std::num::NonZeroU32;

use crate::principal::Principal;

/// Those who share what one of them may use: a principal, or, where nobody has a name, an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Group {
    Named(Principal),
    At(IpAddr),
}

/// One connection, the group that it belongs to, and how much that group counts for beside others.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(super) group: Group,
    pub(super) weight: NonZeroU32,
    pub(super) connection: u64,
}

impl Who {
    /// The group of an address, for a connection whose caller has no name.
    pub(crate) fn at(network: IpAddr, connection: u64) -> Self {
        Self { group: Group::At(network), weight: NonZeroU32::MIN, connection }
    }

    /// The same connection in the group of a principal.
    pub(crate) fn named(self, principal: Principal, weight: NonZeroU32) -> Self {
        Self { group: Group::Named(principal), weight, ..self }
    }
}

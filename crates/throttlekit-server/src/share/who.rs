//! Whom shares are for.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;

use http::Extensions;

use crate::access::{Caller, Principal};
use crate::listen::Peer;

/// Those who share what one of them may use: a principal, or, where nobody has a name, an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Group {
    Named(Principal),
    At(IpAddr),
}

/// One connection, the group that it belongs to, and how much that group counts for beside others.
#[derive(Clone, Debug)]
pub(super) struct Who {
    pub(super) group: Group,
    pub(super) weight: NonZeroU32,
    pub(super) connection: u64,
}

impl Who {
    /// Whoever is at the other end of a connection, as long as it sent no request.
    pub(super) fn at(peer: &Peer) -> Self {
        Self { group: Group::At(peer.network()), weight: NonZeroU32::MIN, connection: peer.connection }
    }

    /// Whoever sent a request with these extensions.
    pub(super) fn of(extensions: &Extensions) -> Self {
        let caller = extensions.get::<Caller>().filter(|caller| !caller.principal().name().is_empty());
        let unseen = Peer::at((Ipv4Addr::UNSPECIFIED, 0).into());
        let somebody = Self::at(extensions.get().unwrap_or(&unseen));
        match caller {
            Some(caller) => {
                Self { group: Group::Named(caller.principal().clone()), weight: caller.weight(), ..somebody }
            }
            None => somebody,
        }
    }
}

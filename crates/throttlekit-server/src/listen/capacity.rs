//! The limits on the number of connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use throttlekit::internals::Mutex;

use super::{Limits, Peer};

/// The connections that may be open, in total and for each address.
#[derive(Debug, Default)]
pub(super) struct ConnectionCapacity {
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    // At most as many entries as connections. Uses the standard library's keyed hash, as clients choose the addresses.
    by_network: HashMap<IpAddr, usize>,
}

/// The limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    All,
    Peer,
}

/// One open connection, released on drop.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    capacity: Arc<ConnectionCapacity>,
    network: IpAddr,
}

impl ConnectionCapacity {
    pub(super) fn acquire(self: &Arc<Self>, peer: &Peer, limits: &Limits) -> Result<ConnectionSlot, Full> {
        let network = peer.network();
        let mut taken = self.taken.lock();
        if taken.total >= limits.connections_max {
            return Err(Full::All);
        }
        let here = taken.by_network.get(&network).copied().unwrap_or(0);
        if here >= limits.connections_per_peer_max && !peer.is_loopback() {
            return Err(Full::Peer);
        }
        taken.total += 1;
        taken.by_network.insert(network, here + 1);
        Ok(ConnectionSlot { capacity: self.clone(), network })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = self.capacity.taken.lock();
        taken.total -= 1;
        if let Some(here) = taken.by_network.get_mut(&self.network) {
            *here -= 1;
            if *here == 0 {
                taken.by_network.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Peer {
        Peer::at(address.parse().unwrap())
    }

    #[test]
    fn an_address_has_its_cap_and_others_have_theirs() {
        let capacity = Arc::<ConnectionCapacity>::default();
        let limits = Limits { connections_max: 4, connections_per_peer_max: 2, ..Limits::default() };
        let a = peer("192.0.2.1:1");
        let slots: Vec<_> = (0..2).map(|_| capacity.acquire(&a, &limits).unwrap()).collect();
        assert_eq!(capacity.acquire(&a, &limits).unwrap_err(), Full::Peer);
        let other = capacity.acquire(&peer("192.0.2.2:1"), &limits).unwrap();
        let local: Vec<_> =
            (0..1).map(|_| capacity.acquire(&peer("127.0.0.1:1"), &limits).unwrap()).collect();
        assert_eq!(capacity.acquire(&peer("192.0.2.3:1"), &limits).unwrap_err(), Full::All);
        drop((slots, other, local));
        assert!(capacity.taken.lock().by_network.is_empty());
        assert!(capacity.acquire(&a, &limits).is_ok());
    }

    #[test]
    fn loopback_has_no_cap_of_its_own() {
        let capacity = Arc::<ConnectionCapacity>::default();
        let limits = Limits { connections_max: 3, connections_per_peer_max: 1, ..Limits::default() };
        let _slots: Vec<_> = (0..3).map(|_| capacity.acquire(&peer("[::1]:1"), &limits).unwrap()).collect();
        assert_eq!(capacity.acquire(&peer("[::1]:1"), &limits).unwrap_err(), Full::All);
    }
}

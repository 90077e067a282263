//! How many connections there may be.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use throttlekit::internals::Mutex;

use super::{Limits, Peer};

/// Room for connections, in total and for each address.
#[derive(Debug, Default)]
pub(super) struct Room {
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    // As many entries as connections at most. Hashed by the standard library's keyed hash, as strangers choose them.
    by_network: HashMap<IpAddr, usize>,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    All,
    Peer,
}

/// One place, given back when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    room: Arc<Room>,
    network: IpAddr,
}

impl Room {
    pub(super) fn seat(self: &Arc<Self>, peer: &Peer, limits: &Limits) -> Result<Seat, Full> {
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
        Ok(Seat { room: self.clone(), network })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.room.taken.lock();
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
        let room = Arc::<Room>::default();
        let limits = Limits { connections_max: 4, connections_per_peer_max: 2, ..Limits::default() };
        let a = peer("192.0.2.1:1");
        let seats: Vec<_> = (0..2).map(|_| room.seat(&a, &limits).unwrap()).collect();
        assert_eq!(room.seat(&a, &limits).unwrap_err(), Full::Peer);
        let other = room.seat(&peer("192.0.2.2:1"), &limits).unwrap();
        let local: Vec<_> = (0..1).map(|_| room.seat(&peer("127.0.0.1:1"), &limits).unwrap()).collect();
        assert_eq!(room.seat(&peer("192.0.2.3:1"), &limits).unwrap_err(), Full::All);
        drop((seats, other, local));
        assert!(room.taken.lock().by_network.is_empty());
        assert!(room.seat(&a, &limits).is_ok());
    }

    #[test]
    fn loopback_has_no_cap_of_its_own() {
        let room = Arc::<Room>::default();
        let limits = Limits { connections_max: 3, connections_per_peer_max: 1, ..Limits::default() };
        let _seats: Vec<_> = (0..3).map(|_| room.seat(&peer("[::1]:1"), &limits).unwrap()).collect();
        assert_eq!(room.seat(&peer("[::1]:1"), &limits).unwrap_err(), Full::All);
    }
}

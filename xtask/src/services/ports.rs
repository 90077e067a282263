//! Free loopback ports.
//!
//! Taken from below the system's range of outgoing connections, so not by binding to port zero. In that
//! range, a client that calls a killed server repeatedly would sooner or later get the server's own port, and
//! be connected to itself.

use std::net::{Ipv4Addr, TcpListener};
use std::process;

use anyhow::{Context, Result};

/// The offset of a cluster node's bus port.
const BUS_OFFSET: u16 = 10_000;
const FIRST: u16 = 11_000;
const COUNT: u16 = 11_000;
/// The start of the system's default range.
const EPHEMERAL_FIRST: u16 = 32_768;

const _: () = assert!(FIRST + COUNT + BUS_OFFSET <= EPHEMERAL_FIRST);

/// Returns each port once.
pub(super) struct Ports {
    candidates: Box<dyn Iterator<Item = u16>>,
}

impl Ports {
    /// Starts at a position specific to this process: two clones may start their servers at once.
    pub(super) fn new() -> Self {
        let begin = (process::id().wrapping_mul(7_919) % u32::from(COUNT)) as u16;
        Self { candidates: Box::new((begin..COUNT).chain(0..begin).map(|n| FIRST + n)) }
    }

    /// Returns a port that is free, as is that of a cluster's bus.
    pub(super) fn take(&mut self) -> Result<u16> {
        let free = |port: &u16| is_free(*port) && is_free(*port + BUS_OFFSET);
        self.candidates.find(free).context("no loopback port is free")
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test: two would use the same ports at once.
    #[test]
    fn a_port_is_handed_out_once_and_passed_over_while_in_use() {
        let mut ports = Ports::new();
        let (first, second) = (ports.take().unwrap(), ports.take().unwrap());
        assert_ne!(first, second);
        let _listening = TcpListener::bind((Ipv4Addr::LOCALHOST, first)).unwrap();
        assert_ne!(Ports::new().take().unwrap(), first);
    }
}

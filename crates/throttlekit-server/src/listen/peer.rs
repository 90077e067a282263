//! The peer of a connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Leaving;
use crate::share::{Account, Processor, Who};

/// The other end of a connection, as far as the connection itself shows it. No header changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address. An IPv4 address within IPv6 is written as IPv4.
    pub address: SocketAddr,
    /// The names in its client certificate, if one was required: `dns:host`, or a URI such as `spiffe://…`.
    pub names: Arc<[String]>,
    /// The number of the connection, among all of this process; 0 if there is none.
    pub(crate) connection: u64,
    /// Account that the connection's work is charged to.
    pub(crate) account: Option<Arc<Account>>,
    /// Notice that the connection closes gracefully.
    pub(crate) leaving: Leaving,
}

impl Peer {
    /// Creates a peer without a certificate.
    pub fn at(address: SocketAddr) -> Self {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        Self { address, names: Arc::default(), connection: 0, account: None, leaving: Leaving::default() }
    }

    /// Adds the number of a new connection, and creates an account for its work.
    pub(super) fn connected(self, processor: &Arc<Processor>) -> (Self, Arc<Account>) {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
        let peer = Self { connection: CONNECTIONS.fetch_add(1, Relaxed), ..self };
        let account = Account::of(peer.who(), processor);
        (Self { account: Some(account.clone()), ..peer }, account)
    }

    /// Adds the names of a certificate that was verified.
    pub(super) fn with_certificate(self, certificate: &rustls::pki_types::CertificateDer<'_>) -> Self {
        Self { names: names_in(certificate).into(), ..self }
    }

    /// Checks whether it is on this machine.
    pub fn is_loopback(&self) -> bool {
        self.address.ip().is_loopback()
    }

    /// Returns the group that its requests count for while its caller has no name.
    pub(crate) fn who(&self) -> Who {
        Who::at(self.network(), self.connection)
    }

    /// Returns the address that its connections are counted by: an IPv4 address, or an IPv6 /64 network, which is what
    /// one host is usually assigned.
    pub(crate) fn network(&self) -> IpAddr {
        match self.address.ip() {
            IpAddr::V6(six) => IpAddr::V6((u128::from(six) >> 64 << 64).into()),
            four => four,
        }
    }
}

fn names_in(certificate: &rustls::pki_types::CertificateDer<'_>) -> Vec<String> {
    let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else { return Vec::new() };
    let dns = parsed.valid_dns_names().map(|name| format!("dns:{}", name.to_ascii_lowercase()));
    dns.chain(parsed.valid_uri_names().map(ToOwned::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_within_ipv6_is_that_address() {
        let peer = Peer::at("[::ffff:127.0.0.1]:80".parse().unwrap());
        assert!(peer.is_loopback());
        assert_eq!(peer.network(), "127.0.0.1".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_together() {
        let network = |text: &str| Peer::at(text.parse().unwrap()).network();
        assert_eq!(network("[2001:db8::1]:1"), network("[2001:db8::ffff:1]:2"));
        assert_ne!(network("[2001:db8::1]:1"), network("[2001:db8:0:1::1]:1"));
        assert_ne!(network("192.0.2.1:1"), network("192.0.2.2:1"));
    }
}

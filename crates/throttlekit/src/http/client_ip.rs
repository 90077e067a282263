//! The client's address, from trusted sources only.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use http::request::Parts;
use http::{Extensions, HeaderName};
use ipnet::IpNet;

use super::forwarded::{Trust, canonical_network, client};
use super::key::{Key, KeyExtractor, MissingKey};
use crate::BuildError;

/// The client's network address as the key. See [`client_ip`].
#[derive(Clone)]
pub struct ClientIp {
    trust: Trust,
    header: HeaderName,
    peer: Arc<FindPeer>,
    ipv6_prefix: u8,
    /// The first setting that is invalid.
    wrong: Option<Box<str>>,
}

/// Counts by the client's network address.
///
/// By default the peer of the connection, and no header is trusted. Behind proxies the peer is a proxy, and the client
/// is in `X-Forwarded-For`: each proxy appends, on the right, the address that connected to it. Entries further left
/// came with the request and may be forged; so the list is read from the right, and only past your own proxies. An
/// entry that is not an address ends the walk at the proxy that wrote it: such clients share one budget.
///
/// An IPv6 address is counted by its /64, since that is what one customer gets. One that represents an IPv4 address is
/// counted as that: mapped (`::ffff:192.0.2.7`), compatible (`::192.0.2.7`), or translated by NAT64 (`64:ff9b::/96`,
/// and `64:ff9b:1::/48` with the address at the offset for a prefix of 48 or of 96 bits).
///
/// The peer comes from a [`SocketAddr`] in the request's extensions, and with the feature `axum` also from
/// `ConnectInfo<SocketAddr>`, which is there if the router is served with
/// `into_make_service_with_connect_info::<SocketAddr>()`. If the server keeps it elsewhere, pass a function:
///
/// ```
/// use http::Extensions;
/// use throttlekit::http::client_ip;
/// # struct TcpConnectInfo { remote_addr: Option<SocketAddr> }
/// # impl TcpConnectInfo { fn remote_addr(&self) -> Option<SocketAddr> { self.remote_addr } }
/// use std::net::SocketAddr;
///
/// let key = client_ip()
///     .behind_proxies(1)
///     .peer_from(|e: &Extensions| Some(e.get::<TcpConnectInfo>()?.remote_addr()?.ip()));
/// ```
pub fn client_ip() -> ClientIp {
    ClientIp {
        trust: Trust::Hops(0),
        header: HeaderName::from_static("x-forwarded-for"),
        peer: Arc::new(peer),
        ipv6_prefix: 64,
        wrong: None,
    }
}

/// Returns the peer from the extensions of hyper servers or of axum.
fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let peer = extensions.get::<SocketAddr>();
    #[cfg(feature = "axum")]
    let peer = peer.or_else(|| Some(&extensions.get::<axum::extract::ConnectInfo<SocketAddr>>()?.0));
    peer.map(SocketAddr::ip)
}

type FindPeer = dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync;

impl ClientIp {
    /// Uses the client in front of `count` proxies. Default: 0, the peer of the connection.
    ///
    /// Correct only if every request passes all of them. A client that can bypass the proxies can forge the header; in
    /// that case use [`behind_networks`](Self::behind_networks).
    pub fn behind_proxies(self, count: u8) -> Self {
        Self { trust: Trust::Hops(count), ..self }
    }

    /// Uses the nearest address outside `networks`, the addresses of your proxies: CIDR blocks such as `10.0.0.0/8`, or
    /// single addresses. Checked when the layer is built.
    pub fn behind_networks(mut self, networks: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut trusted = Vec::new();
        for network in networks {
            match network_of(network.as_ref()) {
                Some(network) => trusted.push(canonical_network(network)),
                None => self.reject(network.as_ref()),
            }
        }
        Self { trust: Trust::Networks(trusted.into()), ..self }
    }

    /// Reads the peer's address with `peer` instead of looking for a [`SocketAddr`].
    pub fn peer_from(self, peer: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        Self { peer: Arc::new(peer), ..self }
    }

    /// Reads this header instead of `X-Forwarded-For`, such as `CF-Connecting-IP`. Checked when the layer is built.
    ///
    /// The proxy must set it or append to it on the right; the client controls a header that the proxy passes through.
    pub fn header(mut self, name: &str) -> Self {
        match name.parse() {
            Ok(name) => self.header = name,
            Err(_) => self.reject(name),
        }
        self
    }

    /// Counts IPv6 clients by this number of leading bits; above 128 means all of them. Default: 64.
    pub fn ipv6_prefix(self, bits: u8) -> Self {
        Self { ipv6_prefix: bits.min(128), ..self }
    }

    fn reject(&mut self, wrong: &str) {
        self.wrong.get_or_insert_with(|| wrong.into());
    }

    fn key(&self, address: IpAddr) -> Key {
        match address {
            IpAddr::V4(address) => Key::from(format!("ip:{address}")),
            IpAddr::V6(address) => {
                let network = leading_bits(address, self.ipv6_prefix);
                Key::from(format!("ip:{network}/{}", self.ipv6_prefix))
            }
        }
    }
}

fn network_of(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse().map(|address: IpAddr| IpNet::from(address)).ok())
}

impl KeyExtractor for ClientIp {
    fn extract(&self, request: &Parts) -> Result<Key, MissingKey> {
        let peer = (self.peer)(&request.extensions).ok_or(MissingKey::Server)?;
        let lines = request.headers.get_all(&self.header).iter();
        Ok(self.key(client(&self.trust, peer, lines)))
    }

    fn validate(&self) -> Result<(), BuildError> {
        self.wrong.clone().map_or(Ok(()), |wrong| Err(BuildError::InvalidName(wrong)))
    }
}

debug_fields!([] ClientIp, |it| trust = it.trust, header = it.header, ipv6_prefix = it.ipv6_prefix);

fn leading_bits(address: Ipv6Addr, bits: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    Ipv6Addr::from_bits(address.to_bits() & mask)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn from(peer: &str, forwarded: &[&str]) -> Parts {
        let peer: IpAddr = peer.parse().unwrap();
        let request = Request::builder().extension(SocketAddr::new(peer, 443));
        let request = forwarded.iter().fold(request, |r, line| r.header("x-forwarded-for", *line));
        request.body(()).unwrap().into_parts().0
    }

    fn key(who: &ClientIp, request: &Parts) -> String {
        String::from_utf8(who.extract(request).unwrap().as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn no_header_is_believed_by_default() {
        assert_eq!(key(&client_ip(), &from("192.0.2.7", &["198.51.100.1"])), "ip:192.0.2.7");
    }

    #[test]
    fn an_ipv6_customer_has_one_budget_and_its_neighbour_another() {
        let who = client_ip();
        assert_eq!(key(&who, &from("2001:db8:0:1::1", &[])), "ip:2001:db8:0:1::/64");
        assert_eq!(key(&who, &from("2001:db8:0:1:ffff::9", &[])), "ip:2001:db8:0:1::/64");
        assert_eq!(key(&who, &from("2001:db8:0:2::1", &[])), "ip:2001:db8:0:2::/64");
        for (bits, expected) in [(0, "ip:::/0"), (56, "ip:2001:db8::/56"), (200, "ip:2001:db8:0:1::1/128")] {
            assert_eq!(key(&who.clone().ipv6_prefix(bits), &from("2001:db8:0:1::1", &[])), expected);
        }
    }

    #[test]
    fn two_ipv4_clients_behind_a_translator_have_two_budgets() {
        let who = client_ip();
        assert_eq!(key(&who, &from("64:ff9b::c000:207", &[])), "ip:192.0.2.7");
        assert_eq!(key(&who, &from("64:ff9b::c633:6401", &[])), "ip:198.51.100.1");
    }

    #[test]
    fn a_network_written_as_mapped_ipv4_holds_our_proxies() {
        let who = client_ip().behind_networks(["::ffff:10.0.0.0/104"]);
        for proxy in ["10.0.0.1", "::ffff:10.0.0.1"] {
            assert_eq!(key(&who, &from(proxy, &["192.0.2.7"])), "ip:192.0.2.7");
        }
    }

    #[cfg(feature = "axum")]
    #[test]
    fn the_peer_is_found_where_axum_puts_it() {
        let peer = SocketAddr::from(([192, 0, 2, 7], 443));
        let request = Request::builder().extension(axum::extract::ConnectInfo(peer)).body(()).unwrap();
        assert_eq!(key(&client_ip().behind_proxies(1), &request.into_parts().0), "ip:192.0.2.7");
    }

    #[test]
    fn a_mapped_ipv4_address_is_that_ipv4_address() {
        assert_eq!(key(&client_ip(), &from("::ffff:192.0.2.7", &[])), "ip:192.0.2.7");
    }

    #[test]
    fn without_a_peer_the_server_is_to_blame() {
        let request = Request::new(()).into_parts().0;
        assert_eq!(client_ip().behind_proxies(1).extract(&request), Err(MissingKey::Server));
    }

    #[test]
    fn another_header_can_carry_the_client() {
        let who = client_ip().behind_proxies(1).header("CF-Connecting-IP");
        let mut request = from("10.0.0.1", &["6.6.6.6"]);
        request.headers.insert("cf-connecting-ip", "192.0.2.7".parse().unwrap());
        assert_eq!(key(&who, &request), "ip:192.0.2.7");
    }

    #[test]
    fn invalid_networks_and_headers_are_reported() {
        assert!(client_ip().behind_networks(["10.0.0.0/8", "192.0.2.1", "2001:db8::/32"]).validate().is_ok());
        let wrong = client_ip().behind_networks(["10.0.0.0/8", "10.0.0.0/99"]).header("no header");
        assert_eq!(wrong.validate(), Err(BuildError::InvalidName("10.0.0.0/99".into())));
        let wrong = client_ip().header("no header");
        assert_eq!(wrong.validate(), Err(BuildError::InvalidName("no header".into())));
    }
}

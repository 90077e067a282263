//! Reads `X-Forwarded-For` from the right, past trusted proxies and no further.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str;
use std::sync::Arc;

use http::HeaderValue;
use ipnet::{IpNet, Ipv4Net};

/// Maximum number of entries that are read, whatever was configured or sent.
const HOPS_MAX: usize = 32;

/// Trusted proxies.
#[derive(Clone, Debug)]
pub(super) enum Trust {
    /// This number of proxies, counted from the server.
    Hops(u8),
    /// Proxies with an address in one of these networks.
    Networks(Arc<[IpNet]>),
}

impl Trust {
    /// Returns whether the address found after `passed` trusted hops is a trusted proxy.
    fn holds(&self, passed: usize, address: IpAddr) -> bool {
        match self {
            Self::Hops(count) => passed < usize::from(*count),
            Self::Networks(networks) => networks.iter().any(|network| network.contains(&address)),
        }
    }
}

/// Returns the farthest address reported by a trusted proxy; the peer, if it is not a trusted proxy.
pub(super) fn client<'a>(
    trust: &Trust,
    peer: IpAddr,
    lines: impl DoubleEndedIterator<Item = &'a HeaderValue>,
) -> IpAddr {
    let mut entries = lines.rev().flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    let mut farthest = canonical(peer);
    for passed in 0..HOPS_MAX {
        if !trust.holds(passed, farthest) {
            break;
        }
        let Some(next) = entries.next().and_then(address) else { break };
        farthest = next;
    }
    farthest
}

/// Parses one entry: an address, with or without a port. Anything else, also an empty entry, is no address.
fn address(entry: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(entry).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().or_else(|_| text.parse().map(|socket: SocketAddr| socket.ip()));
    address.ok().map(canonical)
}

/// Returns the IPv4 address that an IPv6 address represents, if there is one: mapped (`::ffff:0:0/96`), compatible
/// (`::/96`), or translated (NAT64, RFC 6052 and RFC 8215). A translator puts all IPv4 clients into one /64.
pub(super) fn canonical(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => embedded(v6.to_bits()).map_or(IpAddr::V6(v6), IpAddr::V4),
        v4 => v4,
    }
}

/// The same for a network: one of IPv4 addresses in their IPv6 form becomes that IPv4 network.
pub(super) fn canonical_network(network: IpNet) -> IpNet {
    let bits = network.prefix_len().checked_sub(EMBEDDED_AT);
    match (canonical(network.network()), bits) {
        (IpAddr::V4(v4), Some(bits)) if network.addr().is_ipv6() => {
            Ipv4Net::new(v4, bits).map_or(network, IpNet::V4)
        }
        _ => network,
    }
}

/// Offset, in bits, of an IPv4 address at the end of an IPv6 address.
const EMBEDDED_AT: u8 = 96;
/// `64:ff9b::/96`, the well-known prefix of translators.
const NAT64: u128 = 0x0064_ff9b << 96;
/// `64:ff9b:1::/48`, the prefix for local use.
const NAT64_LOCAL: u128 = NAT64 | 1 << 80;

fn embedded(bits: u128) -> Option<Ipv4Addr> {
    let (prefix_96, last_32) = (bits >> 32 << 32, Ipv4Addr::from_bits(bits as u32));
    let is_local = bits >> 80 == NAT64_LOCAL >> 80;
    // Behind a prefix of 48 bits the address surrounds an octet of zeros, and zeros follow it.
    let around = bits >> 64 & 0xff_ffff == bits >> 64 & 0xff_ff00 && bits & 0xff_ffff_ffff == 0;
    let middle = (bits >> 48 & 0xffff_0000) as u32 | (bits >> 40 & 0xffff) as u32;
    match prefix_96 {
        // `::` and `::1` are addresses of their own.
        0 if bits > 1 => Some(last_32),
        NAT64 | NAT64_LOCAL => Some(last_32),
        _ if is_local && around => Some(Ipv4Addr::from_bits(middle)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn read(trust: &Trust, peer: &str, lines: &[&str]) -> IpAddr {
        let lines: Vec<_> =
            lines.iter().map(|line| HeaderValue::from_bytes(line.as_bytes()).unwrap()).collect();
        client(trust, ip(peer), lines.iter())
    }

    fn ours() -> Trust {
        Trust::Networks(["10.0.0.0/8", "fd00::/8"].map(|net| net.parse().unwrap()).into())
    }

    #[test]
    fn each_trusted_hop_reads_one_entry_more() {
        let lines = ["6.6.6.6, 192.0.2.7", "10.0.0.2"];
        let by_hops = |count| read(&Trust::Hops(count), "10.0.0.1", &lines);
        assert_eq!([0, 1, 2, 3].map(by_hops), ["10.0.0.1", "10.0.0.2", "192.0.2.7", "6.6.6.6"].map(ip));
        assert_eq!(by_hops(9), ip("6.6.6.6"), "past the end the farthest stays");
        assert_eq!(read(&ours(), "10.0.0.1", &lines), ip("192.0.2.7"));
    }

    #[test]
    fn a_peer_that_bypasses_the_proxies_is_its_own_client() {
        assert_eq!(read(&ours(), "192.0.2.66", &["198.51.100.1"]), ip("192.0.2.66"));
    }

    #[test]
    fn an_entry_that_is_no_address_ends_at_the_proxy_that_wrote_it() {
        for garbage in ["unknown", "", "_hidden", "1.2.3", "999.1.1.1", "unix:", "\u{e9}"] {
            let line = format!("6.6.6.6, {garbage}");
            assert_eq!(read(&Trust::Hops(1), "10.0.0.1", &[&line]), ip("10.0.0.1"), "{garbage:?}");
            assert_eq!(read(&Trust::Hops(2), "10.0.0.1", &[&line]), ip("10.0.0.1"), "{garbage:?}");
            assert_eq!(read(&ours(), "10.0.0.1", &[&line]), ip("10.0.0.1"), "{garbage:?}");
        }
    }

    #[test]
    fn ports_brackets_and_mapped_addresses_are_read() {
        for (entry, expected) in [
            ("192.0.2.7:5050", "192.0.2.7"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            (" 2001:db8::1\t", "2001:db8::1"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
        ] {
            assert_eq!(read(&Trust::Hops(1), "10.0.0.1", &[entry]), ip(expected), "{entry}");
        }
        assert_eq!(read(&ours(), "::ffff:10.0.0.1", &["192.0.2.7"]), ip("192.0.2.7"));
    }

    #[test]
    fn ipv4_addresses_in_ipv6_form_are_those_ipv4_addresses() {
        for (written, expected) in [
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("::192.0.2.7", "192.0.2.7"),
            ("64:ff9b::192.0.2.7", "192.0.2.7"),
            ("64:ff9b::198.51.100.1", "198.51.100.1"),
            ("64:ff9b:1::192.0.2.7", "192.0.2.7"),
            ("64:ff9b:1:c000:2:700::", "192.0.2.7"),
            ("::1", "::1"),
            ("::", "::"),
            ("64:ff9b:1:1::192.0.2.7", "64:ff9b:1:1::c000:207"),
            ("64:ff9b:2::192.0.2.7", "64:ff9b:2::c000:207"),
            ("2001:db8::192.0.2.7", "2001:db8::c000:207"),
        ] {
            assert_eq!(canonical(ip(written)), ip(expected), "{written}");
        }
    }

    #[test]
    fn networks_of_ipv4_addresses_in_ipv6_form_are_those_ipv4_networks() {
        for (written, expected) in [
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.1.2.3/128", "10.1.2.3/32"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("64:ff9b::10.0.0.0/104", "10.0.0.0/8"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("fd00::/8", "fd00::/8"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(canonical_network(written.parse().unwrap()), expected.parse().unwrap(), "{written}");
        }
    }

    /// Position at which our proxies append to the client's header.
    #[derive(Debug, Clone)]
    enum Append {
        ToTheLastLine,
        AsALine,
    }

    prop_compose! {
        fn attack()(lines in prop::collection::vec(
            prop_oneof![
                "[ -~]{0,40}",
                "(10\\.0\\.0\\.[0-9]{1,2}, ?){0,40}",
                "([0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3},? ?){0,5}",
                ",{0,50}",
            ], 0..4)) -> Vec<String> { lines }
    }

    fn sent(mut lines: Vec<String>, proxies: &[(&str, Append)]) -> Vec<HeaderValue> {
        for (entry, append) in proxies {
            match (append, lines.last_mut()) {
                (Append::ToTheLastLine, Some(last)) => *last = format!("{last}, {entry}"),
                _ => lines.push((*entry).to_owned()),
            }
        }
        lines.iter().map(|line| HeaderValue::from_str(line).unwrap()).collect()
    }

    proptest! {
        #[test]
        fn whatever_a_client_sends_it_cannot_choose_its_own_address(
            attack in attack(),
            first in prop_oneof![Just(Append::ToTheLastLine), Just(Append::AsALine)],
            second in prop_oneof![Just(Append::ToTheLastLine), Just(Append::AsALine)],
        ) {
            let real = ip("192.0.2.7");
            let two = sent(attack.clone(), &[("192.0.2.7", first.clone()), ("10.0.0.9", second)]);
            prop_assert_eq!(client(&Trust::Hops(2), ip("10.0.0.1"), two.iter()), real);
            prop_assert_eq!(client(&ours(), ip("10.0.0.1"), two.iter()), real);

            let one = sent(attack.clone(), &[("192.0.2.7", first)]);
            prop_assert_eq!(client(&Trust::Hops(1), ip("10.0.0.1"), one.iter()), real);

            let none = sent(attack, &[]);
            prop_assert_eq!(client(&Trust::Hops(0), real, none.iter()), real);
            prop_assert_eq!(client(&ours(), real, none.iter()), real);
        }

        #[test]
        fn any_bytes_are_read_without_panic(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..4)) {
            let lines: Vec<_> = lines.iter().filter_map(|line| HeaderValue::from_bytes(line).ok()).collect();
            client(&Trust::Hops(u8::MAX), ip("10.0.0.1"), lines.iter());
            client(&ours(), ip("10.0.0.1"), lines.iter());
        }
    }
}

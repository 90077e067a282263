//! Reads `X-Forwarded-For` from the right, past our own proxies and no further.

use std::net::{IpAddr, SocketAddr};
use std::str;
use std::sync::Arc;

use http::HeaderValue;
use ipnet::IpNet;

/// The most entries that are read, whatever was configured or sent.
const HOPS_MAX: usize = 32;

/// Which proxies are ours.
#[derive(Clone, Debug)]
pub(super) enum Trust {
    /// This many, counted from the server.
    Hops(u8),
    /// Those with an address in one of these networks.
    Networks(Arc<[IpNet]>),
}

impl Trust {
    /// Whether the address found after `passed` trusted hops is a proxy of ours.
    fn holds(&self, passed: usize, address: IpAddr) -> bool {
        match self {
            Self::Hops(count) => passed < usize::from(*count),
            Self::Networks(networks) => networks.iter().any(|network| network.contains(&address)),
        }
    }
}

/// The farthest address that a trusted proxy vouches for; the peer, if it is no proxy of ours.
pub(super) fn client<'a>(
    trust: &Trust,
    peer: IpAddr,
    lines: impl DoubleEndedIterator<Item = &'a HeaderValue>,
) -> IpAddr {
    let mut entries = lines.rev().flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    let mut farthest = peer.to_canonical();
    for passed in 0..HOPS_MAX {
        if !trust.holds(passed, farthest) {
            break;
        }
        let Some(next) = entries.next().and_then(address) else { break };
        farthest = next;
    }
    farthest
}

/// One entry: an address, with or without a port. Everything else, also nothing, is no address.
fn address(entry: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(entry).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().or_else(|_| text.parse().map(|socket: SocketAddr| socket.ip()));
    address.ok().map(|address: IpAddr| address.to_canonical())
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
    fn a_stranger_who_comes_around_the_proxies_is_its_own_client() {
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

    /// What our proxies add after whatever the client sent.
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

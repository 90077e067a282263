//! The hash slot of a key in a cluster.

pub(crate) const SLOTS: u16 = 16_384;

/// Returns the cluster slot of a key: the hash of the part in its first braces, if there is one.
pub fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16::State::<crc16::XMODEM>::calculate(hashed.as_bytes()) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(slot_of("123456789"), 0x31c3);
        assert_eq!(slot_of("{user1000}.following"), slot_of("{user1000}.followers"));
        assert_eq!(slot_of("foo{bar}{zap}"), slot_of("bar"));
        assert_ne!(slot_of("foo{}{bar}"), slot_of("bar"), "an empty tag is none");
    }
}

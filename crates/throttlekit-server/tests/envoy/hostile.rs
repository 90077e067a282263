//! Headers as no honest client sends them.

/// The most bytes of all headers that Envoy takes by default.
const BYTES_MAX: u64 = 60 * 1024;

/// What keys, patterns and logs use themselves.
const MARKS: &[u8] = b"|\\#*/;,=%{}\"'<>&?";

/// Headers of a client that has used up what it may as `mallory` of `acme`, with whatever else this seed makes: names that
/// rules look at and others, none, one or several times, of 0 to 60 KiB, of bytes of all kinds but the end of a line.
pub(crate) fn headers(seed: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bd1_e995);
    let mut lines = vec![b"x-tenant: acme\r\n".to_vec(), b"x-member: mallory\r\n".to_vec()];
    for _ in 0..random.below(4) {
        let name = ["x-user", "x-user", "x-user", "x-rows", "x-tokens", "authorization", "x-other"];
        let mut line = name[random.below(name.len() as u64) as usize].as_bytes().to_vec();
        line.extend(b": ");
        line.extend(value(&mut random));
        line.extend(b"\r\n");
        let at = random.below(lines.len() as u64 + 1) as usize;
        lines.insert(at, line);
    }
    lines.concat()
}

fn value(random: &mut Random) -> Vec<u8> {
    let length = match random.below(6) {
        0 => random.below(3),
        1 => random.below(64),
        2 => 1_020 + random.below(10),
        3 => 8_187 + random.below(12),
        4 => random.below(16 * 1024),
        _ => random.below(BYTES_MAX),
    };
    let kind = random.below(5);
    (0..length)
        .map(|_| match kind {
            0 => b'a',
            1 => MARKS[random.below(MARKS.len() as u64) as usize],
            2 => 0x80 + random.below(0x80) as u8,
            3 => 0x20 + random.below(0x5f) as u8,
            _ => match random.below(256) as u8 {
                b'\r' | b'\n' => b'\t',
                byte => byte,
            },
        })
        .collect()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

//! Headers as no honest client sends them.

use throttlekit_conformance::Dice;

/// The most bytes of all headers that Envoy takes by default.
const BYTES_MAX: u64 = 60 * 1024;

/// Characters that keys, patterns and logs use.
const MARKS: &[u8] = b"|\\#*/;,=%{}\"'<>&?";

/// Headers of a client that has used up what it may as `mallory` of `acme`, with whatever else this seed makes: names that
/// rules look at and others, none, one or several times, of 0 to 60 KiB, of bytes of all kinds but the end of a line.
pub(crate) fn headers(seed: u64) -> Vec<u8> {
    let mut dice = Dice::new(seed);
    let mut lines = vec![b"x-tenant: acme\r\n".to_vec(), b"x-member: mallory\r\n".to_vec()];
    for _ in 0..dice.below(4) {
        let name = ["x-user", "x-user", "x-user", "x-rows", "x-tokens", "authorization", "x-other"];
        let mut line = dice.pick(&name).as_bytes().to_vec();
        line.extend(b": ");
        line.extend(value(&mut dice));
        line.extend(b"\r\n");
        let at = dice.below(lines.len() as u64 + 1) as usize;
        lines.insert(at, line);
    }
    lines.concat()
}

fn value(dice: &mut Dice) -> Vec<u8> {
    let length = match dice.below(6) {
        0 => dice.below(3),
        1 => dice.below(64),
        2 => 1_020 + dice.below(10),
        3 => 8_187 + dice.below(12),
        4 => dice.below(16 * 1024),
        _ => dice.below(BYTES_MAX),
    };
    let kind = dice.below(5);
    (0..length)
        .map(|_| match kind {
            0 => b'a',
            1 => dice.pick(MARKS),
            2 => 0x80 + dice.below(0x80) as u8,
            3 => 0x20 + dice.below(0x5f) as u8,
            _ => match dice.below(256) as u8 {
                b'\r' | b'\n' => b'\t',
                byte => byte,
            },
        })
        .collect()
}

//! IDs of leases as clients send them: 128 random bits in 32 hexadecimal digits.

use throttlekit::store::LeaseId;

const DIGITS: usize = 32;

pub(crate) fn written(lease: LeaseId) -> String {
    format!("{:032x}", lease.0)
}

/// Parses a lease ID; `None` if it cannot be one.
pub(crate) fn read(name: &str) -> Option<LeaseId> {
    let plain = name.len() == DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u128::from_str_radix(name, 16).ok().map(LeaseId)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written_and_nothing_else_is() {
        for lease in [LeaseId(0), LeaseId(7), LeaseId(u128::MAX)] {
            assert_eq!(read(&written(lease)), Some(lease));
        }
        for wrong in ["", "7", "+0000000000000000000000000000007", "zz000000000000000000000000000000"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}

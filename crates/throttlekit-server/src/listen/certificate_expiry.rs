//! The expiry of a certificate, read from its DER.

use throttlekit::rate::Timestamp;

use crate::date_time;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns the instant at which a certificate expires (`notAfter`), if it can be read. webpki verifies it without
/// exposing it.
pub(super) fn expires(certificate: &[u8]) -> Option<Timestamp> {
    // Certificate { tbsCertificate { [0] version, serialNumber, signature, issuer, validity { notBefore, notAfter } … } … }
    let (_, certificate, _) = element(certificate).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (_, mut rest, _) = element(certificate).filter(|(tag, ..)| *tag == SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    for _serial_signature_issuer in 0..3 {
        rest = element(rest)?.2;
    }
    let (_, validity, _) = element(rest).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (_, _, rest) = element(validity)?;
    let (tag, not_after, _) = element(rest)?;
    [UTC_TIME, GENERALIZED_TIME].contains(&tag).then(|| date_time::parse_x509(not_after)).flatten()
}

/// Returns the tag and the content of the first element, and the rest after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [tag, first, rest @ ..] = der else { return None };
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_read_before_and_after_2050() {
        for (year, seconds) in [(2031, 1_930_003_200), (2061, 2_876_774_400_u64)] {
            let mut params = rcgen::CertificateParams::new(vec!["a.example".into()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 2, 28);
            let made = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
            let at = Timestamp::EPOCH + Duration::from_secs(seconds);
            assert_eq!(expires(made.der()), Some(at), "{year}");
            for cut in 0..made.der().len().min(200) {
                assert_eq!(expires(&made.der()[..cut]), None);
            }
        }
        assert_eq!(expires(b"nonsense"), None);
        assert_eq!(expires(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}

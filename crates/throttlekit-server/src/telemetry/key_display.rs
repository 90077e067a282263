//! Keys for display: on one line, short, and safe for a terminal.

use throttlekit::hash::{KeyHash, SecretHash};

/// Maximum number of bytes that are shown of a key.
pub(super) const SHOWN_MAX: usize = 128;

/// Display format of keys.
pub(super) enum KeyDisplay {
    /// As text, with everything else escaped.
    Plain,
    /// As a number that represents the key while this process runs, and that cannot be computed elsewhere.
    Hashed(SecretHash),
}

impl KeyDisplay {
    pub(super) fn new(hash: bool) -> Self {
        if hash { Self::Hashed(SecretHash::random()) } else { Self::Plain }
    }

    pub(super) fn show(&self, key: &[u8]) -> String {
        match self {
            Self::Plain => escaped(key),
            Self::Hashed(hash) => format!("#{:016x}", hash.fingerprint(key)),
        }
    }
}

/// Formats a key in at most [`SHOWN_MAX`] bytes. A backslash is doubled, so that different keys look different.
fn escaped(key: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in key.utf8_chunks() {
        for character in chunk.valid().chars() {
            let piece = match character {
                '\\' => "\\\\".to_owned(),
                _ if is_tricky(character) => character.escape_default().to_string(),
                _ => character.to_string(),
            };
            if !push(&mut shown, &piece) {
                return shown;
            }
        }
        for byte in chunk.invalid() {
            if !push(&mut shown, &format!("\\x{byte:02x}")) {
                return shown;
            }
        }
    }
    shown
}

/// Appends a piece as a whole, or an ellipsis instead if it would be too long.
fn push(shown: &mut String, piece: &str) -> bool {
    const MORE: char = '…';
    let fits = shown.len() + piece.len() <= SHOWN_MAX - MORE.len_utf8();
    if fits {
        shown.push_str(piece);
    } else {
        shown.push(MORE);
    }
    fits
}

/// Checks for control characters, and those that change the direction of text or have no width.
fn is_tricky(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_and_whatever_moves_a_cursor_or_turns_text_is_escaped() {
        let plain = KeyDisplay::new(false);
        assert_eq!(plain.show("tenant/ü-1 😀".as_bytes()), "tenant/ü-1 😀");
        assert_eq!(plain.show(b"a\x1b[2Jb\r\n\\"), "a\\u{1b}[2Jb\\r\\n\\\\");
        assert_eq!(plain.show("x\u{202e}y".as_bytes()), "x\\u{202e}y");
        assert_eq!(plain.show(b"\xff\0"), "\\xff\\u{0}");
    }

    #[test]
    fn a_shown_key_has_no_more_bytes_than_the_most() {
        for key in [vec![b'a'; 5_000], vec![0xff; 5_000], "ü".repeat(900).into_bytes(), vec![0; 900]] {
            let shown = KeyDisplay::new(false).show(&key);
            assert!(shown.len() <= SHOWN_MAX && shown.ends_with('…'), "{shown}");
        }
        let fits = "a".repeat(SHOWN_MAX - 3);
        assert_eq!(KeyDisplay::new(false).show(fits.as_bytes()), fits);
    }

    #[test]
    fn a_hashed_key_shows_nothing_of_itself_and_is_the_same_each_time() {
        let hashed = KeyDisplay::new(true);
        let shown = hashed.show(b"alice");
        assert_eq!(shown, hashed.show(b"alice"));
        assert!(
            shown.len() == 17
                && shown != hashed.show(b"bob")
                && shown != KeyDisplay::new(true).show(b"alice")
        );
    }
}

//! The parser of RESP2 requests: arrays of bulk strings, and inline commands.
//!
//! Pure, and without allocation: a command is slices of the bytes that were received.

use std::fmt;

/// Maximum number of arguments of a command, including its name.
const ARGS_MAX: usize = 256;
/// Number of arguments that are kept: no command that is supported has more.
const ARGS_KEPT: usize = 8;
/// Maximum number of digits of a length.
const DIGITS_MAX: usize = 8;

/// A command, as slices of what was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Command<'a> {
    kept: [&'a [u8]; ARGS_KEPT],
    count: usize,
}

impl<'a> Command<'a> {
    /// Returns the number of arguments, including the name. An empty line is a command of none.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the arguments that are kept, the name first.
    pub(super) fn args(&self) -> &[&'a [u8]] {
        &self.kept[..self.count.min(ARGS_KEPT)]
    }

    /// Returns the name; empty if there is none.
    pub(super) fn name(&self) -> &'a [u8] {
        self.kept[0]
    }

    fn push(&mut self, arg: &'a [u8]) -> Result<(), ProtocolError> {
        if self.count == ARGS_MAX {
            return Err(ProtocolError::TooManyArguments);
        }
        if let Some(place) = self.kept.get_mut(self.count) {
            *place = arg;
        }
        self.count += 1;
        Ok(())
    }
}

/// A violation of the protocol, after which the next command cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProtocolError {
    TooManyArguments,
    TooLong(usize),
    InvalidLength,
    NoBulkString(u8),
    NoLineEnd,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Self::TooManyArguments => write!(f, "too many arguments: at most {ARGS_MAX} are allowed"),
            Self::TooLong(max) => write!(f, "command too long: at most {max} bytes are allowed"),
            Self::InvalidLength => f.write_str("invalid length: expected digits and CRLF"),
            Self::NoBulkString(got) => write!(f, "expected '$', got '{}'", got.escape_ascii()),
            Self::NoLineEnd => f.write_str("expected CRLF after a bulk string"),
        }
    }
}

/// Reason why there is no command.
enum Stop {
    /// The rest has not been received.
    Incomplete,
    Violation(ProtocolError),
}

impl From<ProtocolError> for Stop {
    fn from(error: ProtocolError) -> Self {
        Self::Violation(error)
    }
}

/// Parses the command at the beginning of `bytes`; returns it with its length, or `None` if it is incomplete. A command
/// of more than `bytes_max` bytes is an error as soon as that is certain.
pub(super) fn parse(bytes: &[u8], bytes_max: usize) -> Result<Option<(Command<'_>, usize)>, ProtocolError> {
    let parsed = match bytes.first() {
        None => return Ok(None),
        Some(b'*') => array(Reader { bytes, at: 1 }, bytes_max),
        Some(_) => inline(bytes),
    };
    match parsed {
        Ok((_, length)) if length > bytes_max => Err(ProtocolError::TooLong(bytes_max)),
        Ok(parsed) => Ok(Some(parsed)),
        Err(Stop::Violation(error)) => Err(error),
        Err(Stop::Incomplete) if bytes.len() >= bytes_max => Err(ProtocolError::TooLong(bytes_max)),
        Err(Stop::Incomplete) => Ok(None),
    }
}

fn array(mut reader: Reader<'_>, bytes_max: usize) -> Result<(Command<'_>, usize), Stop> {
    let count = reader.length()?;
    if count > ARGS_MAX {
        return Err(ProtocolError::TooManyArguments.into());
    }
    let mut command = Command::default();
    for _ in 0..count {
        match reader.byte()? {
            b'$' => {}
            other => return Err(ProtocolError::NoBulkString(other).into()),
        }
        let length = reader.length()?;
        if length > bytes_max {
            return Err(ProtocolError::TooLong(bytes_max).into());
        }
        command.push(reader.bulk(length)?)?;
    }
    Ok((command, reader.at))
}

/// Parses a line of words, as people type it.
fn inline(bytes: &[u8]) -> Result<(Command<'_>, usize), Stop> {
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or(Stop::Incomplete)?;
    let mut command = Command::default();
    for word in bytes[..end].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        command.push(word)?;
    }
    Ok((command, end + 1))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, Stop> {
        let byte = self.bytes.get(self.at).ok_or(Stop::Incomplete)?;
        self.at += 1;
        Ok(*byte)
    }

    /// Reads digits and the end of their line.
    fn length(&mut self) -> Result<usize, Stop> {
        let mut length = 0;
        for digits in 0..=DIGITS_MAX {
            match self.byte()? {
                digit @ b'0'..=b'9' => length = length * 10 + usize::from(digit - b'0'),
                b'\r' if digits > 0 => {
                    return self.line_end(b"\n", ProtocolError::InvalidLength).map(|()| length);
                }
                _ => break,
            }
        }
        Err(ProtocolError::InvalidLength.into())
    }

    fn bulk(&mut self, length: usize) -> Result<&'a [u8], Stop> {
        let bulk = self.bytes.get(self.at..self.at + length).ok_or(Stop::Incomplete)?;
        self.at += length;
        self.line_end(b"\r\n", ProtocolError::NoLineEnd)?;
        Ok(bulk)
    }

    fn line_end(&mut self, end: &[u8], otherwise: ProtocolError) -> Result<(), Stop> {
        for expected in end {
            if self.byte()? != *expected {
                return Err(otherwise.into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: usize = 8 << 10;

    fn encode(args: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            bytes.extend(format!("${}\r\n", arg.len()).bytes());
            bytes.extend(arg);
            bytes.extend(b"\r\n");
        }
        bytes
    }

    /// Receives these parts one after the other; returns the commands and the error that ended them.
    fn receive(parts: &[&[u8]], max: usize) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
        let (mut buffer, mut commands) = (Vec::new(), Vec::new());
        for part in parts {
            buffer.extend_from_slice(part);
            loop {
                match parse(&buffer, max) {
                    Ok(Some((command, length))) => {
                        commands.push(command.args().iter().map(|arg| arg.to_vec()).collect());
                        buffer.drain(..length);
                    }
                    Ok(None) => break,
                    Err(error) => return (commands, Some(error)),
                }
            }
        }
        (commands, None)
    }

    fn words(bytes: &[u8]) -> Vec<&[u8]> {
        let (command, length) = parse(bytes, MAX).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        command.args().to_vec()
    }

    #[test]
    fn arrays_and_lines_are_the_same_command() {
        let expected: [&[u8]; 3] = [b"CL.THROTTLE", b"api:k", b"2"];
        assert_eq!(words(b"*3\r\n$11\r\nCL.THROTTLE\r\n$5\r\napi:k\r\n$1\r\n2\r\n"), expected);
        assert_eq!(words(b"CL.THROTTLE api:k 2\r\n"), expected);
        assert_eq!(words(b"  CL.THROTTLE\tapi:k   2 \n"), expected);
        assert_eq!(words(b"*1\r\n$4\r\na\r\nb\r\n"), [b"a\r\nb"], "bulk strings are binary");
    }

    #[test]
    fn empty_lines_and_empty_arrays_are_commands_of_nothing() {
        for bytes in [&b"\r\n"[..], b"\n", b"   \r\n", b"*0\r\n"] {
            let (command, length) = parse(bytes, MAX).unwrap().unwrap();
            assert_eq!((command.count(), command.name(), length), (0, &b""[..], bytes.len()));
        }
    }

    #[test]
    fn further_arguments_are_counted_and_not_kept() {
        let args = vec![b"x".to_vec(); ARGS_MAX];
        let bytes = encode(&args);
        let (command, length) = parse(&bytes, MAX).unwrap().unwrap();
        assert_eq!((command.count(), command.args().len(), length), (ARGS_MAX, ARGS_KEPT, bytes.len()));
        let line = "x ".repeat(ARGS_MAX + 1) + "\r\n";
        assert_eq!(parse(line.as_bytes(), MAX), Err(ProtocolError::TooManyArguments));
    }

    #[test]
    fn hostile_input_is_an_error_as_soon_as_it_is_certain() {
        use ProtocolError::{InvalidLength, NoBulkString, NoLineEnd, TooLong, TooManyArguments};
        let table: [(&[u8], ProtocolError); 16] = [
            (b"*257\r\n", TooManyArguments),
            (b"*99999999\r\n", TooManyArguments),
            (b"*9999999999", InvalidLength),
            (b"*99999999999999999999999999\r\n", InvalidLength),
            (b"*-1\r\n", InvalidLength),
            (b"*\r\n", InvalidLength),
            (b"*1\n", InvalidLength),
            (b"*1\rx", InvalidLength),
            (b"*+1\r\n", InvalidLength),
            (b"*1\r\n*1\r\n$1\r\nx\r\n", NoBulkString(b'*')),
            (b"*1\r\n:1\r\n", NoBulkString(b':')),
            (b"*1\r\n$-1\r\n", InvalidLength),
            (b"*1\r\n$8193\r\n", TooLong(MAX)),
            (b"*1\r\n$99999999\r\n", TooLong(MAX)),
            (b"*1\r\n$1\r\nxy", NoLineEnd),
            (b"*1\r\n$1\r\nx\rz", NoLineEnd),
        ];
        for (bytes, error) in table {
            assert_eq!(parse(bytes, MAX), Err(error), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn a_command_has_its_maximum_and_no_byte_more() {
        let fits = encode(&[vec![b'x'; 100]]);
        assert!(parse(&fits, fits.len()).unwrap().is_some());
        let max = fits.len() - 1;
        assert_eq!(parse(&fits, max), Err(ProtocolError::TooLong(max)));
        let endless = vec![b'x'; MAX];
        assert_eq!(parse(&endless[1..], MAX), Ok(None));
        assert_eq!(parse(&endless, MAX), Err(ProtocolError::TooLong(MAX)));
    }

    fn anything() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"\r\n".to_vec()),
            Just(b"*".to_vec()),
            Just(b"$".to_vec()),
            "[0-9]{1,3}".prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..6),
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn commands_are_the_same_wherever_they_are_split(
            commands in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..6), 1..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let bytes: Vec<u8> = commands.iter().flat_map(|args| encode(args)).collect();
            prop_assert_eq!(&receive(&[&bytes], MAX), &(commands.clone(), None));
            prop_assert_eq!(receive(&split(&bytes, &cuts), MAX), (commands, None));
        }

        #[test]
        fn any_bytes_are_the_same_wherever_they_are_split(
            bytes in anything(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            let whole = receive(&[&bytes], MAX);
            prop_assert_eq!(&receive(&split(&bytes, &cuts), MAX), &whole);
            prop_assert_eq!(receive(&single, MAX), whole);
        }
    }

    fn split<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
    }
}

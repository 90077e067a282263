//! Server-sent events, as far as models use them: `data:` lines, an empty line after each event.

/// What ends a stream.
pub const DONE: &str = "[DONE]";

/// No event of a model is longer; one that is comes from something else.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// One event, ready to be sent; each line of its data is a line of its own.
pub fn event(data: &str) -> String {
    let lines: String = data.split('\n').map(|line| format!("data: {line}\n")).collect();
    lines + "\n"
}

/// Puts events together from pieces that end anywhere.
#[derive(Debug, Default)]
pub struct Events {
    bytes: Vec<u8>,
    /// How far `bytes` have been read.
    read: usize,
    /// The data lines of the event that is being read.
    data: Option<String>,
}

/// An event is longer than any that a model sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Events {
    /// Takes in what has arrived.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), TooLong> {
        self.bytes.drain(..self.read);
        self.read = 0;
        self.bytes.extend_from_slice(piece);
        let pending = self.bytes.len() + self.data.as_ref().map_or(0, String::len);
        if pending > EVENT_BYTES_MAX + piece.len() { Err(TooLong) } else { Ok(()) }
    }

    /// The data of the next event that is complete.
    pub fn next_data(&mut self) -> Option<String> {
        while let Some(line) = self.next_line() {
            if line.is_empty() {
                if let Some(data) = self.data.take() {
                    return Some(data);
                }
            } else if let Some(data) = line.strip_prefix("data:") {
                self.add(data.strip_prefix(' ').unwrap_or(data));
            }
        }
        None
    }

    /// Several data lines of one event are one text of several lines.
    fn add(&mut self, line: &str) {
        match &mut self.data {
            Some(data) => *data = format!("{data}\n{line}"),
            None => self.data = Some(line.to_owned()),
        }
    }

    fn next_line(&mut self) -> Option<String> {
        let rest = &self.bytes[self.read..];
        let end = rest.iter().position(|&byte| byte == b'\n')?;
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        let line = String::from_utf8_lossy(line).into_owned();
        self.read += end + 1;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ": hello\r\ndata: one\n\nevent: x\ndata:two\ndata: lines ä\r\n\r\ndata: [DONE]\n\n";

    #[test]
    fn events_are_the_same_wherever_pieces_end() {
        for cut in 0..=STREAM.len() {
            let mut events = Events::default();
            let mut seen = Vec::new();
            for piece in [&STREAM.as_bytes()[..cut], &STREAM.as_bytes()[cut..]] {
                events.push(piece).unwrap();
                seen.extend(std::iter::from_fn(|| events.next_data()));
            }
            assert_eq!(seen, ["one", "two\nlines ä", DONE], "cut at {cut}");
        }
    }

    #[test]
    fn what_is_sent_is_what_is_read() {
        for data in ["one", "two\nlines", "\n", " spaces ", "{\n  \"a\": 1\n}"] {
            let mut events = Events::default();
            events.push(event(data).as_bytes()).unwrap();
            assert_eq!(events.next_data().as_deref(), Some(data));
            assert_eq!(events.next_data(), None);
        }
    }

    #[test]
    fn an_event_without_an_end_is_not_kept_for_ever() {
        let mut events = Events::default();
        let line = vec![b'x'; 1 << 16];
        let kept = (0..100).take_while(|_| events.push(&line).is_ok()).count();
        assert!((16..20).contains(&kept), "{kept}");
    }
}

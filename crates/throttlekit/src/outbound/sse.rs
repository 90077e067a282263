//! Server-sent events, as far as models use them: `event:` and `data:` lines, an empty line after each event.

use serde_json::Value;

/// Data of the event that ends a chat completion.
pub const DONE: &str = "[DONE]";

/// Maximum length of an event.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its name, from the `event:` line.
    pub name: Option<String>,
    /// Its data: the `data:` lines.
    pub data: String,
}

impl Event {
    /// Creates an event without a name.
    pub fn unnamed(data: impl Into<String>) -> Self {
        Self { name: None, data: data.into() }
    }

    /// Creates an event that is named after the `type` in its data.
    pub fn typed(data: &Value) -> Self {
        Self { name: data["type"].as_str().map(str::to_owned), data: data.to_string() }
    }

    /// Returns the event as it is sent. Each line of the data is a line of its own.
    pub fn encode(&self) -> String {
        let name = self.name.as_ref().map(|name| format!("event: {name}\n"));
        let data: String = self.data.split('\n').map(|line| format!("data: {line}\n")).collect();
        name.unwrap_or_default() + &data + "\n"
    }
}

/// Returns an event without a name, as it is sent.
pub fn event(data: &str) -> String {
    Event::unnamed(data).encode()
}

/// Assembles events from pieces that end anywhere.
#[derive(Debug, Default)]
pub struct Events {
    bytes: Vec<u8>,
    /// Position up to which `bytes` have been read.
    read: usize,
    /// Name of the event that is being read.
    name: Option<String>,
    /// Data lines of the event that is being read.
    data: Option<String>,
}

/// An event is longer than the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Events {
    /// Adds a piece.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), TooLong> {
        self.bytes.drain(..self.read);
        self.read = 0;
        self.bytes.extend_from_slice(piece);
        let pending = self.bytes.len() + self.data.as_ref().map_or(0, String::len);
        if pending > EVENT_BYTES_MAX + piece.len() { Err(TooLong) } else { Ok(()) }
    }

    /// Returns the next event that is complete.
    pub fn next_event(&mut self) -> Option<Event> {
        while let Some(line) = self.next_line() {
            if line.is_empty() {
                let name = self.name.take();
                if let Some(data) = self.data.take() {
                    return Some(Event { name, data });
                }
            } else if let Some(name) = line.strip_prefix("event:") {
                self.name = Some(name.strip_prefix(' ').unwrap_or(name).to_owned());
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
                seen.extend(std::iter::from_fn(|| events.next_event()));
            }
            let named = Event { name: Some("x".to_owned()), data: "two\nlines ä".to_owned() };
            assert_eq!(seen, [Event::unnamed("one"), named, Event::unnamed(DONE)], "cut at {cut}");
        }
    }

    #[test]
    fn encoded_events_are_decoded_unchanged() {
        for data in ["one", "two\nlines", "\n", " spaces ", "{\n  \"a\": 1\n}"] {
            let mut events = Events::default();
            for name in [None, Some("x".to_owned())] {
                let sent = Event { name, data: data.to_owned() };
                events.push(sent.encode().as_bytes()).unwrap();
                assert_eq!(events.next_event(), Some(sent));
            }
            assert_eq!(events.next_event(), None);
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

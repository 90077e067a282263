//! HTTP/2 as bytes: frames, and header blocks without compression.

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const ACK: u8 = 1;

/// The nine bytes before the payload of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl Head {
    pub(crate) fn read(bytes: [u8; 9]) -> Self {
        let [l0, l1, l2, kind, flags, stream @ ..] = bytes;
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        Self { length, kind, flags, stream: u32::from_be_bytes(stream) }
    }
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The first bytes of a client: the preface, its settings, and the acknowledgement of the server's.
pub(crate) fn opening(settings: &[u8]) -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, settings), &frame(SETTINGS, ACK, 0, &[])].concat()
}

/// A header as HPACK writes it in full, not to be remembered. Names and values below 127 bytes.
pub(crate) fn header(name: &str, value: &str) -> Vec<u8> {
    let short = |text: &str| u8::try_from(text.len()).ok().filter(|&length| length < 127).expect("short");
    [&[0, short(name)], name.as_bytes(), &[short(value)], value.as_bytes()].concat()
}

pub(crate) fn request_headers(path: &str) -> Vec<u8> {
    let pairs = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "server"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    pairs.iter().flat_map(|(name, value)| header(name, value)).collect()
}

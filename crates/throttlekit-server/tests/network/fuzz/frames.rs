//! HTTP/2 inputs: gRPC requests with mutated messages, and mutated frames.

use prost::Message;
use prost_types::FileDescriptorSet;
use throttlekit_fuzz::mutate::{Random, change, input};
use throttlekit_fuzz::seeds::{self, Seeds};
use throttlekit_proto::DESCRIPTORS;
use throttlekit_proto::v1::CheckRequest;

use super::replies::LAST_STREAM;
use crate::client::{CHECK, framed};
use crate::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame,
    header, opening, request_headers,
};

const PRIORITY: u8 = 2;
const PUSH_PROMISE: u8 = 5;
const GOAWAY: u8 = 7;
const PADDED: u8 = 8;
/// Stands for a random type.
const UNKNOWN: u8 = 0xFF;
/// The types of frames by weight. Types that almost always end the connection are rare.
const KINDS: [u8; 20] = [
    DATA,
    DATA,
    DATA,
    HEADERS,
    HEADERS,
    HEADERS,
    PRIORITY,
    RST_STREAM,
    RST_STREAM,
    SETTINGS,
    SETTINGS,
    PUSH_PROMISE,
    PING,
    PING,
    GOAWAY,
    WINDOW_UPDATE,
    WINDOW_UPDATE,
    CONTINUATION,
    UNKNOWN,
    UNKNOWN,
];

/// Methods that are not in the descriptors.
const OTHER_PATHS: [&str; 4] = [
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/nowhere.v1.Nothing/Nothing",
];
/// Messages of health and reflection: a name; all services, a file, a symbol, an extension.
const OTHER_MESSAGES: [&[u8]; 5] = [
    b"\x0a\x1athrottlekit.v1.RateLimiter",
    b"\x3a\x00",
    b"\x1a\x20throttlekit/v1/throttlekit.proto",
    b"\x22\x1athrottlekit.v1.RateLimiter",
    b"\x2a\x05\x0a\x01a\x10\x01",
];

/// Settings of a client with the largest stream window.
const LARGE_WINDOW: &[u8] = &[0, 4, 0x7F, 0xFF, 0xFF, 0xFF];

const HEADER_WORDS: &[&[u8]] = &[
    // Indexes: static, dynamic, none, and one beyond everything.
    &[0x82],
    &[0x84],
    &[0xBE],
    &[0x80],
    &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F],
    // Sizes of the table.
    &[0x20],
    &[0x3F, 0xE1, 0x1F],
    &[0x3F, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F],
    // Strings: remembered, Huffman coded, and longer than what follows.
    &[0x40, 1, b'a', 1, b'b'],
    &[0x00, 0x83, 0xFF, 0xFF, 0xFF, 0x01, b'c'],
    &[0x00, 0x7F, 0xFF, 0xFF, 0xFF, 0x7F],
    b"\x00\x0econtent-length\x012",
    b"\x00\x07:status\x03200",
    b"\x00\x01X\x01y",
    b"\x00\x01x\x01\x7F",
];
const EXTRA: &[(&str, &str)] = &[
    ("grpc-timeout", "1n"),
    ("grpc-timeout", "99999999H"),
    ("grpc-encoding", "gzip"),
    ("content-type", "text/plain"),
    ("content-length", "3"),
    ("authorization", "Bearer k"),
    ("x-fleet-secret", "k"),
    ("expect", "100-continue"),
    ("te", "trailers, deflate"),
];

/// Makes inputs for connections over HTTP/2.
pub(super) struct Frames {
    /// Paths with valid messages of their methods.
    methods: Vec<(String, Vec<Vec<u8>>)>,
    /// Messages of all methods.
    messages: Seeds,
    /// Header blocks.
    blocks: Seeds,
}

impl Frames {
    pub(super) fn new() -> Self {
        let blocks = Seeds { inputs: vec![request_headers(CHECK)], words: HEADER_WORDS.to_vec() };
        Self { methods: methods(), messages: seeds::of("wire"), blocks }
    }

    /// The first bytes of a connection, sometimes mutated.
    pub(super) fn mutated_opening(&self, random: &mut Random) -> Vec<u8> {
        let mut settings = LARGE_WINDOW.to_vec();
        if random.once_in(8) {
            settings.extend(setting(random));
        }
        let mut bytes = opening(&settings);
        if random.once_in(16) {
            change(random, &self.blocks, &mut bytes);
        }
        bytes
    }

    /// A request with a mutated message and valid frames: later streams are served. Seldom without END_STREAM.
    pub(super) fn request(&self, random: &mut Random, stream: u32) -> Vec<u8> {
        let is_ended = !random.once_in(64);
        self.begun(random, stream, is_ended)
    }

    fn begun(&self, random: &mut Random, stream: u32, is_ended: bool) -> Vec<u8> {
        let (path, messages) = random.one(&self.methods).expect("methods");
        let mut headers = request_headers(path);
        if random.once_in(8) {
            let (name, value) = random.one(EXTRA).copied().unwrap_or_default();
            headers.extend(header(name, value));
        }
        let message = self.message(random, messages);
        let body = self.body(random, &message);
        let end = if is_ended { END_STREAM } else { 0 };
        [headers_frames(random, stream, &headers), data_frames(random, stream, &body, end)].concat()
    }

    /// A message of this method with at most one change, or one of any method with up to eight.
    fn message(&self, random: &mut Random, messages: &[Vec<u8>]) -> Vec<u8> {
        if random.once_in(8) {
            return input(random, &self.messages);
        }
        let mut message = random.one(messages).cloned().unwrap_or_default();
        match random.below(6) {
            0 => {}
            // As a rule a field.
            1..=3 => message.extend_from_slice(random.one(&self.messages.words).copied().unwrap_or_default()),
            _ => change(random, &self.messages, &mut message),
        }
        message
    }

    /// A message after its five bytes of prefix, which are sometimes wrong.
    fn body(&self, random: &mut Random, message: &[u8]) -> Vec<u8> {
        let mut body = framed(message).to_vec();
        match random.below(32) {
            0 => body[0] = random.below(256) as u8,
            1 | 2 => body[1..5].copy_from_slice(&(random.edge() as u32).to_be_bytes()),
            3 => body.truncate(random.place(body.len())),
            4 => body.extend(framed(message)),
            5 => body.clear(),
            _ => {}
        }
        body
    }

    /// Some requests, most of them without END_STREAM, and frames of any type on their streams.
    pub(super) fn mutated(&self, random: &mut Random) -> Vec<u8> {
        let streams = if random.once_in(8) { 0 } else { 1 + random.below(3) as u32 };
        let mut bytes = Vec::new();
        for index in 0..streams {
            let is_ended = random.once_in(4);
            bytes.extend(self.begun(random, 2 * index + 1, is_ended));
        }
        for _ in 0..=random.below(2) {
            bytes.extend(self.frame(random, streams));
        }
        bytes
    }

    fn frame(&self, random: &mut Random, streams: u32) -> Vec<u8> {
        let kind = *random.one(&KINDS).unwrap_or(&PING);
        let kind = if kind == UNKNOWN { random.below(256) as u8 } else { kind };
        let flags = if random.once_in(8) { random.below(256) as u8 } else { usual_flags(kind) };
        let mut payload = self.payload(random, kind);
        if random.once_in(8) {
            change(random, &self.blocks, &mut payload);
        }
        let mut bytes = frame(kind, flags, stream(random, kind, streams), &payload);
        if random.once_in(16) {
            bytes[..3].copy_from_slice(&(random.edge() as u32).to_be_bytes()[1..]);
        }
        bytes
    }

    fn payload(&self, random: &mut Random, kind: u8) -> Vec<u8> {
        let number = (random.edge() as u32).to_be_bytes();
        match kind {
            DATA => self.body(random, &[]),
            HEADERS | CONTINUATION => self.block(random),
            PRIORITY => [&number[..], &[16]].concat(),
            SETTINGS => (0..random.below(3)).flat_map(|_| setting(random)).collect(),
            PUSH_PROMISE => [&number[..], &self.block(random)].concat(),
            PING => random.edge().to_be_bytes().to_vec(),
            GOAWAY => [number, number].concat(),
            WINDOW_UPDATE if !random.once_in(4) => (1 + random.below(1 << 16) as u32).to_be_bytes().to_vec(),
            RST_STREAM | WINDOW_UPDATE => number.to_vec(),
            _ => input(random, &self.messages),
        }
    }

    /// The headers of a request: valid, with an addition, or with up to eight changes.
    fn block(&self, random: &mut Random) -> Vec<u8> {
        let mut block = request_headers(CHECK);
        match random.below(4) {
            0 => return input(random, &self.blocks),
            1 => {}
            _ => block.extend_from_slice(random.one(HEADER_WORDS).copied().unwrap_or_default()),
        }
        block
    }
}

/// One HEADERS frame, or two pieces.
fn headers_frames(random: &mut Random, stream: u32, block: &[u8]) -> Vec<u8> {
    if !random.once_in(8) {
        return frame(HEADERS, END_HEADERS, stream, block);
    }
    let (first, second) = block.split_at(random.place(block.len()));
    [frame(HEADERS, 0, stream, first), frame(CONTINUATION, END_HEADERS, stream, second)].concat()
}

/// One DATA frame, two, or one with padding.
fn data_frames(random: &mut Random, stream: u32, body: &[u8], end: u8) -> Vec<u8> {
    match random.below(8) {
        0 => {
            let (first, second) = body.split_at(random.place(body.len()));
            [frame(DATA, 0, stream, first), frame(DATA, end, stream, second)].concat()
        }
        1 => {
            let padding = random.below(256) as u8;
            frame(DATA, end | PADDED, stream, &[&[padding], body, &vec![0; padding.into()]].concat())
        }
        _ => frame(DATA, end, stream, body),
    }
}

/// The first bytes of a client with large windows.
pub(super) fn good_opening() -> Vec<u8> {
    let update = frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 24).to_be_bytes());
    [opening(LARGE_WINDOW), update].concat()
}

/// An honest check, on a stream above all others.
pub(super) fn last_request() -> Vec<u8> {
    let check = CheckRequest { policy: "u".into(), key: "last".into(), ..CheckRequest::default() };
    let headers = frame(HEADERS, END_HEADERS, LAST_STREAM, &request_headers(CHECK));
    [headers, frame(DATA, END_STREAM, LAST_STREAM, &framed(&check.encode_to_vec()))].concat()
}

/// Every method of the server, with valid messages.
fn methods() -> Vec<(String, Vec<Vec<u8>>)> {
    let (known, others) = (seeds::messages(), OTHER_MESSAGES.map(<[u8]>::to_vec).to_vec());
    let messages = |path: &str| {
        // The fields of a forecast are those of a check, and Envoy's check has others.
        let method = match path.rsplit('/').next().unwrap_or_default() {
            "Forecast" => "Check",
            "Check" if path.contains("Authorization") => "Authorization",
            method => method,
        };
        known.iter().filter(|(name, _)| *name == method).map(|(_, message)| message.clone()).collect()
    };
    let ours = paths().into_iter().map(|path| {
        let messages = messages(&path);
        (path, messages)
    });
    ours.chain(OTHER_PATHS.map(|path| (path.to_owned(), others.clone()))).collect()
}

/// The path of every method in the descriptors.
fn paths() -> Vec<String> {
    let files = FileDescriptorSet::decode(DESCRIPTORS).expect("descriptors").file;
    let paths = files.iter().flat_map(|file| {
        file.service.iter().flat_map(move |service| {
            let path = move |method: &str| format!("/{}.{}/{method}", file.package(), service.name());
            service.method.iter().map(move |method| path(method.name()))
        })
    });
    paths.collect()
}

/// One setting, known or unknown.
fn setting(random: &mut Random) -> Vec<u8> {
    let (name, value) = (random.below(10) as u16, random.edge() as u32);
    [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

fn usual_flags(kind: u8) -> u8 {
    match kind {
        HEADERS | CONTINUATION | PUSH_PROMISE => END_HEADERS,
        _ => 0,
    }
}

/// An open stream, the next one, an invalid one, or 0 for frames of the connection.
fn stream(random: &mut Random, kind: u8, streams: u32) -> u32 {
    let next = 2 * streams + 1;
    let known = (2 * random.below(streams.into()) as u32 + 1).min(next);
    match random.below(16) {
        0 => random.edge() as u32,
        1 => 2,
        2 | 3 => next,
        _ if matches!(kind, SETTINGS | PING | GOAWAY) => 0,
        4..=9 if kind == HEADERS => next,
        4 if kind == WINDOW_UPDATE => 0,
        _ => known,
    }
}

#[test]
fn every_method_has_messages() {
    let methods = methods();
    assert_eq!(methods.len(), paths().len() + OTHER_PATHS.len());
    for (path, messages) in methods.iter().filter(|(path, _)| !path.contains("Monitor")) {
        assert!(!messages.is_empty(), "{path}");
    }
}

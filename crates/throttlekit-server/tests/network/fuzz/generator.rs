//! Generates sessions: the same seed and number give the same bytes and the same ending.

use throttlekit_fuzz::mutate::Random;

use super::frames::{Frames, good_opening, last_request};
use super::replies::LAST_REQUEST;
use super::requests::Requests;
use super::session::{Ending, Kind, Port, Session};

/// Maximum inputs on one connection. All but the last leave the connection usable, so the server reads every one.
const INPUTS_MAX: u64 = 6;

pub(super) struct Generator {
    seed: u64,
    frames: Frames,
    api: Requests,
    metrics: Requests,
}

/// The bytes of a connection, without its ending.
struct Script {
    bytes: Vec<u8>,
    inputs: usize,
    /// The index of the first byte of the last input.
    last_at: usize,
}

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, frames: Frames::new(), api: Requests::api(), metrics: Requests::metrics() }
    }

    pub(super) fn session(&self, number: u64) -> Session {
        let random = &mut Random::of(self.seed, number);
        let (kind, port) = match random.below(32) {
            0..=5 => (Kind::Messages, Port::Grpc),
            6..=16 => (Kind::Frames, Port::Grpc),
            17..=19 => (Kind::Frames, Port::Http),
            20..=29 => (Kind::Requests, Port::Http),
            _ => (Kind::Metrics, Port::Metrics),
        };
        let Script { mut bytes, inputs, last_at } = self.script(random, kind);
        let truncated_once_in = if kind == Kind::Messages { 8 } else { 2 };
        let is_truncated = random.once_in(truncated_once_in);
        if is_truncated {
            bytes.truncate(last_at + random.place(bytes.len() - last_at));
        }
        let ending = ending(random, is_truncated);
        if ending == Ending::Answer {
            bytes.extend(last(kind));
        }
        let split = random.once_in(8).then(|| random.place(bytes.len()));
        Session { kind, port, inputs, bytes, split, ending }
    }

    fn script(&self, random: &mut Random, kind: Kind) -> Script {
        let count = random.below(INPUTS_MAX) + 1;
        match kind {
            Kind::Messages => {
                script(good_opening(), count, |index| self.frames.request(random, 2 * index + 1))
            }
            Kind::Frames => script(self.frames.mutated_opening(random), 1, |_| self.frames.mutated(random)),
            Kind::Requests => requests(random, &self.api, count),
            Kind::Metrics => requests(random, &self.metrics, count),
        }
    }
}

fn requests(random: &mut Random, requests: &Requests, count: u64) -> Script {
    script(Vec::new(), count, |index| match u64::from(index) + 1 == count {
        true => requests.mutated(random),
        false => requests.framed(random),
    })
}

fn script(mut bytes: Vec<u8>, count: u64, mut input: impl FnMut(u32) -> Vec<u8>) -> Script {
    let mut last_at = 0;
    for index in 0..count as u32 {
        last_at = bytes.len();
        bytes.extend(input(index));
    }
    Script { bytes, inputs: count as usize, last_at }
}

/// Truncated inputs seldom wait: the server waits for the rest until its deadlines.
fn ending(random: &mut Random, is_truncated: bool) -> Ending {
    let wait = match random.below(64) {
        0 | 1 => return Ending::Wait,
        2..=5 => true,
        _ => !is_truncated,
    };
    match random.below(16) {
        _ if !wait => *random.one(&LEAVES).unwrap_or(&Ending::Close),
        0 => Ending::HalfClose,
        1 => Ending::Close,
        2 => Ending::Reset,
        _ => Ending::Answer,
    }
}

const LEAVES: [Ending; 4] = [Ending::HalfClose, Ending::HalfClose, Ending::Close, Ending::Reset];

fn last(kind: Kind) -> Vec<u8> {
    match kind {
        Kind::Messages | Kind::Frames => last_request(),
        Kind::Requests | Kind::Metrics => LAST_REQUEST.to_vec(),
    }
}

#[test]
fn one_number_gives_one_session_and_others_give_others() {
    let (one, other) = (Generator::new(7), Generator::new(8));
    let bytes = |generator: &Generator| (0..100).map(|n| generator.session(n).bytes).collect::<Vec<_>>();
    assert_eq!(bytes(&one), bytes(&Generator::new(7)));
    assert_ne!(bytes(&one), bytes(&other));
    for kind in Kind::ALL {
        assert!((0..1_000).any(|n| one.session(n).kind == kind), "{kind:?}");
    }
}

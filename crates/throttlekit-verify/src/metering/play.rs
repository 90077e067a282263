//! Streams that produce tokens, and a meter that admits them.

use super::Meter;
use crate::learn::reserve::heavy_tailed;
use throttlekit_conformance::Dice;

/// The size of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Tokens in each window.
    pub budget: u64,
    /// The number of concurrent streams.
    pub streams: usize,
    /// The number of consecutive windows.
    pub windows: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self { budget: 100_000, streams: 32, windows: 8 }
    }
}

/// The results of one window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Tokens that were passed on.
    pub served: u64,
    /// Streams that started.
    pub begun: u64,
    /// Streams that were aborted.
    pub aborted: u64,
}

impl Outcome {
    /// Returns `true` if the meter admits so much, or admits and then aborts so many streams, that the run
    /// would not end.
    fn is_out_of_hand(&self, setup: &Setup) -> bool {
        self.served > 4 * setup.budget || self.begun > setup.budget
    }
}

struct Stream {
    length: u64,
    produced: u64,
    /// The meter's ticket of the stream.
    ticket: u64,
}

/// Runs the windows of a seed. In each there is always another stream to start, until none runs and none is
/// admitted.
pub fn play(meter: &mut dyn Meter, chunk: u64, cap: u64, seed: u64, setup: &Setup) -> Vec<Outcome> {
    let mut dice = Dice::new(seed);
    (0..setup.windows).map(|window| play_window(meter, chunk, cap, window, &mut dice, setup)).collect()
}

fn play_window(
    meter: &mut dyn Meter,
    chunk: u64,
    cap: u64,
    window: u64,
    dice: &mut Dice,
    setup: &Setup,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut running: Vec<Stream> = Vec::new();
    let mut next = heavy_tailed(dice).clamp(1, cap);
    meter.begin(window);
    loop {
        while running.len() < setup.streams
            && let Some(ticket) = meter.open()
        {
            outcome.begun += 1;
            running.push(Stream { length: next, produced: 0, ticket });
            next = heavy_tailed(dice).clamp(1, cap);
        }
        if running.is_empty() || outcome.is_out_of_hand(setup) {
            running.iter().for_each(|stream| meter.end(stream.ticket, stream.produced));
            return outcome;
        }
        // Each in turn produces one chunk, or its rest.
        running.retain_mut(|stream| {
            let tokens = chunk.min(stream.length - stream.produced);
            let passes = meter.debit(&mut stream.ticket, tokens);
            if passes {
                stream.produced += tokens;
                outcome.served += tokens;
            } else {
                outcome.aborted += 1;
            }
            let goes_on = passes && stream.produced < stream.length;
            if !goes_on {
                meter.end(stream.ticket, stream.produced);
            }
            goes_on
        });
    }
}

//! The throughput of a key's streams.

use std::time::Duration;

/// Each stream reduces the weight of earlier ones by one part in this many, so about the last eight streams count.
const MEMORY: u64 = 8;
/// Thousandths of a token: whole tokens would round a decay of less than one to none.
const SCALE: u64 = 1_000;

/// Tokens per unit of time over recent streams.
///
/// The sum of all tokens over the sum of all durations, not a mean of rates. A slow stream holds its reservation for
/// longer and counts for as much longer. So streams that reserve by this together produce what they reserve.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Throughput {
    /// Thousandths of a token.
    milli_tokens: u64,
    nanos: u64,
}

impl Throughput {
    /// Records a stream that produced `tokens`, the last of them after `lasted`. A stream without tokens has no
    /// throughput.
    pub(super) fn observe(&mut self, tokens: u64, lasted: Duration) {
        if tokens == 0 {
            return;
        }
        let nanos = u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX);
        self.milli_tokens = faded(self.milli_tokens).saturating_add(tokens.saturating_mul(SCALE));
        self.nanos = faded(self.nanos).saturating_add(nanos);
    }

    /// Returns how many tokens a stream produces in `time`, rounded down. [`Cost::MAX`] before the first stream, and
    /// while streams take no time.
    pub(super) fn tokens_in(&self, time: Duration) -> u64 {
        let produced = time.as_nanos().saturating_mul(u128::from(self.milli_tokens));
        let tokens = produced.checked_div(u128::from(self.nanos) * u128::from(SCALE));
        tokens.and_then(|tokens| u64::try_from(tokens).ok()).unwrap_or(u64::MAX)
    }
}

fn faded(sum: u64) -> u64 {
    sum - sum / MEMORY
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn after(streams: impl IntoIterator<Item = (u64, Duration)>) -> Throughput {
        let mut throughput = Throughput::default();
        streams.into_iter().for_each(|(tokens, lasted)| throughput.observe(tokens, lasted));
        throughput
    }

    #[test]
    fn streams_of_one_rate_produce_that_rate_to_the_token() {
        for streams in [1, 2, 8, 1_000] {
            let throughput = after((0..streams).map(|_| (50, 32 * SECOND)));
            assert_eq!(throughput.tokens_in(60 * SECOND), 93, "93.75 after {streams} streams");
            assert_eq!(throughput.tokens_in(Duration::ZERO), 0);
        }
        assert_eq!(after((0..1_000).map(|_| (1, SECOND))).tokens_in(60 * SECOND), 60);
    }

    #[test]
    fn a_slow_stream_weighs_as_much_as_it_lasts() {
        let throughput = after([(100, SECOND), (100, 99 * SECOND)].repeat(50));
        let tokens = throughput.tokens_in(100 * SECOND);
        assert!((180..=220).contains(&tokens), "{tokens}: two a second, not the 50 of a mean of rates");
    }

    #[test]
    fn old_streams_fade() {
        let slow = (0..1_000).map(|_| (10, 10 * SECOND));
        let throughput = after(slow.chain((0..64).map(|_| (100, SECOND))));
        assert!(throughput.tokens_in(SECOND) >= 95, "{throughput:?}");
    }

    #[test]
    fn an_unknown_throughput_bounds_nothing() {
        for streams in [vec![], vec![(0, SECOND)], vec![(50, Duration::ZERO)]] {
            assert_eq!(after(streams).tokens_in(SECOND), u64::MAX);
        }
    }

    #[test]
    fn the_ends_of_all_ranges_saturate() {
        let largest = after([(u64::MAX, Duration::MAX); 20]);
        assert!(largest.tokens_in(Duration::MAX) > 0);
        let fastest = after([(u64::MAX, Duration::from_nanos(1)); 20]);
        assert_eq!(fastest.tokens_in(Duration::MAX), u64::MAX);
    }
}

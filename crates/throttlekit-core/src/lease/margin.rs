//! Expiry of lent units, by the clock of their holder.

use core::time::Duration;

use crate::Timestamp;
use crate::time::nanos;

const MILLION: u128 = 1_000_000;

/// Error bounds of the holder's clock and the authority's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Margin {
    /// Maximum drift of the holder's clock, in parts per million.
    pub holder_ppm: u32,
    /// Maximum drift of the authority's clock, in parts per million.
    pub authority_ppm: u32,
    /// Maximum lag of the holder's clock at any one reading, plus the rounding of times.
    pub slack: Duration,
}

impl Default for Margin {
    /// Default: 500 parts per million each, the most by which time services slew a clock, and a millisecond.
    fn default() -> Self {
        Self { holder_ppm: 500, authority_ppm: 500, slack: Duration::from_millis(1) }
    }
}

impl Margin {
    /// Clocks that agree exactly: for models, where time is counted and not measured.
    pub const NONE: Self = Self { holder_ppm: 0, authority_ppm: 0, slack: Duration::ZERO };

    /// Returns a margin for a holder's clock that may lag by `behind_max`.
    pub fn behind(self, behind_max: Duration) -> Self {
        Self { slack: self.slack.saturating_add(behind_max), ..self }
    }

    /// Returns when units expire that were requested at `sent` and live for `lives` by the authority's clock.
    ///
    /// They were lent at `sent` or later. While the authority's clock counts `lives`, at least `lives / (1 + ρa)`
    /// passes, of which the holder's clock shows at least `(1 − ρh)` of each second.
    pub fn deadline(&self, sent: Timestamp, lives: Duration) -> Timestamp {
        let kept = MILLION.saturating_sub(u128::from(self.holder_ppm));
        let surely = u128::from(nanos(lives)) * kept / (MILLION + u128::from(self.authority_ppm));
        let lasts = Duration::from_nanos(surely as u64).saturating_sub(self.slack);
        sent + lasts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_lasts_sixty_one_milliseconds_less() {
        let sent = Timestamp::from_millis(1_000);
        let dies = Margin::default().deadline(sent, Duration::from_secs(60));
        let lost = Duration::from_secs(60) - dies.since(sent);
        assert_eq!(lost.as_micros(), 60_970);
        assert_eq!(Margin::NONE.deadline(sent, Duration::from_secs(60)), Timestamp::from_millis(61_000));
    }

    #[test]
    fn a_life_shorter_than_the_slack_has_expired_when_sent() {
        let sent = Timestamp::from_millis(1_000);
        assert_eq!(Margin::default().deadline(sent, Duration::from_micros(900)), sent);
    }
}

//! The pause after a denial.

use core::time::Duration;

use crate::Retry;

/// Shortest pause if the limiter does not know the wait.
const GUESS_MIN: Duration = Duration::from_millis(1);
/// Longest such pause, for a limiter that decides in process.
const GUESS_MAX: Duration = Duration::from_millis(8);
/// Longest such pause, for a limiter that needs I/O to decide.
const GUESS_MAX_IO: Duration = Duration::from_millis(128);
/// Longest automatic jitter, for a limiter that needs I/O.
const JITTER_MAX: Duration = Duration::from_millis(10);
/// Part of the wait that automatic jitter adds at most.
const JITTER_PART: u32 = 10;

/// The pauses of one waiter between its requests.
///
/// A known wait is kept exactly. If no clock determines it, as for a concurrency limit, pauses double from 1 ms to 8 ms,
/// or to 128 ms if each request needs I/O.
#[derive(Clone, Copy, Debug, Default)]
pub struct RetryPace {
    /// The last pause that was a guess; zero if there was none.
    guess: Duration,
}

/// The pause after a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pause {
    /// The same request passes after exactly this duration, if no other arrives: earlier requests are in vain.
    Exact(Duration),
    /// No clock determines when the request passes. Retry after this duration.
    Guess(Duration),
    /// The request never passes.
    Never,
}

/// Random time added to pauses, so that several processes do not request at the same instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Jitter {
    /// None if the limiter decides in process; otherwise up to a tenth of the pause, at most 10 ms.
    #[default]
    Automatic,
    /// Up to this duration.
    UpTo(Duration),
}

impl RetryPace {
    /// Returns the pause after a denial. `needs_io` states that the limiter does not decide in process.
    pub fn pause(&mut self, retry: Retry, needs_io: bool) -> Pause {
        match retry {
            Retry::After(wait) => {
                self.guess = Duration::ZERO;
                Pause::Exact(wait)
            }
            Retry::Now | Retry::OnRelease => {
                let guess_max = if needs_io { GUESS_MAX_IO } else { GUESS_MAX };
                self.guess = (self.guess * 2).clamp(GUESS_MIN, guess_max);
                Pause::Guess(self.guess)
            }
            Retry::Never => Pause::Never,
        }
    }
}

impl Jitter {
    /// Adds jitter to a pause. `random` is uniform over its range. Never shortens the pause.
    pub fn add(self, pause: Duration, needs_io: bool, random: u64) -> Duration {
        let jitter_max = match self {
            Self::Automatic if needs_io => (pause / JITTER_PART).min(JITTER_MAX),
            Self::Automatic => Duration::ZERO,
            Self::UpTo(jitter_max) => jitter_max,
        };
        let nanos = u64::try_from(jitter_max.as_nanos()).unwrap_or(u64::MAX);
        let jitter = (u128::from(nanos) * u128::from(random)) >> 64;
        pause.saturating_add(Duration::from_nanos(jitter as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_known_wait_is_kept_exactly_and_never_is_never() {
        let mut pace = RetryPace::default();
        assert_eq!(pace.pause(Retry::After(7 * MS), true), Pause::Exact(7 * MS));
        assert_eq!(pace.pause(Retry::Never, false), Pause::Never);
    }

    #[test]
    fn guesses_double_up_to_their_maximum_and_start_again_after_a_known_wait() {
        let mut pace = RetryPace::default();
        let guesses = [1, 2, 4, 8, 8].map(|ms| Pause::Guess(ms * MS));
        assert_eq!([(); 5].map(|()| pace.pause(Retry::OnRelease, false)), guesses);
        assert_eq!(pace.pause(Retry::Now, true), Pause::Guess(16 * MS));
        pace.pause(Retry::After(MS), false);
        assert_eq!(pace.pause(Retry::OnRelease, false), Pause::Guess(MS));
    }

    #[test]
    fn jitter_never_shortens_a_pause_and_stays_below_its_maximum() {
        for (jitter, needs_io, most) in [
            (Jitter::Automatic, false, Duration::ZERO),
            (Jitter::Automatic, true, 4 * MS),
            (Jitter::UpTo(25 * MS), false, 25 * MS),
        ] {
            assert_eq!(jitter.add(40 * MS, needs_io, 0), 40 * MS);
            let longest = jitter.add(40 * MS, needs_io, u64::MAX);
            assert!(longest <= 40 * MS + most && longest + Duration::from_nanos(1) >= 40 * MS + most);
        }
        assert_eq!(Jitter::Automatic.add(Duration::MAX, true, u64::MAX), Duration::MAX);
        assert!(
            Jitter::Automatic.add(Duration::from_secs(60), true, u64::MAX) < Duration::from_millis(60_010)
        );
    }
}

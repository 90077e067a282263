//! Distinguishes calls that met a raised ceiling from those that were admitted before it rose.

/// Calls in a row that met the old ceiling before the new one is no longer expected, in addition to twice what may be
/// in flight: where a node's share fell meanwhile, no call meets it.
const PATIENCE: u32 = 64;

/// The limit that a call must have met to have started since the ceiling rose.
///
/// As many completions as were in flight are skipped after each move. Where latencies vary the long calls are not among
/// them: they end later, and that they met the old ceiling in full carries no information about the new one.
#[derive(Clone, Debug, Default)]
pub(super) struct Raised {
    least: f64,
    patience: u32,
    left: u32,
}

impl Raised {
    /// The ceiling was multiplied by `times`; the last call was admitted under `allowed` and met `in_flight`.
    pub(super) fn moved(times: f64, allowed: u32, in_flight: u32) -> Self {
        let may_be = f64::from(in_flight) * times;
        let patience = PATIENCE.saturating_add((2.0 * may_be) as u32);
        // Between the two, as shares are rounded.
        let least = if times > 1.0 { f64::from(allowed) * libm::sqrt(times) } else { 0.0 };
        Self { least, patience, left: patience }
    }

    /// Returns whether a call that was admitted under this limit met the current ceiling.
    pub(super) fn is_met(&mut self, allowed: u32) -> bool {
        if f64::from(allowed) >= self.least {
            self.left = self.patience;
            return true;
        }
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_calls_from_before_a_rise_do_not_count_and_a_smaller_share_does_in_the_end() {
        let mut raised = Raised::moved(1.5, 100, 100);
        assert!(!raised.is_met(100) && raised.is_met(150) && !raised.is_met(100));
        let missed = (0..1_000).take_while(|_| !raised.is_met(100)).count();
        assert!((64..400).contains(&missed), "{missed}");
        assert!(raised.is_met(100), "from then on");
    }

    #[test]
    fn after_a_cut_every_call_counts() {
        assert!(Raised::moved(0.8, 100, 100).is_met(80) && Raised::moved(1.0, 100, 100).is_met(100));
    }
}

//! Multiplicative weights over a few experts.

/// Weighs `N` experts by their losses so far: the weight of each is proportional to exp(−η · its total loss).
///
/// Losses are kept as differences from the best expert's, so weights neither overflow nor all vanish. Where the loss is
/// convex in the advice of the experts, following the weighted mean of their advice costs no more than the weighted
/// mean of their losses.
///
/// ```
/// use throttlekit_core::learn::Hedge;
///
/// let mut experts = Hedge::<2>::anytime();
/// for _ in 0..100 {
///     experts.observe(&[3.0, 5.0]);
/// }
/// assert!(experts.weights()[0] > 0.99);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Hedge<const N: usize> {
    /// The total loss of each, less the least of them.
    behind: [f64; N],
    pace: Pace,
}

/// Rate at which the weights follow the losses.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pace {
    Fixed(f64),
    /// Slows down with the gap that mixing has cost so far.
    Anytime {
        gap: f64,
    },
}

impl<const N: usize> Hedge<N> {
    /// With a fixed rate, for losses from 0 to 1; others are clamped. Over T rounds the weighted losses exceed the best
    /// expert's by at most ln N / η + η·T/8.
    pub fn new(eta: f64) -> Self {
        Self { behind: [0.0; N], pace: Pace::Fixed(if eta > 0.0 { eta.min(f64::MAX) } else { 0.0 }) }
    }

    /// Without a rate, a horizon or a scale for the losses: AdaHedge. Where the experts' losses of round t lie within
    /// a width of s_t, the weighted losses exceed the best expert's by at most √(ln N · Σ s_t²) plus
    /// (2 + 4/3 · ln N) times the largest width.
    pub fn anytime() -> Self {
        Self { behind: [0.0; N], pace: Pace::Anytime { gap: 0.0 } }
    }

    /// Returns the trust in each expert; the sum is 1.
    pub fn weights(&self) -> [f64; N] {
        let eta = self.eta();
        let raw = self.behind.map(|behind| trust(behind, eta));
        let total: f64 = raw.iter().sum();
        raw.map(|weight| weight / total)
    }

    /// Records what following each expert would have cost this round. A round with a loss that is not finite is
    /// ignored.
    pub fn observe(&mut self, losses: &[f64; N]) {
        if !losses.iter().all(|loss| loss.is_finite()) {
            return;
        }
        let losses = match self.pace {
            Pace::Fixed(_) => losses.map(|loss| loss.clamp(0.0, 1.0)),
            Pace::Anytime { .. } => above_least(losses.map(|loss| loss.clamp(-LOSS_MAX, LOSS_MAX))),
        };
        let next: [f64; N] = core::array::from_fn(|i| (self.behind[i] + losses[i]).min(LOSS_MAX));
        if let Pace::Anytime { gap } = self.pace {
            let weighted: f64 = self.weights().iter().zip(losses).map(|(weight, loss)| weight * loss).sum();
            let mixed = mix(&next, self.eta()) - mix(&self.behind, self.eta());
            self.pace = Pace::Anytime { gap: (gap + (weighted - mixed).max(0.0)).min(LOSS_MAX) };
        }
        self.behind = above_least(next);
    }

    /// The rate by which losses count now; without a gap, infinite: only the best are followed.
    fn eta(&self) -> f64 {
        match self.pace {
            Pace::Fixed(eta) => eta,
            Pace::Anytime { gap } => libm::log(N as f64) / gap,
        }
    }
}

/// No loss and no sum of losses counts for more.
const LOSS_MAX: f64 = 1e300;

/// The weight of an expert before it is divided by all of them.
fn trust(behind: f64, eta: f64) -> f64 {
    if behind > 0.0 { libm::exp(-eta * behind) } else { 1.0 }
}

fn least<const N: usize>(losses: &[f64; N]) -> f64 {
    losses.iter().copied().fold(f64::INFINITY, f64::min)
}

fn above_least<const N: usize>(losses: [f64; N]) -> [f64; N] {
    let least = least(&losses);
    losses.map(|loss| loss - least)
}

/// Returns the total cost of the mixture of the experts: −ln(mean of exp(−η·loss)) / η, from the least up.
fn mix<const N: usize>(losses: &[f64; N], eta: f64) -> f64 {
    let least = least(losses);
    let mean = losses.iter().map(|loss| trust(loss - least, eta)).sum::<f64>() / N as f64;
    least - libm::log(mean) / eta
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_sane<const N: usize>(hedge: &Hedge<N>) -> bool {
        let weights = hedge.weights();
        weights.iter().all(|w| (0.0..=1.0).contains(w)) && (weights.iter().sum::<f64>() - 1.0).abs() < 1e-9
    }

    #[test]
    fn weights_are_even_at_first_and_follow_the_better_expert() {
        for mut hedge in [Hedge::<3>::new(0.1), Hedge::anytime()] {
            assert!(hedge.weights().iter().all(|weight| (weight - 1.0 / 3.0).abs() < 1e-12));
            for _ in 0..500 {
                hedge.observe(&[0.5, 0.2, 0.9]);
            }
            assert!(hedge.weights()[1] > 0.99, "{hedge:?}");
        }
    }

    #[test]
    fn a_fixed_rate_is_exact_and_moves_losses_into_its_range() {
        let mut hedge = Hedge::<2>::new(0.5);
        hedge.observe(&[7.0, -7.0]); // as [1, 0]
        let odds = hedge.weights()[1] / hedge.weights()[0];
        assert!((odds - libm::exp(0.5)).abs() < 1e-12);
    }

    #[test]
    fn the_anytime_pace_does_not_depend_on_the_scale_of_losses() {
        let (mut small, mut large) = (Hedge::<2>::anytime(), Hedge::<2>::anytime());
        for round in 0..100 {
            let losses = [f64::from(round % 3), f64::from(round % 5) / 2.0];
            small.observe(&losses);
            large.observe(&losses.map(|loss| loss * 1024.0 - 5.0));
            assert!((small.weights()[0] - large.weights()[0]).abs() < 1e-9);
        }
    }

    /// Against losses that hit the expert that is trusted more, and on scales that vary.
    #[test]
    fn the_anytime_pace_stays_within_its_bound() {
        for scale_step in [1u32, 3, 17] {
            let mut hedge = Hedge::<2>::anytime();
            let (mut paid, mut totals, mut squares, mut widest) = (0.0, [0.0; 2], 0.0, 0.0f64);
            for round in 0..5_000u32 {
                let [a, b] = hedge.weights();
                let width = f64::from((round * scale_step) % 101);
                let losses = if a >= b { [width, 0.0] } else { [0.0, width] };
                paid += a * losses[0] + b * losses[1];
                totals = [totals[0] + losses[0], totals[1] + losses[1]];
                squares += width * width;
                widest = widest.max(width);
                let ln2 = libm::log(2.0);
                let bound = libm::sqrt(ln2 * squares) + (2.0 + 4.0 / 3.0 * ln2) * widest;
                assert!(paid - least(&totals) <= bound, "round {round}: {paid} {totals:?} {bound}");
                hedge.observe(&losses);
            }
        }
    }

    #[test]
    fn weights_stay_weights_at_the_ends_of_all_ranges() {
        let ends = [0.0, 1e-320, 1.0, 1e300, f64::MAX, f64::MIN];
        for start in [Hedge::<2>::new(0.0), Hedge::new(f64::MAX), Hedge::new(f64::NAN), Hedge::anytime()] {
            for a in ends {
                for b in ends {
                    let mut hedge = start.clone();
                    hedge.observe(&[a, b]);
                    hedge.observe(&[b, b]);
                    hedge.observe(&[b, a]);
                    assert!(is_sane(&hedge), "{a} {b} {hedge:?}");
                }
            }
        }
    }

    #[test]
    fn losses_that_are_no_numbers_change_nothing() {
        let mut hedge = Hedge::<2>::anytime();
        hedge.observe(&[1.0, 2.0]);
        let before = hedge.clone();
        hedge.observe(&[f64::NAN, 0.0]);
        hedge.observe(&[0.0, f64::INFINITY]);
        assert_eq!(hedge, before);
    }
}

//! Reservations with a seeded bug, to show that each check can fail.

use throttlekit_core::learn::{Hedge, Reservation, ReservationOptions};

/// A learner of reservations.
pub trait Reserves {
    /// Returns the reservation before rounding.
    fn aim(&self, hint: Option<u64>) -> f64;
    /// Returns the reservation.
    fn reserve(&self, hint: Option<u64>) -> u64;
    /// Records the length of a stream, and its hint.
    fn observe(&mut self, hint: Option<u64>, actual: u64);
    /// Returns the part of streams that the best fixed reservation fits.
    fn fractile(&self) -> f64;
}

impl Reserves for Reservation {
    fn aim(&self, hint: Option<u64>) -> f64 {
        Self::aim(self, hint)
    }
    fn reserve(&self, hint: Option<u64>) -> u64 {
        Self::reserve(self, hint)
    }
    fn observe(&mut self, hint: Option<u64>, actual: u64) {
        Self::observe(self, hint, actual);
    }
    fn fractile(&self) -> f64 {
        self.options().fractile()
    }
}

throttlekit_conformance::bugs! {
    /// A bug of a [`SeededReservation`].
    pub enum ReserveBug {
        CostsSwapped: "The cost of holding and that of overrunning are swapped.",
        StepWithoutRoot: "The step size never shrinks.",
        StepsTooShort: "The step size shrinks with the square of the steps.",
        NotProjected: "The reservation is not clamped to its bounds.",
        ReservationSignReversed: "The gradient has the wrong sign.",
        ReservationNeverMoves: "The reservation never changes.",
        ReservationChasesTheLast: "The reservation is the length of the last stream.",
        AlwaysTheMost: "The reservation is always the maximum.",
        HintTrustedBlindly: "The hint is always followed.",
        HintIgnored: "The hint is never followed.",
        HintHedgeReversed: "The weights of hint and learner move the wrong way.",
        HintHedgeStill: "The weights of hint and learner never move.",
        HintWeighedByStream: "The costs of each stream are scaled to its own maximum.",
        HintNotClamped: "The hint is followed beyond the bounds.",
    }
}

/// A reservation with one bug.
#[derive(Clone, Debug)]
pub struct SeededReservation {
    bug: ReserveBug,
    options: ReservationOptions,
    at: f64,
    steps: f64,
    experts: Hedge<2>,
}

impl SeededReservation {
    /// Creates a reservation with this bug.
    pub fn new(bug: ReserveBug, options: ReservationOptions) -> Self {
        let at = options.min as f64 + options.span() / 2.0;
        Self { bug, options, at, steps: 0.0, experts: Hedge::anytime() }
    }

    fn gradient(&self, actual: f64) -> f64 {
        let (hold, overrun) = (self.options.hold_cost, self.options.overrun_cost);
        let right = if self.at > actual {
            hold
        } else if self.at < actual {
            -overrun
        } else {
            0.0
        };
        match self.bug {
            ReserveBug::CostsSwapped if right != 0.0 => right.signum() * (hold + overrun - right.abs()),
            ReserveBug::ReservationSignReversed => -right,
            ReserveBug::ReservationNeverMoves => 0.0,
            _ => right,
        }
    }

    fn step(&self) -> f64 {
        let shrinks = match self.bug {
            ReserveBug::StepWithoutRoot => 1.0,
            ReserveBug::StepsTooShort => self.steps * self.steps,
            _ => self.steps.sqrt(),
        };
        self.options.span() / (self.options.steepest() * shrinks)
    }

    fn follow(&self, hint: u64) -> f64 {
        let within = if self.bug == ReserveBug::HintNotClamped {
            hint
        } else {
            hint.clamp(self.options.min, self.options.max)
        };
        within as f64
    }

    fn trust(&self) -> f64 {
        match self.bug {
            ReserveBug::HintTrustedBlindly | ReserveBug::HintNotClamped => 1.0,
            ReserveBug::HintIgnored => 0.0,
            _ => self.experts.weights()[0],
        }
    }
}

impl Reserves for SeededReservation {
    fn aim(&self, hint: Option<u64>) -> f64 {
        if self.bug == ReserveBug::AlwaysTheMost {
            return self.options.max as f64;
        }
        let trust = self.trust();
        hint.map_or(self.at, |hint| trust * self.follow(hint) + (1.0 - trust) * self.at)
    }

    fn reserve(&self, hint: Option<u64>) -> u64 {
        self.aim(hint).round() as u64
    }

    fn observe(&mut self, hint: Option<u64>, actual: u64) {
        if let Some(hint) = hint {
            let costs = [self.follow(hint), self.at].map(|aim| self.options.cost(aim, actual));
            let most = costs[0].max(costs[1]).max(1e-9);
            match self.bug {
                ReserveBug::HintHedgeStill => {}
                ReserveBug::HintHedgeReversed => self.experts.observe(&costs.map(|cost| -cost)),
                ReserveBug::HintWeighedByStream => self.experts.observe(&costs.map(|cost| cost / most)),
                _ => self.experts.observe(&costs),
            }
        }
        self.steps += 1.0;
        let (low, high) = (self.options.min as f64, self.options.max as f64);
        let next = self.at - self.step() * self.gradient(actual as f64);
        self.at = match self.bug {
            ReserveBug::NotProjected => next,
            ReserveBug::ReservationChasesTheLast => (actual as f64).clamp(low, high),
            _ => next.clamp(low, high),
        };
    }

    fn fractile(&self) -> f64 {
        let right = self.options.fractile();
        if self.bug == ReserveBug::CostsSwapped { 1.0 - right } else { right }
    }
}

//! The gradient rule.

use super::round::Seen;
use super::windowed_min::WindowedMin;

const LOW: f64 = 0.88;
const HOLDS: u32 = 3;
const WINDOW: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct Gradient {
    phase: Phase,
    headroom: f64,
    held: u32,
    grown: usize,
    starting: bool,
    rate: Mean,
    alone: Mean,
    no_load: WindowedMin<WINDOW>,
}

impl Gradient {
    pub(super) fn new(headroom: f64) -> Self {
        Self {
            headroom,
            phase: Phase::High,
            held: 0,
            grown: 0,
            starting: true,
            rate: Mean::default(),
            alone: Mean::default(),
            no_load: WindowedMin::new(),
        }
    }
}

/// A mean of logarithms.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    at: f64,
    of: f64,
}

impl Mean {
    fn add(&mut self, value: f64, most: f64) {
        self.of = (self.of + 1.0).min(most);
        self.at += (value - self.at) / self.of;
    }
    fn set(&mut self, value: f64) {
        *self = Self { at: value, of: 1.0 };
    }
    fn strays(&self, value: f64, error: f64) -> bool {
        (value - self.at).abs() > 0.03 + 3.0 * error * libm::sqrt(1.0 + 1.0 / self.of)
    }
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    #[default]
    High,
    Low {
        was: f64,
        alarm: bool,
        depth: u32,
    },
}

impl Gradient {
    fn no_load(&self) -> f64 {
        self.no_load.min().unwrap_or(self.alone.at)
    }

    fn renew(&mut self, took: f64, error: f64) {
        self.alone.set(took);
        self.no_load.clear();
        self.no_load.push(took + error);
    }

    fn feed(&mut self, took: f64, most: f64, error: f64) {
        self.alone.add(took, most);
        self.no_load.push(self.alone.at + error / libm::sqrt(self.alone.of));
    }

    fn best(&self) -> f64 {
        libm::exp(self.rate.at + self.no_load())
    }

    fn low(&mut self, level: f64, alarm: bool, depth: u32, to: f64) -> f64 {
        self.phase = Phase::Low { was: level, alarm, depth };
        self.held = 0;
        to.max(level * 0.5).min(level * LOW)
    }

    pub(super) fn recalibrate(&mut self) {
        self.held = HOLDS;
        self.alone.of = self.alone.of.min(1.0);
    }

    pub(super) fn next(&mut self, limit: f64, at_floor: bool, seen: Seen) -> f64 {
        let level = limit * seen.used;
        let phase = core::mem::take(&mut self.phase);
        let Some(latency) = seen.latency else {
            return limit * 0.5;
        };
        let error = seen.error.max(0.01);
        if seen.under_used {
            return limit;
        }
        if seen.dropped > 0.0 {
            self.rate.of = 0.0;
            self.starting = false;
            return level * (0.9 * (1.0 - seen.dropped)).max(0.5);
        }
        let most = (error * error / 0.0006).clamp(4.0, 64.0);
        let (took, rate) = (libm::log(latency), libm::log(level / latency));
        if self.alone.of == 0.0 {
            self.renew(took, error);
        }
        if took < self.no_load() && self.alone.strays(took, error) {
            self.renew(took, error);
            self.rate.set(rate);
            if let Phase::High = phase {
                return self.low(level, false, 0, 0.0);
            }
        }
        match phase {
            Phase::Low { was, alarm, depth } => {
                if alarm && let Some(before) = seen.before {
                    self.rate.at = self.rate.at.min(libm::log(was / before));
                }
                let above = took > self.no_load() && self.alone.strays(took, error);
                let still = rate > self.rate.at - 0.03 || (above && rate > self.rate.at - 0.1 - 2.0 * error);
                if still && depth < 8 && !at_floor {
                    if rate > self.rate.at && self.rate.strays(rate, error) {
                        self.rate.set(rate);
                    }
                    return self.low(level, alarm, depth + 1, 0.0);
                }
                if above {
                    self.renew(took, error);
                } else {
                    self.feed(took, most, error);
                }
                (1.0 + self.headroom) * self.best()
            }
            Phase::High => {
                if self.rate.of > 0.0 && self.rate.strays(rate, error) {
                    let fell = rate < self.rate.at;
                    self.rate.set(rate);
                    if fell {
                        self.starting = false;
                        return self.low(level, true, 0, 0.92 * self.best());
                    }
                } else {
                    self.rate.add(rate, most);
                }
                let queue = libm::log(level / self.best());
                let raw = took - self.no_load();
                let doubt = error * libm::sqrt(1.0 + 1.0 / self.alone.of);
                let free = if self.starting {
                    raw < self.headroom + 2.0 * doubt
                } else {
                    queue < self.headroom / 2.0
                        || raw < (self.headroom / 2.0).min(self.headroom - 2.0 * doubt)
                };
                if free {
                    if self.starting || self.grown > 1 {
                        self.feed(took, most, error);
                    }
                    self.rate.of = 0.0;
                    self.held = 0;
                    let pace = if self.starting { 1.5 } else { [1.12, 1.3, 1.5][self.grown.min(2)] };
                    self.grown += 1;
                    return (limit * pace).max(limit + 1.0);
                }
                self.starting = false;
                self.grown = 0;
                self.held += 1;
                if self.held > HOLDS {
                    return self.low(level, false, 0, 0.9 * self.best());
                }
                (1.0 + self.headroom) * self.best()
            }
        }
    }
}

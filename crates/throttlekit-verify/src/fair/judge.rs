//! Runs a scenario on a rule, records its admissions, and reports the invariant that is broken.

use std::collections::BTreeMap;

use throttlekit_core::fair::Weight;
use throttlekit_core::{Decision, Timestamp};

use super::seeded::Seeded;
use super::{Books, FairScenario, Operation, Shares};
use throttlekit_conformance::check::{Check, ensure};

/// The invariants of sharing. `docs/reference/guarantees.md` has them in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairInvariant {
    /// `fair-1`: what is admitted in a window is never more than the limit.
    Safety,
    /// `fair-2`: no tenant takes units that are reserved for another.
    SharingIncentive,
    /// `fair-3`: no units are left that a request would fit in.
    WorkConservation,
    /// `fair-4`: the amounts of backlogged tenants, divided by their weights, differ by at most one request
    /// each.
    BoundedUnfairness,
    /// Every field of every response equals the result of a walk over all tenants.
    Answers,
}

impl FairInvariant {
    /// Every invariant.
    pub const ALL: &'static [Self] = &[
        Self::Safety,
        Self::SharingIncentive,
        Self::WorkConservation,
        Self::BoundedUnfairness,
        Self::Answers,
    ];

    /// Returns its name in `docs/reference/guarantees.md`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Safety => "fair-1",
            Self::SharingIncentive => "fair-2",
            Self::WorkConservation => "fair-3",
            Self::BoundedUnfairness => "fair-4",
            Self::Answers => "fair-answers",
        }
    }
}

/// Runs a scenario on a rule and checks these invariants.
pub fn judge(invariants: &[FairInvariant], scenario: &FairScenario, rule: &mut dyn Shares) -> Check {
    Judge::new(invariants, scenario).play(rule)
}

struct Judge<'a> {
    invariants: &'a [FairInvariant],
    scenario: &'a FairScenario,
    books: Books,
    twin: Option<Seeded>,
    weights: Vec<u64>,
    now: Timestamp,
    /// Units admitted in this window, to present and past tenants.
    admitted: u64,
    /// The part of that admitted before the window began again.
    before: u64,
    /// Units admitted in past windows, by their ends.
    admitted_in: BTreeMap<Timestamp, u64>,
    /// The largest cost requested in this window.
    cost_max: u64,
    /// True if no tenant was above its guarantee when guarantees last changed.
    even: bool,
    /// Charges that were not returned: the tenant, the units, and the end of the window.
    open: Vec<(usize, u64, Timestamp)>,
    /// The inputs of guarantees: the shared units, and the tenants with their weights.
    terms: Terms,
}

type Terms = (u64, Vec<(usize, u128)>);

impl<'a> Judge<'a> {
    fn new(invariants: &'a [FairInvariant], scenario: &'a FairScenario) -> Self {
        Self {
            invariants,
            scenario,
            books: Books::new(scenario, None),
            twin: invariants.contains(&FairInvariant::Answers).then(|| Seeded::new(scenario, None)),
            weights: scenario.weights.clone(),
            now: scenario.start,
            admitted: 0,
            before: 0,
            admitted_in: BTreeMap::new(),
            cost_max: 0,
            even: true,
            open: Vec::new(),
            terms: Terms::default(),
        }
    }

    fn play(&mut self, rule: &mut dyn Shares) -> Check {
        for operation in &self.scenario.operations {
            match operation {
                Operation::Ask { tenant, cost } => _ = self.ask(rule, *tenant, *cost)?,
                Operation::Wait(by) => self.now = self.now + *by,
                Operation::StepBack(by) => {
                    self.now =
                        Timestamp::from_nanos(self.now.as_nanos().saturating_sub(by.as_nanos() as u64));
                }
                Operation::Reweigh { tenant, weight } => self.weights[*tenant] = *weight,
                Operation::SetLimit(limit) => self.set_limit(rule, *limit),
                Operation::Reset { tenant } => self.reset(rule, *tenant),
                Operation::Refund { ask, units } => self.refund(rule, *ask, *units),
                Operation::Exhaust { costs, silent } => self.exhaust(rule, costs, silent)?,
            }
        }
        Ok(())
    }

    fn ask(&mut self, rule: &mut dyn Shares, tenant: usize, cost: u64) -> Result<bool, String> {
        let weight = Weight::new(self.weights[tenant]).expect("scenarios have valid weights");
        self.advance();
        let answer = rule.ask(tenant, weight, cost, self.now);
        self.compare(tenant, weight, cost, answer)?;
        if cost == 0 {
            return Ok(answer.allowed);
        }
        self.cost_max = self.cost_max.max(cost);
        let place = self.books.fixture(tenant, weight.get());
        self.note_changes();
        self.check(place, cost, answer.allowed)?;
        if answer.allowed {
            self.admitted += cost;
            self.books.charge(place, cost);
            self.open.push((tenant, cost, self.books.end()));
        }
        Ok(answer.allowed)
    }

    fn set_limit(&mut self, rule: &mut dyn Shares, limit: u64) {
        self.advance();
        rule.set_limit(limit, self.now);
        self.books.limit = limit;
        if let Some(twin) = &mut self.twin {
            twin.set_limit(limit, self.now);
        }
        self.note_changes();
    }

    fn reset(&mut self, rule: &mut dyn Shares, tenant: usize) {
        self.advance();
        rule.reset(tenant, self.now);
        self.admitted -= self.books.reset(tenant);
        self.open.retain(|(charged, ..)| *charged != tenant);
        if let Some(twin) = &mut self.twin {
            twin.reset(tenant, self.now);
        }
        self.note_changes();
    }

    fn refund(&mut self, rule: &mut dyn Shares, ask: usize, units: u64) {
        if self.open.is_empty() {
            return;
        }
        let at = ask % self.open.len();
        let (tenant, charged, reset_at) = self.open[at];
        let units = units.min(charged);
        self.open[at].1 -= units;
        self.open.retain(|(_, charged, _)| *charged > 0);
        self.advance();
        rule.refund(tenant, units, reset_at, self.now);
        self.admitted -= self.books.refund(tenant, units, reset_at);
        if let Some(twin) = &mut self.twin {
            twin.refund(tenant, units, reset_at, self.now);
        }
        self.note_changes();
    }

    /// Lets every active tenant that is not silent request in turn, until a whole round admits nothing and
    /// changes nothing.
    fn exhaust(&mut self, rule: &mut dyn Shares, costs: &[u64], silent: &[bool]) -> Check {
        // On a copy: without a request, the rule does not observe the time.
        let mut ahead = self.books.clone();
        ahead.advance(self.now);
        let active = ahead.seated().map(|(_, seated)| seated.tenant);
        let asking: Vec<usize> = active.filter(|&tenant| !silent[tenant]).collect();
        let mut goes_on = !asking.is_empty();
        while goes_on {
            let terms = self.terms.clone();
            goes_on = false;
            for &tenant in &asking {
                goes_on |= self.ask(rule, tenant, costs[tenant])?;
            }
            goes_on |= terms != self.terms;
        }
        self.check_exhausted(&asking, costs)
    }

    fn advance(&mut self) {
        let window = self.books.end();
        self.books.advance(self.now);
        if self.books.end() != window {
            self.admitted_in.insert(window, self.admitted);
            self.admitted = self.admitted_in.remove(&self.books.end()).unwrap_or(0);
            (self.before, self.cost_max) = (self.admitted, 0);
        }
        self.note_changes();
    }

    /// Records whether a tenant is above its guarantee when guarantees have changed.
    fn note_changes(&mut self) {
        let shared = self.books.seated().map(|(_, seated)| (seated.tenant, seated.shared()));
        let same = self.terms.0 == self.books.shared() && shared.clone().eq(self.terms.1.iter().copied());
        if !same {
            self.terms = (self.books.shared(), shared.collect());
            self.even = self.books.seated().all(|(place, seated)| seated.used <= self.books.guarantee(place));
        }
    }

    /// Checks the invariants of one request, before it is recorded.
    fn check(&self, place: usize, cost: u64, allowed: bool) -> Check {
        let books = &self.books;
        let (used, guarantee) = (books.at(place).used, books.guarantee(place));
        let (left, within) = (books.left(), used + cost <= guarantee);
        let tenant = books.at(place).tenant;
        let asks = |invariant: &FairInvariant| {
            let invariant = invariant.name();
            format!(
                "{invariant}: tenant {tenant} asks {cost}, has used {used} of {guarantee}, {left} are left"
            )
        };
        self.invariants.iter().try_for_each(|invariant| match invariant {
            FairInvariant::Safety => ensure(!allowed || self.admitted + cost <= books.limit, || {
                format!(
                    "{}: admitted, with {} of {} admitted before",
                    asks(invariant),
                    self.admitted,
                    books.limit
                )
            }),
            FairInvariant::SharingIncentive if allowed && !within => {
                let reserved = books.reserved_for_others(place);
                ensure(cost + reserved <= left, || format!("{}: {reserved} are reserved", asks(invariant)))
            }
            FairInvariant::SharingIncentive if within => ensure(allowed || cost > left, || {
                format!("{}: refused within its guarantee", asks(invariant))
            }),
            FairInvariant::BoundedUnfairness => ensure(!allowed || used <= guarantee, || {
                format!("{}: served again above it", asks(invariant))
            }),
            _ => Ok(()),
        })
    }

    /// Checks the invariants of tenants that requested until nothing was admitted.
    fn check_exhausted(&self, asking: &[usize], costs: &[u64]) -> Check {
        self.invariants.iter().try_for_each(|invariant| match invariant {
            FairInvariant::WorkConservation if !asking.is_empty() => self.check_remainder(asking, costs),
            FairInvariant::BoundedUnfairness if self.even => {
                let pairs = asking.iter().flat_map(|a| asking.iter().map(move |b| (*a, *b)));
                pairs.into_iter().try_for_each(|(a, b)| self.check_pair(a, b))
            }
            _ => Ok(()),
        })
    }

    fn check_remainder(&self, asking: &[usize], costs: &[u64]) -> Check {
        let lacks: u64 = asking.iter().map(|&tenant| costs[tenant] - 1).sum();
        let silent = self.books.seated().filter(|(_, seated)| !asking.contains(&seated.tenant));
        let kept: u64 = silent.map(|(place, _)| self.books.unused(place) + 1).sum();
        // A forgotten window counted as exhausted when it began again, whatever was admitted in it.
        let left = self.books.shared().saturating_sub(self.admitted - self.before);
        ensure(left <= lacks + kept, || {
            format!("fair-3: {left} are left where at most {lacks} + {kept} may be")
        })
    }

    /// `|a/w − b/v| ≤ q·(1/w + 1/v)`, multiplied by both weights.
    fn check_pair(&self, a: usize, b: usize) -> Check {
        let of = |tenant| {
            let place = self.books.at(self.books.place_of(tenant).expect("who asks has a place"));
            (i128::from(place.used), i128::from(place.weight))
        };
        let ((a_used, a_weight), (b_used, b_weight)) = (of(a), of(b));
        let apart = (a_used * b_weight - b_used * a_weight).abs();
        let bound = i128::from(self.cost_max) * (a_weight + b_weight);
        ensure(apart <= bound, || {
            format!("fair-4: tenant {a} has {a_used} by weight {a_weight}, {b} has {b_used} by {b_weight}")
        })
    }

    fn compare(&mut self, tenant: usize, weight: Weight, cost: u64, answer: Decision) -> Check {
        let Some(twin) = &mut self.twin else { return Ok(()) };
        let expected = twin.ask(tenant, weight, cost, self.now);
        ensure(answer == expected, || {
            format!("fair-answers: tenant {tenant} asks {cost}: {answer:?}, where a walk finds {expected:?}")
        })
    }
}

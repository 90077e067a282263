//! Coverage of a scenario, which detects a check that has become vacuous.

use std::collections::BTreeSet;

use throttlekit::store::Outcome;
use throttlekit::{Decision, Retry};
use throttlekit_core::rate::{Cadence, Need, Rule};

use super::StoreScenario;
use super::play::{Charged, Play};
use super::policy::Placed;
use crate::Spec;

impl Play<'_> {
    pub(super) fn note_scenario(&mut self) {
        let StoreScenario { specs, need, home, through_limiter, .. } = self.scenario;
        for spec in specs {
            self.notes.see(kind(spec));
        }
        let several = specs.len() > 1;
        self.notes.see_if(several && *need == Need::All, "all of several");
        self.notes.see_if(several && *need == Need::Any, "any of several");
        self.notes.see_if(specs.len() >= 5, "five limits or more");
        self.notes.see_if(home.is_some(), "home by key");
        self.notes.see(if *through_limiter { "through a limiter" } else { "straight to the store" });
    }

    pub(super) fn note_flight(&mut self, asks: &[Placed]) {
        self.notes.see_if(asks.is_empty(), "a flight of none");
        self.notes.see_if(asks.len() > 1, "a flight of several");
        let names: BTreeSet<&String> = asks.iter().flat_map(|ask| &ask.names).collect();
        let asked: usize = asks.iter().map(|ask| ask.names.len()).sum();
        self.notes.see_if(names.len() < asked, "a key twice in one flight");
        self.notes.see_if(self.now < self.furthest, "behind the clock");
    }

    pub(super) fn note_outcome(&mut self, ask: &Placed, outcome: &Outcome) {
        let Decision { allowed, retry_after, .. } = outcome.verdict.decision;
        let deniers = || outcome.decisions.iter().zip(&ask.names).filter(|(decision, _)| !decision.allowed);
        let debt = deniers().any(|(_, name)| self.in_debt.contains(name));
        let (all, some) = (outcome.decisions.len(), deniers().count());
        let notes = &mut self.notes;
        notes.see_if(!allowed, "denied");
        notes.see_if(!allowed && retry_after == Retry::Never, "never");
        notes.see_if(!allowed && (1..all).contains(&some), "denied among several");
        notes.see_if(allowed && some > 0, "any where some deny");
        notes.see_if(debt, "debt denies");
        for (cost, decision) in ask.costs.iter().zip(&outcome.decisions) {
            notes.see_if(*cost == 0, "cost zero");
            notes.see_if(*cost == decision.limit, "cost of all");
            notes.see_if(*cost > decision.limit, "cost above the limit");
            notes.see_if(*cost == u64::MAX, "cost max");
        }
    }

    pub(super) fn note_settled(&mut self, charged: &[Charged], actual: &[u64]) {
        for Charged { limit, name, cost, at, .. } in charged {
            let used = actual[*limit];
            let notes = &mut self.notes;
            notes.see_if(used < *cost, "settle for less");
            notes.see_if(used == *cost, "settle as charged");
            notes.see_if(used > *cost, "settle for more");
            notes.see(if *at == self.now { "settle at once" } else { "settle later" });
            let spent =
                !self.policy.forms[*limit].limit().decide(&self.rules.state(name), 1, self.now).allowed;
            if used > *cost && spent {
                self.in_debt.insert(name.clone());
            }
        }
    }
}

fn kind(spec: &Spec) -> &'static str {
    match spec {
        Spec::Gcra { .. } => "gcra",
        Spec::TokenBucket { .. } => "token-bucket",
        Spec::LeakyBucket { .. } => "leaky-bucket",
        Spec::Window { cadence: Cadence::Local { .. }, .. }
        | Spec::Budget { cadence: Cadence::Local { .. }, .. } => "local calendar",
        Spec::Window { cadence: Cadence::Month { .. }, .. } => "month",
        Spec::Window { .. } => "window",
        Spec::Budget { cadence: Cadence::Month { .. }, .. } => "budget of a month",
        Spec::Budget { .. } => "budget",
        Spec::SlidingWindow { .. } => "sliding-window",
        Spec::SlidingLog { .. } => "sliding-log",
    }
}

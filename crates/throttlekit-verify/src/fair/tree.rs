//! Guarantee `fair-tree`: nested weights divide as configured, and like flat ones where inner weights are
//! sums.
//!
//! In every scenario all leaves have joined and stay backlogged: each has a request until it is admitted,
//! then another. They come in any order until no request passes. The checks are
//!
//! * safety: never more than the limit;
//! * the sharing incentive: a request within its nested guarantee is admitted;
//! * the shares: with requests of at most `q`, a leaf at depth `d` ends at most `d·q` above its part of the
//!   limit and less than `d + q` below it, where its part is the product of its own and its groups' weights
//!   among their siblings;
//! * flatness: where inner weights are sums, the same for the flat [`weighted_max_min`], up to one unit of
//!   rounding;
//! * work conservation: with requests of one unit the limit is exhausted;
//! * equivalence: the production tree gives the same responses as one that recomputes all sums for every
//!   request.

use std::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::fair::{Group, Leaf, Tree, Weight, weighted_max_min};
use throttlekit_core::rate::Cadence;

use throttlekit_conformance::Dice;
use throttlekit_conformance::invariants::{Invariant, Trial, Violation};

/// A tree and its traffic.
#[derive(Clone, Debug)]
struct Scenario {
    limit: u64,
    cost_max: u64,
    /// True if every group's weight is the sum of those below.
    sums: bool,
    /// Group 0 is the root; others come after their parents.
    groups: Vec<Branch>,
    leaves: Vec<Branch>,
}

#[derive(Clone, Copy, Debug)]
struct Branch {
    parent: usize,
    weight: u64,
}

throttlekit_conformance::bugs! {
    /// A bug of a [`Twin`].
    enum Bug {
        WholeRestBelow: "Below a group that goes beyond its guarantee everything that is left above is divided.",
        ReserveForgotten: "Below such a group nobody looks at what is reserved.",
        OnlyOwnGroup: "Only the group that a leaf belongs to is looked at.",
        FirstComeInside: "Inside a group it is first come, first served.",
        GroupsEqual: "A group counts for one, whoever is in it.",
        BeyondTwice: "Whoever has passed its guarantee may pass it again.",
        OwnReserveTwice: "What an asker has not used of its guarantee is lent to it once more.",
    }
}

/// Returns the invariant, with the bugs that its check must find.
pub(super) fn invariant() -> Invariant {
    let seeded = Bug::ALL.iter().map(|&bug| {
        (
            bug.name(),
            trial(move |scenario, seed| Ok(play(scenario, &mut Twin::new(scenario, Some(bug)), seed))),
        )
    });
    Invariant { name: "fair-tree", holds: trial(played_alike), seeded: seeded.collect() }
}

fn trial(played: impl Fn(&Scenario, u64) -> Result<Played, String> + Send + Sync + 'static) -> Trial {
    Box::new(move |seed| {
        let scenario = Scenario::any(&mut Dice::new(seed));
        let judged = played(&scenario, seed).and_then(|played| judge(&scenario, &played));
        judged.map_err(|problem| Violation { seed, counterexample: format!("{problem}\n{scenario:?}") })
    })
}

fn played_alike(scenario: &Scenario, seed: u64) -> Result<Played, String> {
    let shipped = play(scenario, &mut Shipped::new(scenario), seed);
    let twin = play(scenario, &mut Twin::new(scenario, None), seed);
    if shipped.answers != twin.answers {
        let first = shipped.answers.iter().zip(&twin.answers).position(|(a, b)| a != b);
        return Err(format!("the tree and its slow twin differ at ask {first:?}"));
    }
    Ok(shipped)
}

impl Scenario {
    /// Draws two to five levels, one to four branches each, weights of a few sizes.
    fn any(dice: &mut Dice) -> Self {
        let levels = dice.between(2, 5);
        let weight_max = dice.pick(&[1, 5, 1_000]);
        let sums = dice.once_in(2);
        let limit_max = dice.pick(&[10, 40, 400]);
        let mut scenario = Self {
            limit: dice.between(1, limit_max),
            cost_max: dice.pick(&[1, 2, 3, 10, 50]),
            sums,
            groups: vec![Branch { parent: 0, weight: 1 }],
            leaves: Vec::new(),
        };
        let mut level = vec![0];
        for depth in 1..=levels {
            let mut next = Vec::new();
            for &parent in &level {
                for child in 0..dice.between(1, 3) {
                    let branch = Branch { parent, weight: dice.between(1, weight_max) };
                    // The first stays a group down to the last level, so that the tree has the drawn depth.
                    if depth < levels && (child == 0 || dice.once_in(3)) {
                        next.push(scenario.groups.len());
                        scenario.groups.push(branch);
                    } else {
                        scenario.leaves.push(branch);
                    }
                }
            }
            level = next;
        }
        if sums {
            scenario.sum_up();
        }
        scenario
    }

    fn sum_up(&mut self) {
        for group in (0..self.groups.len()).rev() {
            self.groups[group].weight = self.children(group).map(|(branch, _)| branch.weight).sum();
        }
    }

    /// Returns the children of a group with their places: groups first.
    fn children(&self, group: usize) -> impl Iterator<Item = (Branch, Place)> {
        let groups = self.groups.iter().enumerate().skip(1).map(|(i, branch)| (*branch, Place::Group(i)));
        let leaves = self.leaves.iter().enumerate().map(|(i, branch)| (*branch, Place::Leaf(i)));
        groups.chain(leaves).filter(move |(branch, _)| branch.parent == group)
    }

    /// Returns the path from the root's child down to a leaf.
    fn path(&self, leaf: usize) -> Vec<(Branch, Place)> {
        let mut path = vec![(self.leaves[leaf], Place::Leaf(leaf))];
        while path[0].0.parent != 0 {
            let group = path[0].0.parent;
            path.insert(0, (self.groups[group], Place::Group(group)));
        }
        path
    }

    fn weights_below(&self, group: usize) -> u64 {
        self.children(group).map(|(branch, _)| branch.weight).sum()
    }

    /// Returns the guarantee of a leaf, rounded down at every level.
    fn promise(&self, leaf: usize) -> u64 {
        self.path(leaf)
            .iter()
            .fold(self.limit, |limit, (branch, _)| branch.weight * limit / self.weights_below(branch.parent))
    }

    /// Returns a leaf's part of the limit as numerator and denominator.
    fn part(&self, leaf: usize) -> (i128, i128) {
        self.path(leaf).iter().fold((i128::from(self.limit), 1), |(above, below), (branch, _)| {
            (above * i128::from(branch.weight), below * i128::from(self.weights_below(branch.parent)))
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Group(usize),
    Leaf(usize),
}

trait Subject {
    fn admits(&mut self, leaf: usize, cost: u64) -> bool;
}

/// The production tree.
struct Shipped {
    tree: Tree,
    leaves: Vec<Leaf>,
}

impl Shipped {
    fn new(scenario: &Scenario) -> Self {
        let hour = Cadence::Every { length: Duration::from_secs(3_600), anchor: Timestamp::EPOCH };
        let mut tree = Tree::new(scenario.limit, hour).expect("a limit of one at least");
        tree.advance(Timestamp::from_millis(1_800_000_000_000));
        let weight = |branch: &Branch| Weight::new(branch.weight).expect("a weight of one at least");
        let mut groups = vec![Group::ROOT];
        for branch in &scenario.groups[1..] {
            let own = (!scenario.sums).then(|| weight(branch));
            groups.push(tree.join_group(groups[branch.parent], own).expect("not too deep"));
        }
        let leaves =
            scenario.leaves.iter().map(|leaf| tree.join(groups[leaf.parent], weight(leaf))).collect();
        Self { tree, leaves }
    }
}

impl Subject for Shipped {
    fn admits(&mut self, leaf: usize, cost: u64) -> bool {
        self.tree.check(self.leaves[leaf], cost).decision.allowed
    }
}

/// The same rule with all sums recomputed for every request, or with a bug.
struct Twin<'a> {
    scenario: &'a Scenario,
    groups: Vec<u64>,
    leaves: Vec<u64>,
    bug: Option<Bug>,
}

impl<'a> Twin<'a> {
    fn new(scenario: &'a Scenario, bug: Option<Bug>) -> Self {
        Self { scenario, groups: vec![0; scenario.groups.len()], leaves: vec![0; scenario.leaves.len()], bug }
    }

    fn used(&self, place: Place) -> u64 {
        match place {
            Place::Group(group) => self.groups[group],
            Place::Leaf(leaf) => self.leaves[leaf],
        }
    }

    fn weight(&self, branch: Branch, place: Place) -> u64 {
        let counts_for_one = self.bug == Some(Bug::GroupsEqual) && matches!(place, Place::Group(_));
        if counts_for_one { 1 } else { branch.weight }
    }

    fn passes(&self, leaf: usize, cost: u64) -> bool {
        let (mut limit, mut beyond) = (self.scenario.limit, false);
        for (branch, place) in self.scenario.path(leaf) {
            let siblings: Vec<_> = self.scenario.children(branch.parent).collect();
            let weights: u64 = siblings.iter().map(|&(branch, place)| self.weight(branch, place)).sum();
            let promise = |branch, place| self.weight(branch, place) * limit / weights;
            let left = limit.saturating_sub(siblings.iter().map(|&(_, place)| self.used(place)).sum());
            let others = siblings.iter().filter(|(_, other)| *other != place);
            let reserved: u64 = others.map(|&(b, p)| promise(b, p).saturating_sub(self.used(p))).sum();
            let (guarantee, used) = (promise(branch, place), self.used(place));
            let mut borrowable = left.saturating_sub(reserved);
            if self.bug == Some(Bug::OwnReserveTwice) {
                borrowable += guarantee.saturating_sub(used);
            }
            let within = used + cost <= guarantee;
            let lends = (used <= guarantee || self.bug == Some(Bug::BeyondTwice)) && cost <= borrowable;
            let mut passes = cost <= left && (within || lends);
            if beyond && self.bug != Some(Bug::ReserveForgotten) {
                passes &= cost <= borrowable;
            }
            let is_leaf = matches!(place, Place::Leaf(_));
            match self.bug {
                Some(Bug::FirstComeInside) if branch.parent != 0 => passes = cost <= left,
                Some(Bug::ReserveForgotten) if beyond => passes = cost <= left,
                Some(Bug::OnlyOwnGroup) if !is_leaf => passes = cost <= left,
                _ => {}
            }
            if !passes {
                return false;
            }
            beyond = used + cost > guarantee;
            limit = match self.bug {
                Some(Bug::WholeRestBelow) if beyond => used + borrowable,
                _ => guarantee.max(used + cost),
            };
        }
        true
    }
}

impl Subject for Twin<'_> {
    fn admits(&mut self, leaf: usize, cost: u64) -> bool {
        let passes = self.passes(leaf, cost);
        if passes {
            for (_, place) in self.scenario.path(leaf) {
                match place {
                    Place::Group(group) => self.groups[group] += cost,
                    Place::Leaf(leaf) => self.leaves[leaf] += cost,
                }
            }
        }
        passes
    }
}

/// A finished run of one scenario.
struct Played {
    answers: Vec<bool>,
    used: Vec<u64>,
    /// The first request within a guarantee that was denied.
    refused: Option<String>,
}

fn play(scenario: &Scenario, subject: &mut dyn Subject, seed: u64) -> Played {
    let mut dice = Dice::new(!seed);
    let mut asks: Vec<u64> = scenario.leaves.iter().map(|_| dice.between(1, scenario.cost_max)).collect();
    let promises: Vec<u64> = (0..asks.len()).map(|leaf| scenario.promise(leaf)).collect();
    let mut played = Played { answers: Vec::new(), used: vec![0; asks.len()], refused: None };
    // A leaf whose request was denied waits until another's passes.
    let mut waiting: Vec<usize> = (0..asks.len()).collect();
    let mut denied = Vec::new();
    while !waiting.is_empty() && played.used.iter().sum::<u64>() <= scenario.limit {
        let leaf = waiting.swap_remove(dice.below(waiting.len() as u64) as usize);
        let passes = subject.admits(leaf, asks[leaf]);
        played.answers.push(passes);
        if passes {
            played.used[leaf] += asks[leaf];
            asks[leaf] = dice.between(1, scenario.cost_max);
            waiting.push(leaf);
            waiting.append(&mut denied);
            continue;
        }
        if played.used[leaf] + asks[leaf] <= promises[leaf] && played.refused.is_none() {
            played.refused =
                Some(format!("leaf {leaf} is refused {} within its {}", asks[leaf], promises[leaf]));
        }
        denied.push(leaf);
    }
    played
}

fn judge(scenario: &Scenario, played: &Played) -> Result<(), String> {
    let total: u64 = played.used.iter().sum();
    if total > scenario.limit {
        return Err(format!("{total} of {} admitted", scenario.limit));
    }
    if let Some(refused) = &played.refused {
        return Err(refused.clone());
    }
    if scenario.cost_max == 1 && total < scenario.limit {
        return Err(format!("{total} of {} used, though everyone asks for one", scenario.limit));
    }
    for (leaf, used) in played.used.iter().enumerate() {
        let (above, below) = scenario.part(leaf);
        let (depth, cost) = (scenario.path(leaf).len() as i128, i128::from(scenario.cost_max));
        let off = i128::from(*used) * below - above;
        if off > depth * cost * below || off <= -(depth + cost) * below {
            return Err(format!("leaf {leaf} has {used} of its part {above}/{below}"));
        }
    }
    if scenario.sums { judge_flat(scenario, played) } else { Ok(()) }
}

fn judge_flat(scenario: &Scenario, played: &Played) -> Result<(), String> {
    let weights: Vec<Weight> = scenario
        .leaves
        .iter()
        .map(|leaf| Weight::new(leaf.weight).expect("a weight of one at least"))
        .collect();
    let flat = weighted_max_min(&vec![u64::MAX; weights.len()], &weights, scenario.limit);
    for (leaf, (&used, &ideal)) in played.used.iter().zip(&flat).enumerate() {
        let depth = scenario.path(leaf).len() as u64;
        if used > ideal + depth * scenario.cost_max + 1 || used + depth + scenario.cost_max + 1 < ideal {
            return Err(format!("leaf {leaf} has {used}, flat weights give {ideal}"));
        }
    }
    Ok(())
}

/// Returns what each of `leaves` equal leaves gets of a limit if all request each of these costs in turn.
pub fn equal_leaves(leaves: usize, limit: u64, asks: &[u64]) -> Vec<u64> {
    let root = Branch { parent: 0, weight: 1 };
    let scenario =
        Scenario { limit, cost_max: 50, sums: false, groups: vec![root], leaves: vec![root; leaves] };
    let (mut tree, mut used) = (Shipped::new(&scenario), vec![0; leaves]);
    for &cost in asks {
        for (leaf, used) in used.iter_mut().enumerate() {
            *used += if tree.admits(leaf, cost) { cost } else { 0 };
        }
    }
    used
}

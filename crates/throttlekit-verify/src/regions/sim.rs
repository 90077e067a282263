//! Simulation of regions that fetch from a pool over a network: the core's own types with random events.

use std::collections::BTreeMap;
use std::time::Duration;

use throttlekit::Limit;
use throttlekit_core::Timestamp;
use throttlekit_core::fair::branch::{Branch, BranchDecision, BranchPlan, Credit};
use throttlekit_core::fair::pool::{Pool, PoolGrant, PoolRequest, PoolState};
use throttlekit_core::fair::{Member, Weight};
use throttlekit_core::lease::{Epoch, Margin};

use throttlekit_conformance::Dice;
use throttlekit_conformance::regions::PoolBug;

/// Time that a region uses a reply.
pub(super) const HOLD: Duration = Duration::from_millis(5);

throttlekit_conformance::bugs! {
    /// A bug in a simulation.
    pub enum RegionBug {
        FirstComeCounter: "The pool grants first come, first served.",
        SharesFromTheWholeLimit: "Shares are parts of the whole limit, whatever was granted.",
        CeilingWithoutWhatIsGranted: "What others were granted beyond their share is not counted.",
        OwnShareCountedTwice: "The unused share of a region counts twice for it.",
        GrantsNotCounted: "Grants are not counted.",
        FullWeightInEveryRegion: "A tenant has its full weight in every region.",
        CreditPerWaiter: "A grant is credited once for each request that waits for it.",
        UnspentCarriedOver: "What is left of a grant is kept in the next window.",
        LateReplyCredited: "A reply that arrives after its window is credited.",
        DeadlineFromArrival: "The life of a grant is counted from the reply and not from the request.",
        ClockNotReadAgain: "The clock is not read again before units are spent.",
    }
}

impl RegionBug {
    /// Returns the guarantee that it violates.
    pub fn breaks(self) -> Promise {
        match self {
            Self::FirstComeCounter
            | Self::SharesFromTheWholeLimit
            | Self::CeilingWithoutWhatIsGranted
            | Self::OwnShareCountedTwice
            | Self::FullWeightInEveryRegion => Promise::Fair,
            Self::GrantsNotCounted
            | Self::CreditPerWaiter
            | Self::UnspentCarriedOver
            | Self::LateReplyCredited
            | Self::DeadlineFromArrival
            | Self::ClockNotReadAgain => Promise::Safe,
        }
    }

    /// Returns the bug of the pool, if it is one.
    fn of_pool(self) -> Option<PoolBug> {
        match self {
            Self::FirstComeCounter => Some(PoolBug::FirstComeFirstServed),
            Self::SharesFromTheWholeLimit => Some(PoolBug::SharesFromTheWholeLimit),
            Self::CeilingWithoutWhatIsGranted => Some(PoolBug::SharesOnly),
            Self::OwnShareCountedTwice => Some(PoolBug::OwnShareTwice),
            Self::GrantsNotCounted => Some(PoolBug::GrantsNotCounted),
            _ => None,
        }
    }
}

/// The guarantee that a bug violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// At most the limit.
    Safe,
    /// To each tenant its share.
    Fair,
}

/// Injected faults, each once in `n` times; zero for never.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) lost: u64,
    pub(super) twice: u64,
    /// Maximum delay of a message.
    pub(super) delay_max: Duration,
    /// Maximum clock drift, in parts per million.
    pub(super) drift_ppm: u64,
    /// A pause between deciding and sending.
    pub(super) pause: u64,
}

/// The pool and the regions.
pub(super) struct Sim {
    pub(super) dice: Dice,
    pub(super) now: Timestamp,
    pub(super) regions: Vec<Region>,
    bug: Option<RegionBug>,
    faults: Faults,
    plan: BranchPlan,
    pool: Pool,
    state: PoolState,
    flights: Vec<Flight>,
    ids: u64,
    /// Units admitted in each window of the pool, by its end.
    pub(super) admitted: BTreeMap<Timestamp, u64>,
    /// Units admitted of each tenant in each region.
    pub(super) got: Vec<Vec<u64>>,
}

/// One region: production code, and the additions of a bug.
pub(super) struct Region {
    branch: Branch,
    members: Vec<Option<Member>>,
    /// Parts per million by which its clock runs fast, and its start.
    drift: i64,
    offset: u64,
    waiting: Vec<Waiter>,
    /// Units that only a bug creates.
    phantom: u64,
}

struct Waiter {
    tenant: usize,
    weight: Weight,
    cost: u64,
    needs: u64,
}

struct Flight {
    region: usize,
    id: u64,
    ask: (Weight, u64),
    /// By the region's clock.
    sent: Timestamp,
    /// At the pool, then back.
    arrives: Timestamp,
    reply: Option<(PoolGrant, Timestamp)>,
}

impl Sim {
    pub(super) fn new(
        seed: u64,
        regions: usize,
        tenants: usize,
        limit: Limit,
        quantum: u64,
        faults: Faults,
        bug: Option<RegionBug>,
    ) -> Self {
        let mut dice = Dice::new(seed ^ 0x7265_6769_6f6e);
        let plan = BranchPlan { limit: limit.units(), quantum, hold: HOLD, margin: Margin::default() };
        let region = |dice: &mut Dice| Region {
            branch: Branch::new(plan),
            members: vec![None; tenants],
            drift: dice.between(0, 2 * faults.drift_ppm) as i64 - faults.drift_ppm as i64,
            offset: dice.below(1 << 40),
            waiting: Vec::new(),
            phantom: 0,
        };
        let count = regions;
        let regions = (0..count).map(|_| region(&mut dice)).collect();
        let pool = Pool::new(limit).expect("a window");
        Self {
            now: Timestamp::from_millis(1_000_000 + dice.below(100_000)),
            dice,
            regions,
            bug,
            faults,
            plan,
            pool,
            state: PoolState::default(),
            flights: Vec::new(),
            ids: 0,
            admitted: BTreeMap::new(),
            got: vec![vec![0; count]; tenants],
        }
    }

    /// Activates tenants in a region, and reports its weight to the pool. Nothing is spent.
    pub(super) fn join(&mut self, region: usize, tenants: impl Iterator<Item = (usize, Weight)>) {
        for (tenant, weight) in tenants {
            self.regions[region].member(tenant, weight);
        }
        if !self.regions[region].branch.roster().is_empty() {
            self.regions[region].branch.wait(0);
            self.send(region);
            while self.deliver().is_some() {}
            self.regions[region].branch.stop_waiting(0);
        }
    }

    /// Makes a request of a tenant in a region.
    pub(super) fn ask(&mut self, tenant: usize, region: usize, weight: Weight, cost: u64) {
        let (bug, now) = (self.bug, self.now);
        let at = &mut self.regions[region];
        let clock = at.clock(now);
        at.advance(clock, bug);
        let member = at.member(tenant, weight);
        match at.branch.ask(member, weight, cost, clock) {
            BranchDecision::Admit(_) => {
                if self.faults.pause > 0 && self.dice.once_in(self.faults.pause) {
                    self.now = self.now + Duration::from_millis(self.dice.below(2_000));
                }
                let at = &mut self.regions[region];
                if bug != Some(RegionBug::ClockNotReadAgain) && !at.branch.lives(at.clock(self.now)) {
                    return;
                }
                self.count(tenant, region, cost);
            }
            BranchDecision::Wait { .. } | BranchDecision::Deny(_) if at.phantom >= cost => {
                at.phantom -= cost;
                self.count(tenant, region, cost);
            }
            BranchDecision::Deny(_) => {}
            BranchDecision::Wait { needs } => {
                at.branch.wait(needs);
                at.waiting.push(Waiter { tenant, weight, cost, needs });
                self.send(region);
            }
        }
    }

    /// Restarts a region: its state is lost, and replies to it may still arrive.
    pub(super) fn restart(&mut self, region: usize) {
        let at = &mut self.regions[region];
        at.branch = Branch::new(self.plan);
        at.members.fill(None);
        at.waiting.clear();
    }

    fn send(&mut self, region: usize) {
        let at = &mut self.regions[region];
        self.ids += 1;
        let sent = at.clock(self.now);
        let Some(request) = at.branch.poll_request(self.ids, sent) else { return };
        let ask = (request.weight, request.wants);
        let copies = 1 + u64::from(self.faults.twice > 0 && self.dice.once_in(self.faults.twice));
        for _ in 0..copies {
            let arrives = self.now + self.delay();
            self.flights.push(Flight { region, id: request.id, ask, sent, arrives, reply: None });
        }
    }

    fn delay(&mut self) -> Duration {
        Duration::from_nanos(self.dice.below(self.faults.delay_max.as_nanos() as u64 + 1))
    }

    /// Delivers the next message and advances time. `None` if none is in transit.
    pub(super) fn deliver(&mut self) -> Option<()> {
        let next = (0..self.flights.len()).min_by_key(|&i| self.flights[i].arrives)?;
        let mut flight = self.flights.swap_remove(next);
        self.now = self.now.max(flight.arrives);
        if self.faults.lost > 0 && self.dice.once_in(self.faults.lost) {
            // The sender eventually times out, perhaps before a copy of it comes back.
            self.regions[flight.region].branch.handle_failure(flight.id);
            self.wake(flight.region);
            return Some(());
        }
        match flight.reply {
            None => {
                let name = format!("{}", flight.region);
                let ask = PoolRequest { region: &name, weight: flight.ask.0, wants: flight.ask.1 };
                let grant = match self.bug.and_then(RegionBug::of_pool) {
                    Some(bug) => bug.grant(&self.pool, &mut self.state, ask, self.now),
                    None => self.pool.grant(&mut self.state, ask, self.now).expect("few regions"),
                };
                flight.reply = Some((grant, self.now));
                flight.arrives = self.now + self.delay();
                self.flights.push(flight);
            }
            Some((grant, theirs)) => self.arrive(&flight, grant, theirs),
        }
        Some(())
    }

    fn arrive(&mut self, flight: &Flight, mut grant: PoolGrant, theirs: Timestamp) {
        let bug = self.bug;
        let &Flight { region, id, sent, .. } = flight;
        let at = &mut self.regions[region];
        let clock = at.clock(self.now);
        at.advance(clock, bug);
        match bug {
            Some(RegionBug::DeadlineFromArrival) => grant.lives += clock.since(sent),
            Some(RegionBug::LateReplyCredited) => {
                (grant.lives, grant.epoch) = (Duration::from_secs(3_600), Epoch(u64::MAX));
            }
            _ => {}
        }
        let credit = at.branch.handle_reply(id, grant, theirs, clock);
        if credit == (Credit::Credited { anew: true }) {
            at.members.fill(None);
        }
        if bug == Some(RegionBug::CreditPerWaiter) && credit != Credit::Lapsed {
            at.phantom += grant.granted * (at.waiting.len() as u64).saturating_sub(1);
        }
        self.wake(region);
    }

    /// Repeats the requests of all waiting tenants.
    fn wake(&mut self, region: usize) {
        let woken = std::mem::take(&mut self.regions[region].waiting);
        woken.iter().for_each(|waiter| self.regions[region].branch.stop_waiting(waiter.needs));
        for Waiter { tenant, weight, cost, .. } in woken {
            self.ask(tenant, region, weight, cost);
        }
    }

    /// Returns whether a tenant waits for a reply in a region.
    pub(super) fn waits(&self, tenant: usize, region: usize) -> bool {
        self.regions[region].waiting.iter().any(|waiter| waiter.tenant == tenant)
    }

    fn count(&mut self, tenant: usize, region: usize, cost: u64) {
        self.got[tenant][region] += cost;
        let mut fresh = PoolState::default();
        let looks = PoolRequest { region: "", weight: Weight::ONE, wants: 0 };
        let window = self.pool.grant(&mut fresh, looks, self.now).map(|_| fresh.ends).expect("few regions");
        *self.admitted.entry(window).or_default() += cost;
    }
}

impl Region {
    fn clock(&self, now: Timestamp) -> Timestamp {
        let nanos = i128::from(now.as_nanos());
        let drifted = nanos + nanos * i128::from(self.drift) / 1_000_000;
        Timestamp::from_nanos(drifted as u64 + self.offset)
    }

    fn advance(&mut self, clock: Timestamp, bug: Option<RegionBug>) {
        let in_hand = self.branch.in_hand();
        if self.branch.advance(clock) {
            self.members.fill(None);
            if bug == Some(RegionBug::UnspentCarriedOver) {
                self.phantom += in_hand;
            }
        }
    }

    fn member(&mut self, tenant: usize, weight: Weight) -> Member {
        *self.members[tenant].get_or_insert_with(|| self.branch.roster_mut().join(weight))
    }
}

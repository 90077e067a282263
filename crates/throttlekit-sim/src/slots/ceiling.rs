//! Nodes under one shared ceiling.

use core::time::Duration;

use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::division;
use throttlekit_core::concurrency::division::{
    Combine, Grant, HeartbeatIntervals, Membership, Node, NodeId, NodeLoad, Rebalancer, ReportResponse, Split,
};
use throttlekit_core::lease::Margin;

use super::bound::Bound;
use super::clock::{Clock, MILLI};
use super::queue::Queue;
use super::{Fault, Report, SlotBug};
use crate::dice::Dice;

const EVENTS_MAX: u64 = 400_000;

#[derive(Clone, Debug)]
enum Event {
    /// Callers send requests to a node.
    Ask(usize),
    /// A node checks whether a heartbeat is due.
    Poll(usize),
    /// A report arrives, sent at this true time by a process.
    Hear {
        at: usize,
        process: u64,
        report: division::NodeReport,
        sent: u64,
    },
    /// A grant arrives.
    Take {
        at: usize,
        process: u64,
        grant: Grant,
        sent: u64,
    },
    /// A node stops waiting for a response.
    GiveUp {
        at: usize,
        process: u64,
        sent: u64,
    },
    /// Some work of a process ends.
    Done {
        at: usize,
        process: u64,
        works: u32,
    },
    /// A node's grant expires, unless another came.
    Dies {
        at: usize,
        process: u64,
    },
    /// Work that ran on after the expiry has ended.
    Ended {
        at: usize,
        process: u64,
        died: Timestamp,
    },
    Fault,
}

struct Process {
    node: Node,
    clock: Clock,
    process: u64,
    in_flight: u32,
    /// The number in flight in the previous report.
    told: u32,
    wants: u32,
    limit: u32,
    paused_until: u64,
    cut_until: u64,
    /// The share that a seeded bug enforces.
    obeys: Option<u32>,
    sent: Option<Timestamp>,
    leaving: bool,
    /// The time of its next poll.
    polls_at: u64,
}

struct Simulation {
    dice: Dice,
    bug: Option<SlotBug>,
    queue: Queue<Event>,
    report: Report,
    now: u64,
    ends: u64,
    rebalancer: Rebalancer,
    heartbeats: HeartbeatIntervals,
    /// The maximum that the ceiling ever has.
    most: u32,
    membership: Membership,
    /// The membership record as it was before the last heartbeat.
    before: Membership,
    clock: Clock,
    ppm: u32,
    away_until: u64,
    processes: Vec<Process>,
    started: u64,
    bound: Bound,
    delay: u64,
    lost_percent: u64,
    /// The true time for which work runs on after a grant has expired.
    linger: u64,
}

pub(super) fn run(mut dice: Dice, bug: Option<SlotBug>, tell: &mut dyn FnMut(String)) -> Report {
    let ppm = dice.pick(&[0, 500, 20_000, 50_000]);
    let lives = Duration::from_millis(dice.pick(&[400, 1_000, 3_000]));
    let linger = lives.as_nanos() as u64 * dice.pick(&[0, 0, 1, 2]) / 2;
    let most = dice.pick(&[4, 20, 100, 1_000]);
    let nodes = dice.within(2, 16) as usize;
    // The rebalancer counts by a clock that may run fast.
    let told =
        if bug == Some(SlotBug::LingerUntold) { 0 } else { linger + linger * u64::from(ppm) / 1_000_000 };
    let rebalancer = Rebalancer {
        combine: dice.pick(&[Combine::Min, Combine::LowerMedian]),
        split: dice.pick(&[Split::Equal, Split::Demand]),
        initial: most / 2 + 1,
        most: if bug == Some(SlotBug::LimitsAdded) { u32::MAX } else { most },
        lives,
        linger: Duration::from_nanos(told),
    };
    let trusted = if bug == Some(SlotBug::GrantDriftIgnored) { 0 } else { ppm };
    let margin = Margin { holder_ppm: trusted, authority_ppm: trusted, slack: Duration::from_micros(1) };
    let mut simulation = Simulation {
        rebalancer,
        heartbeats: HeartbeatIntervals { every: lives / 4, spacing: lives / 40, margin },
        clock: Clock::draw(&mut dice, ppm),
        delay: dice.pick(&[MILLI / 2, 5 * MILLI, 20 * MILLI]),
        lost_percent: dice.pick(&[0, 3, 10]),
        ends: 30 * lives.as_nanos() as u64,
        ppm,
        dice,
        bug,
        queue: Queue::new(),
        report: Report::default(),
        now: 0,
        most,
        membership: Membership::default(),
        before: Membership::default(),
        away_until: 0,
        processes: Vec::new(),
        started: 0,
        bound: Bound::default(),
        linger,
    };
    (0..nodes).for_each(|_| simulation.start());
    simulation.queue.push(3 * simulation.life(), Event::Fault);
    simulation.go(tell);
    simulation.report
}

impl Simulation {
    fn life(&self) -> u64 {
        self.rebalancer.lives.as_nanos() as u64
    }

    fn fresh(&mut self) -> Process {
        self.started += 1;
        let id = u128::from(self.dice.roll());
        Process {
            node: Node::new(NodeId(id), self.heartbeats),
            clock: Clock::draw(&mut self.dice, self.ppm),
            process: self.started,
            in_flight: 0,
            told: 0,
            wants: self.dice.pick(&[0, 1, 10, 500]),
            limit: self.dice.within(1, u64::from(self.most)) as u32,
            paused_until: 0,
            cut_until: 0,
            obeys: None,
            sent: None,
            leaving: false,
            polls_at: 0,
        }
    }

    fn start(&mut self) {
        let at = self.processes.len();
        let one = self.fresh();
        self.processes.push(one);
        let first = self.dice.below(self.life() / 4);
        self.queue.push(first, Event::Poll(at));
        self.queue.push(first, Event::Ask(at));
    }

    /// Runs until faults are over and every node has had the time to get its share.
    fn go(&mut self, tell: &mut dyn FnMut(String)) {
        let rest = 10 * (self.life() + self.linger);
        let mut events = 0;
        while let Some((at, event)) = self.queue.pop() {
            self.now = at.max(self.now);
            events += 1;
            if self.now > self.ends + rest || events > EVENTS_MAX {
                break;
            }
            self.report.note(self.now, events);
            tell(format!("{} {event:?}", self.now));
            self.handle(event);
            self.judge();
            if self.report.broken.is_some() {
                return;
            }
        }
        self.judge_end();
    }

    fn handle(&mut self, event: Event) {
        let at = match event {
            Event::Ask(at) | Event::Poll(at) | Event::GiveUp { at, .. } | Event::Take { at, .. } => Some(at),
            _ => None,
        };
        if let Some(paused) = at.map(|at| self.processes[at].paused_until)
            && self.now < paused
        {
            return self.queue.push(paused, event);
        }
        let is_of = |simulation: &Self, at: usize, process: u64| simulation.processes[at].process == process;
        match event {
            Event::Ask(at) => self.ask(at),
            Event::Poll(at) => self.poll(at),
            Event::Hear { at, process, report, sent } => self.hear(at, process, report, sent),
            Event::Take { at, process, grant, sent } if is_of(self, at, process) => {
                self.take(at, grant, sent);
            }
            Event::GiveUp { at, process, sent } if is_of(self, at, process) => {
                let asked = self.processes[at].clock.read(sent);
                self.processes[at].node.handle_failure(asked);
            }
            Event::Done { at, process, works } if is_of(self, at, process) => {
                let one = &mut self.processes[at];
                one.in_flight = one.in_flight.saturating_sub(works);
                self.poll(at);
            }
            Event::Dies { at, process } if is_of(self, at, process) => self.died(at),
            Event::Ended { at, process, died } if is_of(self, at, process) => self.ended(at, died),
            Event::Fault => self.inject_fault(),
            _ => {}
        }
    }

    fn judge(&mut self) {
        let running: u64 = self.processes.iter().map(|one| u64::from(one.in_flight)).sum();
        let most = self.bound.most();
        if running > most {
            self.report.break_invariant("fleet-ceiling", || format!("{running} run where {most} may"));
        }
    }

    /// Checks that nodes with more demand than the ceiling together have the whole ceiling.
    fn judge_end(&mut self) {
        let now = self.now;
        let shares: u64 =
            self.processes.iter().map(|one| u64::from(one.node.share(one.clock.read(now)))).sum();
        let ceiling = u64::from(self.rebalancer.ceiling(&self.membership));
        if shares != ceiling {
            self.report.break_invariant("recovery", || format!("shares add up to {shares} of {ceiling}"));
        }
    }

    fn share(&self, at: usize, read: u64) -> u32 {
        let one = &self.processes[at];
        match (self.bug, one.obeys) {
            (Some(SlotBug::ObeysAnyGrant | SlotBug::NodeUnfenced), Some(share)) if !one.leaving => share,
            _ => one.node.share(one.clock.read(read)),
        }
    }

    fn ask(&mut self, at: usize) {
        let quiet = self.now >= self.ends;
        let wait = 1 + self.dice.below(self.life() / 8);
        self.queue.push(self.now + wait, Event::Ask(at));
        if quiet {
            return;
        }
        let early = self.bug == Some(SlotBug::ShareReadEarly) && self.dice.chance(20);
        let read = if early { self.now.saturating_sub(self.life()) } else { self.now };
        // Read as it was then, and used now.
        let share = self.share(at, read);
        let room = share.saturating_sub(self.processes[at].in_flight);
        self.report.decisions += 1;
        if room == 0 {
            return;
        }
        let works = self.dice.within(1, u64::from(room)) as u32;
        let one = &mut self.processes[at];
        one.in_flight += works;
        self.report.admitted += 1;
        let (process, tail) = (one.process, self.dice.pick(&[20, 4, 1]));
        let takes = 1 + self.dice.long_tailed(self.life() / tail).min(2 * self.life());
        self.queue.push(self.now + takes, Event::Done { at, process, works });
    }

    fn poll(&mut self, at: usize) {
        let (now, bug, scatter) = (self.now, self.bug, self.dice.roll() as u32);
        let added = self.processes.iter().map(|one| one.limit).sum();
        let one = &mut self.processes[at];
        let shown = one.clock.read(now);
        let limit = if bug == Some(SlotBug::LimitsAdded) { added } else { one.limit };
        let in_flight = if bug == Some(SlotBug::TornReport) { one.told } else { one.in_flight };
        let wants = one.wants.max(one.in_flight);
        let polled = one.node.poll_report(NodeLoad { in_flight, limit, wants }, scatter, shown);
        if let Some(mut report) = polled {
            if one.sent.is_some_and(|sent| shown.since(sent) < self.heartbeats.spacing) {
                self.report.break_invariant("beats", || format!("node {at} sends heartbeats too often"));
            }
            (one.sent, one.told) = (Some(shown), one.in_flight);
            if bug == Some(SlotBug::LeavesWithWork) && report.leaving {
                report.in_flight = 0;
            }
            let process = one.process;
            self.send(at, Event::Hear { at, process, report, sent: now }, Fault::ReportLost);
            let patience = self.life() / 6;
            self.queue.push(now + patience, Event::GiveUp { at, process, sent: now });
        }
        let one = &mut self.processes[at];
        let next = one.clock.when(one.node.next_deadline()).max(now + MILLI);
        if one.polls_at <= now || next < one.polls_at {
            one.polls_at = next;
            self.queue.push(next, Event::Poll(at));
        }
    }

    /// Sends a message, unless it is lost.
    fn send(&mut self, at: usize, event: Event, lost: Fault) {
        let faulty = self.now < self.ends;
        if faulty && (self.now < self.processes[at].cut_until || self.dice.chance(self.lost_percent)) {
            return self.report.fired.count(lost);
        }
        if faulty && lost == Fault::ReportLost && self.dice.chance(3) {
            self.report.fired.count(Fault::ReportDoubled);
            let later = self.now + 1 + self.dice.below(2 * self.life());
            self.queue.push(later, event.clone());
        }
        let slow = faulty && self.dice.chance(3);
        if slow {
            self.report.fired.count(Fault::Late);
        }
        let late = self.dice.pick(&[self.life() / 6, 2 * self.life()]);
        let takes = 1 + self.dice.below(if slow { late } else { self.delay });
        self.queue.push(self.now + takes, event);
    }

    fn hear(&mut self, at: usize, process: u64, mut report: division::NodeReport, sent: u64) {
        if self.now < self.away_until {
            return self.report.fired.count(Fault::ReportLost);
        }
        let now = self.clock.read(self.now);
        if self.bug == Some(SlotBug::ReportCountedOnArrival) {
            let known = self.membership.members().find(|(id, _)| *id == report.node);
            report.heartbeat = known.map_or(1, |(_, known)| known.heartbeat + 1);
        }
        let stale = self.bug == Some(SlotBug::RollOverwritten) && self.dice.chance(20);
        let mut membership = if stale { self.before.clone() } else { self.membership.clone() };
        let answer = self.rebalancer.handle_report(&mut membership, &report, now);
        self.before = core::mem::replace(&mut self.membership, membership);
        self.settle_bound(now);
        if let ReportResponse::Grant(grant) = answer {
            self.send(at, Event::Take { at, process, grant, sent }, Fault::GrantLost);
        }
    }

    fn settle_bound(&mut self, now: Timestamp) {
        let sound = Rebalancer { most: self.most, ..self.rebalancer };
        let ceiling = u64::from(sound.ceiling(&self.membership));
        if self.membership.quiet_until().is_some_and(|until| now < until) {
            return self.bound.widen(ceiling);
        }
        self.bound.set(ceiling, self.membership.reserved());
    }

    fn take(&mut self, at: usize, grant: Grant, sent: u64) {
        let (now, bug) = (self.now, self.bug);
        let one = &mut self.processes[at];
        let (asked, shown) = (one.clock.read(sent), one.clock.read(now));
        let anchored = bug == Some(SlotBug::GrantAnchoredAtReply);
        let grant = if anchored { Grant { lives: grant.lives + shown.since(asked), ..grant } } else { grant };
        let counts = one.node.handle_grant(grant, asked, shown);
        if counts || bug == Some(SlotBug::ObeysAnyGrant) {
            one.obeys = Some(grant.share);
        }
        if counts {
            if one.in_flight > grant.share {
                self.report.fired.count(Fault::WorkOutlasts);
            }
            let (process, dies) = (one.process, one.clock.when(one.node.dies()));
            self.queue.push(dies.max(now), Event::Dies { at, process });
        }
        self.poll(at);
    }

    /// Stops the work, or lets it run on for the allowed time.
    fn died(&mut self, at: usize) {
        let now = self.now;
        let one = &mut self.processes[at];
        if one.clock.read(now) < one.node.dies() || self.bug == Some(SlotBug::NodeUnfenced) {
            return;
        }
        if one.in_flight > 0 {
            self.report.fired.count(Fault::Fenced);
            if one.clock.drifts() {
                self.report.fired.count(Fault::Drift);
            }
        }
        if self.bug == Some(SlotBug::ObeysAnyGrant) {
            one.obeys = Some(0);
        }
        let (process, died) = (one.process, one.node.dies());
        if self.linger == 0 {
            return one.in_flight = 0;
        }
        self.queue.push(now + self.linger - 1, Event::Ended { at, process, died });
    }

    fn ended(&mut self, at: usize, died: Timestamp) {
        if self.processes[at].node.dies() == died {
            self.processes[at].in_flight = 0;
        }
    }

    fn inject_fault(&mut self) {
        if self.now >= self.ends {
            return self.mend();
        }
        let life = self.life();
        let next = self.now + self.dice.long_tailed(life);
        self.queue.push(next.min(self.ends), Event::Fault);
        let at = self.dice.below(self.processes.len() as u64) as usize;
        let (busy, until) = (self.processes[at].in_flight > 0, self.now + self.dice.below(3 * life));
        match self.dice.below(10) {
            0 | 1 => {
                self.processes[at].cut_until = until;
                self.report.fired.count(Fault::CutOff);
            }
            2 | 3 => {
                // About half the time for less than a grant lives; otherwise no heartbeat arrives any more.
                let until = if self.dice.chance(50) { self.now + life / 3 } else { until };
                self.processes[at].paused_until = until;
                if self.dice.chance(40) {
                    self.processes[at].cut_until = until + 2 * life;
                }
                if busy {
                    self.report.fired.count(Fault::NodePaused);
                }
            }
            4 => {
                if busy {
                    self.report.fired.count(Fault::NodeKilled);
                }
                self.processes[at] = self.fresh();
            }
            5 => self.leave(at, busy),
            6 => {
                let most = u64::from(self.most);
                self.processes[at].limit = self.dice.within(0, most) as u32;
                self.processes[at].wants = self.dice.pick(&[0, 1, 10, 500]);
                self.report.fired.count(Fault::LimitMoved);
            }
            7 => self.lose_membership(),
            8 => {
                self.away_until = self.now + life + self.dice.below(2 * life);
                self.report.fired.count(Fault::StoreOutage);
            }
            _ => {
                self.processes.iter_mut().for_each(|one| one.paused_until = one.paused_until.max(until));
                self.report.fired.count(Fault::HeartbeatStorm);
            }
        }
    }

    /// Stops all faults and departures.
    fn mend(&mut self) {
        self.away_until = 0;
        for at in 0..self.processes.len() {
            if self.processes[at].leaving {
                self.processes[at] = self.fresh();
            }
            self.processes[at].paused_until = 0;
        }
    }

    /// Makes a process leave, and replaces it when its work has ended.
    fn leave(&mut self, at: usize, busy: bool) {
        if self.processes[at].node.gone() {
            self.processes[at] = self.fresh();
            return;
        }
        if busy {
            self.report.fired.count(Fault::NodeLeft);
        }
        let one = &mut self.processes[at];
        one.node.leave();
        one.leaving = true;
    }

    fn lose_membership(&mut self) {
        let held = self.processes.iter().enumerate().any(|(at, _)| self.share(at, self.now) > 0);
        if held {
            self.report.fired.count(Fault::RollLost);
        }
        self.membership = Membership::default();
        if self.bug == Some(SlotBug::RollWithoutQuiet) {
            // A membership record whose quiet period is long over.
            let gone = division::NodeReport {
                node: NodeId(u128::MAX),
                heartbeat: 1,
                applied: 0,
                holds: 0,
                in_flight: 0,
                limit: 0,
                wants: 0,
                leaving: true,
            };
            self.rebalancer.handle_report(&mut self.membership, &gone, Timestamp::EPOCH);
        }
        self.before = self.membership.clone();
    }
}

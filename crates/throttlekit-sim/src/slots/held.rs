//! Holders of leased slots.

use core::time::Duration;
use std::collections::BTreeMap;

use throttlekit_core::concurrency::{HeartbeatOutcome, Hold, LeaseId, Owner, SlotStep, SlotTable};
use throttlekit_core::lease::Margin;

use super::bound::Bound;
use super::clock::{Clock, MILLI};
use super::queue::Queue;
use super::{Fault, Report, SlotBug};
use crate::dice::Dice;

const EVENTS_MAX: u64 = 400_000;

#[derive(Clone, Debug)]
enum Event {
    /// A holder requests a slot.
    Ask(usize),
    /// A holder checks which of its slots need a heartbeat.
    Look(usize),
    /// To the table.
    Up(Message),
    /// To a holder.
    Down(Reply),
    Done(usize, u128),
    Fault,
    Resume(usize),
}

#[derive(Clone, Debug)]
enum Message {
    Acquire { holder: usize, process: u64, lease: u128, sent: u64 },
    Heartbeat { holder: usize, process: u64, leases: Vec<u128>, sent: u64 },
    Release { lease: u128, owner: u128 },
}

#[derive(Clone, Debug)]
enum Reply {
    Slot {
        holder: usize,
        process: u64,
        lease: u128,
        sent: u64,
        lives: Option<Duration>,
    },
    HeartbeatIntervals {
        holder: usize,
        process: u64,
        leases: Vec<u128>,
        sent: u64,
        heartbeats: Vec<Option<Duration>>,
    },
}

struct Holder {
    clock: Clock,
    /// The number of times it was started.
    process: u64,
    paused_until: u64,
    cut_until: u64,
    slots: BTreeMap<u128, Held>,
}

struct Held {
    hold: Hold,
    /// True while its work runs.
    runs: bool,
}

struct Simulation {
    dice: Dice,
    bug: Option<SlotBug>,
    queue: Queue<Event>,
    report: Report,
    now: u64,
    ends: u64,
    table: SlotTable,
    clock: Clock,
    away_until: u64,
    most: u32,
    lives: Duration,
    margin: Margin,
    holders: Vec<Holder>,
    bound: Bound,
    /// Leases that the table has reported as over.
    over: BTreeMap<u128, u64>,
    delay: u64,
    lost_percent: u64,
    leases: u128,
}

pub(super) fn run(mut dice: Dice, bug: Option<SlotBug>, tell: &mut dyn FnMut(String)) -> Report {
    let ppm = dice.pick(&[0, 500, 20_000, 50_000]);
    let lives = Duration::from_millis(dice.pick(&[300, 600, 1_000, 2_000]));
    let trusted = bug == Some(SlotBug::SlotDriftIgnored);
    let slack = Duration::from_nanos(1_000);
    let (holder_ppm, authority_ppm) = if trusted { (0, 0) } else { (ppm, ppm) };
    let holders = dice.within(2, 8) as usize;
    let mut simulation = Simulation {
        margin: Margin { holder_ppm, authority_ppm, slack },
        most: dice.within(1, 6) as u32,
        clock: Clock::draw(&mut dice, ppm),
        holders: (0..holders).map(|_| Holder::new(&mut dice, ppm)).collect(),
        delay: dice.pick(&[MILLI, 5 * MILLI, 20 * MILLI]),
        lost_percent: dice.pick(&[0, 3, 10]),
        ends: 40 * lives.as_nanos() as u64,
        dice,
        bug,
        queue: Queue::new(),
        report: Report::default(),
        now: 0,
        table: SlotTable::default(),
        away_until: 0,
        lives,
        bound: Bound::default(),
        over: BTreeMap::new(),
        leases: 0,
    };
    simulation.bound.set(simulation.most.into(), 0);
    simulation.begin();
    simulation.go(tell);
    simulation.report
}

impl Holder {
    fn new(dice: &mut Dice, ppm: u32) -> Self {
        let clock = Clock::draw(dice, ppm);
        Self { clock, process: 0, paused_until: 0, cut_until: 0, slots: BTreeMap::new() }
    }
}

impl Simulation {
    fn begin(&mut self) {
        for holder in 0..self.holders.len() {
            let at = self.dice.below(self.life());
            self.queue.push(at, Event::Ask(holder));
        }
        self.queue.push(self.life(), Event::Fault);
    }

    fn life(&self) -> u64 {
        self.lives.as_nanos() as u64
    }

    fn go(&mut self, tell: &mut dyn FnMut(String)) {
        let mut events = 0;
        while let Some((at, event)) = self.queue.pop() {
            self.now = at.max(self.now);
            events += 1;
            if events > EVENTS_MAX || self.now > self.ends + 30 * self.life() {
                self.report.break_invariant("no-leak", || "the holders never come to rest".into());
            }
            let word = match &event {
                Event::Ask(holder) | Event::Look(holder) | Event::Resume(holder) => *holder as u64,
                Event::Done(_, lease) => *lease as u64,
                Event::Up(_) => 1 << 32,
                Event::Down(_) => 1 << 33,
                Event::Fault => 1 << 34,
            };
            self.report.note(self.now, word);
            tell(format!("{} {event:?}", self.now));
            self.handle(event);
            self.judge();
            if self.report.broken.is_some() {
                return;
            }
        }
        let held = self.table.occupancy(self.clock.read(self.now + 3 * self.life()));
        if held > 0 {
            self.report.break_invariant("no-leak", || format!("{held} slots are held by nobody"));
        }
    }

    fn handle(&mut self, event: Event) {
        let holder = match &event {
            Event::Ask(holder)
            | Event::Look(holder)
            | Event::Done(holder, _)
            | Event::Down(Reply::Slot { holder, .. } | Reply::HeartbeatIntervals { holder, .. }) => {
                Some(*holder)
            }
            _ => None,
        };
        if let Some(paused) = holder.map(|holder| self.holders[holder].paused_until)
            && self.now < paused
        {
            return self.queue.push(paused, event);
        }
        match event {
            Event::Ask(holder) => self.ask(holder),
            Event::Look(holder) => self.look(holder),
            Event::Up(message) => self.up(message),
            Event::Down(reply) => self.down(reply),
            Event::Done(holder, lease) => self.done(holder, lease),
            Event::Fault => self.inject_fault(),
            Event::Resume(holder) => self.stop_fenced(holder),
        }
    }

    /// Counts all running work, under a known lease or not.
    fn running(&self) -> u64 {
        let (now, unfenced) = (self.now, self.bug == Some(SlotBug::HolderUnfenced));
        let of = |holder: &Holder| {
            let at = holder.clock.read(now);
            // A paused holder does nothing: its work counts from when it continues.
            holder.slots.values().filter(|held| held.runs && (unfenced || at < held.hold.deadline())).count()
        };
        self.holders.iter().map(of).sum::<usize>() as u64
    }

    fn judge(&mut self) {
        let (running, most) = (self.running(), self.bound.most());
        if running > most {
            self.report.break_invariant("slot-fence", || format!("{running} run where {most} may"));
        }
        let held = u64::from(self.table.occupancy(self.clock.read(self.now)));
        if held > most {
            self.report.break_invariant("slot-count", || format!("{held} are held where {most} may be"));
        }
    }

    fn send(&mut self, holder: usize, message: Message, lost: Fault) {
        if self.now < self.holders[holder].cut_until || self.dice.chance(self.lost_percent) {
            return self.report.fired.count(lost);
        }
        let slow = self.dice.chance(3);
        let most = if slow { 2 * self.life() } else { 2 * self.delay };
        if slow {
            self.report.fired.count(Fault::Late);
        }
        let at = self.now + 1 + self.dice.below(most);
        self.queue.push(at, Event::Up(message));
    }

    fn ask(&mut self, holder: usize) {
        if self.now >= self.ends {
            return;
        }
        self.leases += 1;
        let (lease, process) = (self.leases, self.holders[holder].process);
        self.send(holder, Message::Acquire { holder, process, lease, sent: self.now }, Fault::AdmitLost);
        let wait = self.dice.long_tailed(self.life() / 3).min(4 * self.life()) + MILLI;
        self.queue.push(self.now + wait, Event::Ask(holder));
    }

    fn owner(&self, holder: usize, process: u64) -> Owner {
        Owner(1 + holder as u128 + (u128::from(process) << 32))
    }

    fn up(&mut self, message: Message) {
        if self.now < self.away_until {
            let lost = match message {
                Message::Acquire { .. } => Fault::AdmitLost,
                Message::Heartbeat { .. } => Fault::BeatLost,
                Message::Release { .. } => Fault::ReleaseLost,
            };
            return self.report.fired.count(lost);
        }
        let now = self.clock.read(self.now);
        for (lease, _) in self.table.expire(now) {
            self.over.insert(lease.0, self.now);
        }
        match message {
            Message::Acquire { holder, process, lease, sent } => {
                let owner = self.owner(holder, process);
                let step = self.table.acquire(LeaseId(lease), owner, self.most, self.lives, now);
                self.report.decisions += 1;
                let lives = match step {
                    SlotStep::Admit { slot, .. } => Some(slot.lives),
                    SlotStep::Deny(_) => None,
                };
                self.report.admitted += u64::from(lives.is_some());
                self.settle_bound();
                self.reply(holder, Reply::Slot { holder, process, lease, sent, lives }, Fault::AdmitLost);
            }
            Message::Heartbeat { holder, process, leases, sent } => {
                let heartbeats = self.heartbeat(self.owner(holder, process), &leases);
                self.reply(
                    holder,
                    Reply::HeartbeatIntervals { holder, process, leases, sent, heartbeats },
                    Fault::BeatLost,
                );
            }
            Message::Release { lease, owner } => self.release(lease, owner),
        }
    }

    fn settle_bound(&mut self) {
        let now = self.clock.read(self.now);
        if now < self.table.quiet_until() {
            return self.bound.widen(self.most.into());
        }
        self.bound.set(self.most.into(), self.table.occupancy(now).into());
    }

    fn heartbeat(&mut self, owner: Owner, leases: &[u128]) -> Vec<Option<Duration>> {
        let now = self.clock.read(self.now);
        let ids: Vec<_> = leases.iter().map(|&lease| LeaseId(lease)).collect();
        let heartbeats = self.table.heartbeat(&ids, owner, self.lives, now);
        let mut answers = Vec::new();
        for (lease, heartbeat) in ids.into_iter().zip(heartbeats) {
            let mut lives = match heartbeat {
                HeartbeatOutcome::Held(slot) => Some(slot.lives),
                HeartbeatOutcome::Lost => None,
            };
            if lives.is_none() && self.bug == Some(SlotBug::HeartbeatRevives) {
                self.table.acquire(lease, owner, u32::MAX, self.lives, now);
                lives = Some(self.lives);
            }
            if let (Some(_), Some(&over)) = (lives, self.over.get(&lease.0)) {
                self.report
                    .break_invariant("no-revival", || format!("{lease:?} was over at {over} and is held"));
            }
            answers.push(lives);
        }
        answers
    }

    fn release(&mut self, lease: u128, owner: u128) {
        let now = self.clock.read(self.now);
        let before = self.table.occupancy(now);
        let asked = Owner(owner);
        let holder = (0..self.holders.len())
            .map(|holder| self.owner(holder, self.holders[holder].process))
            .find(|&one| self.table.clone().release(LeaseId(lease), one, now));
        let by = match (self.bug, holder) {
            (Some(SlotBug::ReleaseByIdAlone), Some(holder)) => holder,
            _ => asked,
        };
        self.table.release(LeaseId(lease), by, now);
        let is_foreign = holder.is_some_and(|holder| holder != asked);
        if is_foreign && self.table.occupancy(now) < before {
            self.report.break_invariant("own-release", || format!("lease {lease} was freed by another"));
        }
        self.settle_bound();
    }

    fn reply(&mut self, holder: usize, reply: Reply, lost: Fault) {
        if self.now < self.holders[holder].cut_until || self.dice.chance(self.lost_percent) {
            return self.report.fired.count(lost);
        }
        let most = if self.dice.chance(5) { self.life() } else { self.delay };
        let at = self.now + 1 + self.dice.below(most);
        self.queue.push(at, Event::Down(reply));
    }

    fn down(&mut self, reply: Reply) {
        let (now, bug, margin) = (self.now, self.bug, self.margin);
        match reply {
            Reply::Slot { holder, process, lease, sent, lives } => {
                let one = &mut self.holders[holder];
                let (Some(lives), true) = (lives, one.process == process) else { return };
                let at = one.clock.read(now);
                let sent = if bug == Some(SlotBug::SlotAnchoredAtReply) { now } else { sent };
                let hold = Hold::begin(margin, one.clock.read(sent), lives, self.dice.roll() as u32, at);
                one.slots.insert(lease, Held { hold, runs: true });
                let work = self.dice.long_tailed(self.life() / 2).min(8 * self.life());
                self.queue.push(now + work, Event::Done(holder, lease));
                self.look_later(holder);
            }
            Reply::HeartbeatIntervals { holder, process, leases, sent, heartbeats } => {
                let one = &mut self.holders[holder];
                if one.process != process {
                    return;
                }
                let (asked, at) = (one.clock.read(sent), one.clock.read(now));
                for (lease, lives) in leases.into_iter().zip(heartbeats) {
                    let Some(held) = one.slots.get_mut(&lease) else { continue };
                    match (bug, lives) {
                        (Some(SlotBug::LostIgnored), None) => {
                            held.hold.handle_heartbeat(at, Some(self.lives), at);
                        }
                        (Some(SlotBug::SlotAnchoredAtReply), _) => held.hold.handle_heartbeat(at, lives, at),
                        _ => held.hold.handle_heartbeat(asked, lives, at),
                    }
                }
                self.stop_fenced(holder);
                self.look_later(holder);
            }
        }
    }

    fn look_later(&mut self, holder: usize) {
        let one = &self.holders[holder];
        let next = one.slots.values().filter_map(|held| held.hold.next_heartbeat()).min();
        if let Some(next) = next {
            let at = one.clock.when(next).max(self.now + 1);
            self.queue.push(at, Event::Look(holder));
        }
    }

    fn look(&mut self, holder: usize) {
        let scatter = self.dice.roll() as u32;
        let one = &mut self.holders[holder];
        let at = one.clock.read(self.now);
        let due = |held: &mut Held| held.hold.poll_heartbeat(scatter, at);
        let leases: Vec<u128> =
            one.slots.iter_mut().filter_map(|(&lease, held)| due(held).then_some(lease)).collect();
        if !leases.is_empty() {
            let message = Message::Heartbeat { holder, process: one.process, leases, sent: self.now };
            self.send(holder, message, Fault::BeatLost);
            self.look_later(holder);
        }
        self.stop_fenced(holder);
    }

    /// Stops and forgets work under a fenced slot; the lease expires.
    fn stop_fenced(&mut self, holder: usize) {
        if self.bug == Some(SlotBug::HolderUnfenced) {
            return;
        }
        let now = self.now;
        let one = &mut self.holders[holder];
        let at = one.clock.read(now);
        let before = one.slots.len();
        one.slots.retain(|_, held| !held.hold.is_fenced(at));
        let fenced = before - one.slots.len();
        (0..fenced).for_each(|_| self.report.fired.count(Fault::Fenced));
        if fenced > 0 && one.clock.drifts() {
            self.report.fired.count(Fault::Drift);
        }
    }

    fn done(&mut self, holder: usize, lease: u128) {
        let owner = self.owner(holder, self.holders[holder].process).0;
        let Some(held) = self.holders[holder].slots.get_mut(&lease) else { return };
        match self.bug {
            Some(SlotBug::NeverReleased) => {
                held.runs = false;
                return;
            }
            Some(SlotBug::ReleasedWhileRunning) if held.runs => {
                let again = self.now + self.life() / 2;
                self.queue.push(again, Event::Done(holder, lease));
            }
            _ => drop(self.holders[holder].slots.remove(&lease)),
        }
        self.send(holder, Message::Release { lease, owner }, Fault::ReleaseLost);
        if self.dice.chance(10) {
            self.report.fired.count(Fault::DoubleRelease);
            self.send(holder, Message::Release { lease, owner }, Fault::ReleaseLost);
        }
    }

    fn inject_fault(&mut self) {
        if self.now >= self.ends {
            return;
        }
        let at = self.now + self.dice.long_tailed(self.life());
        self.queue.push(at.min(self.ends), Event::Fault);
        let (holder, life) = (self.dice.below(self.holders.len() as u64) as usize, self.life());
        match self.dice.below(9) {
            0 | 1 => self.pause(holder),
            2 => {
                let until = self.now + self.dice.below(3 * life);
                self.holders[holder].cut_until = until;
                self.report.fired.count(Fault::CutOff);
            }
            3 => {
                if !self.holders[holder].slots.is_empty() {
                    self.report.fired.count(Fault::HolderKilled);
                }
                let one = &mut self.holders[holder];
                one.slots.clear();
                one.process += 1;
            }
            4 => self.restart(),
            5 => {
                self.away_until = self.now + life + self.dice.below(2 * life);
                self.report.fired.count(Fault::StoreOutage);
            }
            6 => {
                (0..self.holders.len()).for_each(|holder| self.pause(holder));
                self.report.fired.count(Fault::HeartbeatStorm);
            }
            7 => {
                self.most = self.dice.within(1, 6) as u32;
                self.report.fired.count(Fault::SlotsMoved);
            }
            _ => self.release_of_another(holder),
        }
    }

    fn pause(&mut self, holder: usize) {
        let one = &mut self.holders[holder];
        let until = self.now + self.dice.below(3 * self.lives.as_nanos() as u64);
        one.paused_until = one.paused_until.max(until);
        let at = one.clock.read(until);
        let zombies = one.slots.values().filter(|held| held.hold.deadline() <= at).count();
        (0..zombies).for_each(|_| self.report.fired.count(Fault::ZombieHolder));
        self.queue.push(one.paused_until, Event::Resume(holder));
    }

    fn restart(&mut self) {
        let now = self.clock.read(self.now);
        if self.table.occupancy(now) > 0 {
            self.report.fired.count(Fault::RestartWithOpenSlots);
        }
        self.table = match self.bug {
            Some(SlotBug::TableWithoutQuiet) => SlotTable::default(),
            // The latest holder requested its slot by now, and the lease lives by this clock.
            _ => SlotTable::recovering(now + self.lives),
        };
        self.over.clear();
    }

    fn release_of_another(&mut self, holder: usize) {
        let victims: Vec<u128> = self.holders[holder].slots.keys().copied().collect();
        let other = (holder + 1) % self.holders.len();
        let owner = self.owner(other, self.holders[other].process).0;
        if let Some(&lease) = victims.first() {
            self.report.fired.count(Fault::ForeignRelease);
            self.queue.push(self.now + 1, Event::Up(Message::Release { lease, owner }));
        }
    }
}

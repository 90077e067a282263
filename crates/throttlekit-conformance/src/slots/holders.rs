//! Holders and a table of slots over an unreliable network: at most as many work concurrently as there are slots.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use throttlekit::rate::Timestamp;
use throttlekit_core::concurrency::{HeartbeatOutcome, Hold, LeaseId, Owner, SlotStep, SlotTable};
use throttlekit_core::lease::Margin;

use crate::Dice;
use crate::invariants::Violation;

const LIVES: Duration = Duration::from_secs(60);
const EVENTS_MAX: u32 = 600;
/// Clock drift up to the default margin, in both directions.
const DRIFT_PPM: u64 = 500;

crate::bugs! {
    /// A bug in a scenario.
    pub enum HolderBug {
        AnchoredAtReply: "The deadline counts from the reply.",
        BeatAnchoredAtReply: "The deadline of a heartbeat counts from its reply.",
        RetryTakenForFresh: "The response to a retry is taken for a fresh one.",
        NoMargin: "Clocks are taken to agree.",
        NoFence: "Work goes on past the deadline.",
        LateAnswerRevives: "A late response revives the lease.",
        ClockStopsInAPause: "The clock stops in a pause.",
        WorksAfterRelease: "Work goes on after the release.",
        NoQuietStart: "A lost table grants immediately.",
        QuietTooShort: "A lost table is quiet for half a life.",
    }
}

/// Counts of events in a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Slots that were acquired and used.
    pub worked: u64,
    /// Holders that stopped at their deadline.
    pub fenced: u64,
    /// Holders that were notified of a lost lease.
    pub lost: u64,
    /// Tables that were lost.
    pub restarts: u64,
    /// Scenarios in which all slots were in use concurrently.
    pub full: u64,
}

/// Returns the number of scenarios until the check finds this bug, if `scenarios_max` are enough.
pub fn find_holder_bug(bug: HolderBug, scenarios_max: u64) -> Option<u64> {
    (0..scenarios_max).find(|seed| check_holders(*seed, Some(bug)).is_err()).map(|seed| seed + 1)
}

/// Runs the scenario of a seed, perhaps with a bug: there are never more working holders than slots.
pub fn check_holders(seed: u64, bug: Option<HolderBug>) -> Result<Seen, Violation> {
    let mut scenario = Holders::roll(seed, bug);
    for _ in 0..EVENTS_MAX {
        let Some(Reverse((at, _, event))) = scenario.events.pop() else { break };
        scenario.time = at;
        scenario.handle(event);
        let working: Vec<_> = scenario.nodes.iter().filter(|node| scenario.works(node)).collect();
        scenario.seen.full = scenario.seen.full.max(u64::from(working.len() as u32 == scenario.most));
        if working.len() as u32 > scenario.most {
            let counterexample = format!("{} slots, at {at}: {working:#?}", scenario.most);
            return Err(Violation { seed, counterexample });
        }
    }
    Ok(scenario.seen)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A node requests a slot.
    Ask {
        node: usize,
        again: bool,
    },
    Acquire {
        node: usize,
        lease: u128,
        sent: u64,
    },
    Acquired {
        node: usize,
        lease: u128,
        sent: u64,
        lives: Option<u64>,
        room_in: u64,
    },
    /// A node checks whether to send a heartbeat, or whether it is fenced.
    Look {
        node: usize,
        lease: u128,
    },
    Heartbeat {
        node: usize,
        lease: u128,
        sent: u64,
    },
    HeartbeatReply {
        node: usize,
        lease: u128,
        sent: u64,
        lives: Option<u64>,
    },
    Done {
        node: usize,
        lease: u128,
    },
    Release {
        node: usize,
        lease: u128,
    },
    Restart,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    ppm: u64,
    /// Time that its clock has missed, if it stops in pauses.
    missed: u64,
    paused_until: u64,
    /// The lease that it last requested.
    asked: u128,
    work: Option<(u128, Hold)>,
    /// Time until which it works although it has released.
    lingers_until: u64,
}

struct Holders {
    dice: Dice,
    bug: Option<HolderBug>,
    most: u32,
    lossy: bool,
    restarts: bool,
    table: SlotTable,
    table_ppm: u64,
    nodes: Vec<Node>,
    time: u64,
    sequence: u64,
    leases: u128,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    seen: Seen,
}

/// Returns the time of a clock that runs fast by `ppm` − [`DRIFT_PPM`] parts per million.
fn shown(ppm: u64, time: u64) -> Timestamp {
    let rate = u128::from(1_000_000 - DRIFT_PPM + ppm);
    Timestamp::from_nanos((1_000_000_000 + u128::from(time) * rate / 1_000_000) as u64)
}

impl Holders {
    fn roll(seed: u64, bug: Option<HolderBug>) -> Self {
        let mut dice = Dice::new(seed);
        let most = dice.between(1, 3) as u32;
        let nodes = u64::from(most) + dice.between(1, 3);
        let ppm = |dice: &mut Dice| dice.pick(&[0, DRIFT_PPM, 2 * DRIFT_PPM]);
        let node = |dice: &mut Dice| Node {
            ppm: ppm(dice),
            missed: 0,
            paused_until: 0,
            asked: 0,
            work: None,
            lingers_until: 0,
        };
        let nodes: Vec<_> = (0..nodes).map(|_| node(&mut dice)).collect();
        let mut scenario = Self {
            bug,
            most,
            lossy: dice.once_in(2),
            restarts: dice.once_in(3),
            table: SlotTable::default(),
            table_ppm: ppm(&mut dice),
            time: 0,
            sequence: 0,
            leases: 0,
            events: BinaryHeap::new(),
            seen: Seen::default(),
            dice,
            nodes,
        };
        for node in 0..scenario.nodes.len() {
            scenario.after(node as u64 * 1_000_000, Event::Ask { node, again: false });
        }
        if scenario.restarts {
            let wait = scenario.dice.below(3 * LIVES.as_nanos() as u64);
            scenario.after(wait, Event::Restart);
        }
        scenario
    }

    fn has(&self, bug: HolderBug) -> bool {
        self.bug == Some(bug)
    }

    fn after(&mut self, wait: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((self.time + wait, self.sequence, event)));
    }

    /// Sends a message, unless it is lost; mostly fast, sometimes for longer than a lease lasts.
    fn send(&mut self, event: Event) {
        if self.lossy && self.dice.once_in(4) {
            return;
        }
        let longest = if self.dice.once_in(6) { 90_000_000_000 } else { 40_000_000 };
        let delay = self.dice.below(longest);
        self.after(delay, event);
    }

    fn clock(&self, node: usize) -> Timestamp {
        let Node { ppm, missed, .. } = self.nodes[node];
        shown(ppm, self.time - missed)
    }

    fn table_clock(&self) -> Timestamp {
        shown(self.table_ppm, self.time)
    }

    fn works(&self, node: &Node) -> bool {
        let now = shown(node.ppm, self.time - node.missed);
        let in_time = |mut hold: Hold| self.has(HolderBug::NoFence) || !hold.is_fenced(now);
        node.work.is_some_and(|(_, hold)| in_time(hold)) || self.time < node.lingers_until
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ask { node, .. }
            | Event::Acquired { node, .. }
            | Event::Look { node, .. }
            | Event::HeartbeatReply { node, .. }
            | Event::Done { node, .. }
                if self.time < self.nodes[node].paused_until =>
            {
                let rest = self.nodes[node].paused_until - self.time;
                self.after(rest, event);
            }
            Event::Ask { node, again } => self.ask(node, again),
            Event::Acquire { node, lease, sent } => self.acquire(node, lease, sent),
            Event::Acquired { node, lease, sent, lives, room_in } => {
                self.acquired(node, lease, Timestamp::from_nanos(sent), lives, room_in);
            }
            Event::Look { node, lease } => self.look(node, lease),
            Event::Heartbeat { node, lease, sent } => {
                let (now, owner) = (self.table_clock(), Owner(node as u128));
                let heartbeat = self.table.heartbeat(&[LeaseId(lease)], owner, LIVES, now)[0];
                let lives = match heartbeat {
                    HeartbeatOutcome::Held(slot) => Some(slot.lives.as_nanos() as u64),
                    HeartbeatOutcome::Lost => None,
                };
                self.send(Event::HeartbeatReply { node, lease, sent, lives });
            }
            Event::HeartbeatReply { node, lease, sent, lives } => self.renewed(node, lease, sent, lives),
            Event::Done { node, lease } => self.done(node, lease),
            Event::Release { node, lease } => {
                let now = self.table_clock();
                self.table.release(LeaseId(lease), Owner(node as u128), now);
            }
            Event::Restart => self.restart(),
        }
    }

    fn ask(&mut self, node: usize, again: bool) {
        if self.nodes[node].work.is_some() || (again && self.nodes[node].asked == 0) {
            return;
        }
        if !again {
            self.leases += 1;
            self.nodes[node].asked = self.leases;
        }
        let (lease, sent) = (self.nodes[node].asked, self.clock(node).as_nanos());
        self.send(Event::Acquire { node, lease, sent });
        // Without a response it requests again, under the same lease.
        let patience = 500_000_000 + self.dice.below(20_000_000_000);
        self.after(patience, Event::Ask { node, again: true });
    }

    fn acquire(&mut self, node: usize, lease: u128, sent: u64) {
        let now = self.table_clock();
        let step = self.table.acquire(LeaseId(lease), Owner(node as u128), self.most, LIVES, now);
        let (lives, room_in) = match step {
            SlotStep::Admit { slot, .. } => (Some(slot.lives.as_nanos() as u64), 0),
            SlotStep::Deny(full) => (None, full.room_in.unwrap_or(LIVES).as_nanos() as u64),
        };
        self.send(Event::Acquired { node, lease, sent, lives, room_in });
    }

    fn acquired(&mut self, node: usize, lease: u128, sent: Timestamp, lives: Option<u64>, room_in: u64) {
        let (now, scatter) = (self.clock(node), self.dice.roll() as u32);
        let expected = self.nodes[node].asked == lease && self.nodes[node].work.is_none();
        match lives {
            Some(lives) if expected => {
                let anchor = if self.has(HolderBug::AnchoredAtReply) { now } else { sent };
                let lives =
                    if self.has(HolderBug::RetryTakenForFresh) { LIVES } else { Duration::from_nanos(lives) };
                let mut hold = Hold::begin(self.margin(), anchor, lives, scatter, now);
                self.nodes[node].asked = 0;
                if hold.is_fenced(now) {
                    self.give_up(node, lease);
                    return;
                }
                self.nodes[node].work = Some((lease, hold));
                self.seen.worked += 1;
                let work = self.dice.below(4 * LIVES.as_nanos() as u64);
                self.after(work, Event::Done { node, lease });
                self.after(0, Event::Look { node, lease });
            }
            // Late, and of no effect; or in addition to the lease it holds.
            Some(_) if self.nodes[node].work.is_none_or(|(held, _)| held != lease) => {
                self.send(Event::Release { node, lease });
            }
            None if expected => {
                // Requests again about when there may be capacity.
                self.nodes[node].asked = 0;
                let wait = room_in.saturating_sub(40_000_000) + self.dice.below(120_000_000);
                self.after(wait, Event::Ask { node, again: false });
            }
            _ => {}
        }
    }

    fn look(&mut self, node: usize, lease: u128) {
        let (now, scatter) = (self.clock(node), self.dice.roll() as u32);
        let Some((held, mut hold)) = self.nodes[node].work.filter(|(held, _)| *held == lease) else { return };
        let late = self.has(HolderBug::NoFence) || self.has(HolderBug::LateAnswerRevives);
        if hold.is_fenced(now) && !late {
            self.seen.fenced += 1;
            self.nodes[node].work = None;
            self.give_up(node, held);
            return;
        }
        if hold.poll_heartbeat(scatter, now) || (late && hold.is_fenced(now)) {
            self.send(Event::Heartbeat { node, lease, sent: now.as_nanos() });
        }
        self.nodes[node].work = Some((held, hold));
        if self.dice.once_in(12) {
            self.pause(node);
        }
        let next = hold.next_heartbeat().map_or(LIVES / 3, |at| at.min(hold.deadline()).since(now));
        self.after(next.as_nanos() as u64 * 1_001 / 1_000 + 1_000, Event::Look { node, lease });
    }

    fn renewed(&mut self, node: usize, lease: u128, sent: u64, lives: Option<u64>) {
        let (now, scatter) = (self.clock(node), self.dice.roll() as u32);
        let Some((held, mut hold)) = self.nodes[node].work.filter(|(held, _)| *held == lease) else { return };
        let anchors = [HolderBug::AnchoredAtReply, HolderBug::BeatAnchoredAtReply];
        let sent = if anchors.iter().any(|bug| self.has(*bug)) { now } else { Timestamp::from_nanos(sent) };
        let lives = lives.map(Duration::from_nanos);
        if self.has(HolderBug::LateAnswerRevives)
            && hold.is_fenced(now)
            && let Some(lives) = lives
        {
            hold = Hold::begin(self.margin(), now, lives, scatter, now);
        }
        self.seen.lost += u64::from(lives.is_none());
        hold.handle_heartbeat(sent, lives, now);
        self.nodes[node].work = Some((held, hold));
        self.after(0, Event::Look { node, lease });
    }

    fn done(&mut self, node: usize, lease: u128) {
        if self.nodes[node].work.is_some_and(|(held, _)| held == lease) {
            self.nodes[node].work = None;
            if self.has(HolderBug::WorksAfterRelease) {
                self.nodes[node].lingers_until = self.time + 5_000_000_000;
            }
            self.give_up(node, lease);
        }
    }

    /// Releases, sometimes twice, and requests another slot.
    fn give_up(&mut self, node: usize, lease: u128) {
        self.send(Event::Release { node, lease });
        if self.dice.once_in(4) {
            self.send(Event::Release { node, lease });
        }
        let wait = self.dice.below(2_000_000_000);
        self.after(wait, Event::Ask { node, again: false });
    }

    /// Stops a node for up to two lease durations.
    fn pause(&mut self, node: usize) {
        let length = self.dice.below(2 * LIVES.as_nanos() as u64);
        self.nodes[node].paused_until = self.time + length;
        if self.has(HolderBug::ClockStopsInAPause) {
            self.nodes[node].missed = (self.nodes[node].missed + length / 2).min(self.time);
        }
    }

    fn restart(&mut self) {
        let now = self.table_clock();
        self.seen.restarts += 1;
        self.table = match self.bug {
            Some(HolderBug::NoQuietStart) => SlotTable::default(),
            Some(HolderBug::QuietTooShort) => SlotTable::recovering(now + LIVES / 2),
            _ => SlotTable::recovering(now + LIVES),
        };
        let wait = self.dice.below(6 * LIVES.as_nanos() as u64);
        self.after(wait, Event::Restart);
    }

    fn margin(&self) -> Margin {
        if self.has(HolderBug::NoMargin) { Margin::NONE } else { Margin::default() }
    }
}

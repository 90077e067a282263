//! Faults, one after another and several at once.

use std::time::Duration;

use throttlekit::rate::Timestamp;
use throttlekit_conformance::Dice;
use tokio::time::sleep;

use super::Plan;
use super::log::micros;
use super::member::Fleet;
use crate::rig::{Server, now};

/// A fault of a node, of its connection, or of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9` of a node, and a replacement.
    Kill,
    /// A node leaves gracefully and returns its units while its callers still send requests; and a
    /// replacement.
    Leave,
    /// `SIGSTOP`, over the edge of a phase and up to half of the next.
    Stop,
    /// Every reply is delayed.
    Delay,
    /// A request is executed and its reply lost.
    LoseReply,
    /// Requests are duplicated: they are executed twice, and one reply arrives.
    Repeat,
    /// Connections stay open, and nothing arrives.
    HalfOpen,
    /// Connections are closed.
    Reset,
    /// The server forgets its scripts.
    ScriptFlush,
    /// The server responds to no client for a while.
    ClientPause,
}

pub(crate) const FAULTS: [Fault; 10] = [
    Fault::Kill,
    Fault::Leave,
    Fault::Stop,
    Fault::Delay,
    Fault::LoseReply,
    Fault::Repeat,
    Fault::HalfOpen,
    Fault::Reset,
    Fault::ScriptFlush,
    Fault::ClientPause,
];

const NAMES: [&str; FAULTS.len()] = [
    "kill",
    "leave",
    "stop",
    "delay",
    "lose_reply",
    "repeat",
    "half_open",
    "reset",
    "script_flush",
    "client_pause",
];

/// The number of times each fault occurred.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Struck([u64; FAULTS.len()]);

impl Struck {
    pub(crate) fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    pub(crate) fn all(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the numbers for a table.
    pub(crate) fn facts(&self) -> Vec<(&'static str, u64)> {
        let each = NAMES.into_iter().zip(self.0);
        std::iter::once(("faults", self.all())).chain(each).collect()
    }

    /// Returns the faults that did not occur.
    pub(crate) fn missing(&self) -> Vec<Fault> {
        FAULTS.into_iter().filter(|&fault| self.of(fault) == 0).collect()
    }
}

const STEP: Duration = Duration::from_millis(10);
/// A fault begins in one step of this many.
const ONCE_IN: u64 = 3;

pub(crate) struct FaultInjector {
    faults: &'static [Fault],
    /// The nodes that faults apply to: those with a bug, or all.
    targets: Vec<usize>,
    phase: Duration,
    dice: Dice,
    /// The end of each node's fault.
    ends: Vec<Option<(Timestamp, Fault)>>,
    pub(crate) struck: Struck,
}

impl FaultInjector {
    pub(crate) fn new(plan: &Plan, dice: Dice) -> Self {
        let broken: Vec<_> = (0..plan.nodes.len()).filter(|&n| plan.nodes[n].broken.is_some()).collect();
        let targets = if broken.is_empty() { (0..plan.nodes.len()).collect() } else { broken };
        let (phase, ends) = (plan.rule.phase(), vec![None; plan.nodes.len()]);
        Self { faults: plan.faults, targets, phase, dice, ends, struck: Struck::default() }
    }

    /// Ends faults whose time is over, and perhaps begins one.
    pub(crate) async fn step(&mut self, fleet: &mut Fleet, server: &Server) {
        sleep(STEP).await;
        self.end(fleet, now());
        let node = self.dice.below(self.ends.len() as u64) as usize;
        let spared = !self.targets.contains(&node) || self.ends[node].is_some();
        if spared || self.faults.is_empty() || !self.dice.once_in(ONCE_IN) {
            return;
        }
        // In turn, so that a short schedule has all of them.
        let fault = self.faults[self.struck.all() as usize % self.faults.len()];
        let lasts = self.strike(fault, node, fleet, server).await;
        self.ends[node] = lasts.map(|lasts| (now() + lasts, fault));
        self.struck.0[fault as usize] += 1;
    }

    /// Ends all faults.
    pub(crate) fn clear(&mut self, fleet: &Fleet) {
        self.end(fleet, Timestamp::MAX);
    }

    fn end(&mut self, fleet: &Fleet, now: Timestamp) {
        for (node, slot) in self.ends.iter_mut().enumerate() {
            let Some((_, fault)) = slot.take_if(|(until, _)| *until <= now) else { continue };
            match fault {
                Fault::Stop => fleet.signal(node, "CONT"),
                Fault::HalfOpen => fleet.members[node].proxy.heal_for_new_connections(),
                _ => fleet.members[node].proxy.forward(),
            }
        }
    }

    /// Begins a fault. Returns its duration if it has to be ended.
    async fn strike(
        &mut self,
        fault: Fault,
        node: usize,
        fleet: &mut Fleet,
        server: &Server,
    ) -> Option<Duration> {
        let proxy = &fleet.members[node].proxy;
        match fault {
            Fault::Kill => fleet.replace(node).kill(),
            Fault::Leave => fleet.replace(node).leave(),
            Fault::LoseReply => proxy.lose_next_reply(),
            Fault::Repeat => proxy.repeat_next_requests(self.dice.between(1, 4)),
            Fault::Reset => proxy.reset_all(),
            Fault::ScriptFlush => server.ask::<()>("SCRIPT FLUSH").await,
            Fault::ClientPause => {
                server.ask::<()>(&format!("CLIENT PAUSE {} ALL", self.dice.between(20, 150))).await;
            }
            Fault::Stop => fleet.signal(node, "STOP"),
            Fault::Delay => proxy.delay(Duration::from_millis(self.dice.between(20, 200))),
            Fault::HalfOpen => proxy.fall_silent(),
        }
        let phase = self.phase.as_millis() as u64;
        match fault {
            Fault::Stop => {
                let rest = phase - micros() / 1_000 % phase;
                Some(Duration::from_millis(rest + self.dice.below(phase / 2)))
            }
            Fault::Delay => Some(Duration::from_millis(self.dice.between(phase / 2, phase * 2))),
            Fault::HalfOpen => Some(Duration::from_millis(self.dice.between(phase / 4, phase))),
            _ => None,
        }
    }
}

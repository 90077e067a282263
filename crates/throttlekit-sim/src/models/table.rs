//! The production slot table and hold, in small scenarios explored in full.
//!
//! Holders request slots, send heartbeats and release over a network that delays, reorders, loses and
//! duplicates messages. Holders pause for any time and continue, and the table is lost and starts over. Work
//! runs from when a reply is received until it ends or its hold is fenced.

use core::fmt;
use core::time::Duration;

use stateright::{Model, Property};
use throttlekit_core::Timestamp;
use throttlekit_core::concurrency::{HeartbeatOutcome, Hold, LeaseId, Owner, SlotStep, SlotTable};
use throttlekit_core::lease::Margin;

use super::case::{Case, without};
use super::counter_examples::Assumption;

const TICK: Duration = Duration::from_millis(3);
/// Messages in flight at once.
const UNDER_WAY_MAX: usize = 3;
/// At most as many slots are held as there are, and at most as many run.
const INVARIANT: &str = "slot-fence";

/// Holders of the slots of one key.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    /// The number of holders.
    pub holders: usize,
    /// The number of slots.
    pub most: u32,
    /// The lifetime of a lease, in ticks.
    pub lives: u32,
    /// The length of the scenario, in ticks.
    pub ticks: u8,
    /// The maximum number of messages sent in all.
    pub letters: u8,
    /// The maximum number of times the table is lost.
    pub losses: u8,
    /// The driver's bug, if any.
    pub seam: Seam,
}

/// A bug of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seam {
    /// No bug.
    Sound,
    /// A heartbeat revives a lease that is over.
    Revives,
    /// The life of a slot is counted from the reply.
    AnchoredAtReply,
    /// Any holder that names a lease can release it.
    ReleaseByIdAlone,
    /// A table that was lost admits at once.
    NoQuiet,
    /// A holder works on after its deadline.
    Unfenced,
}

/// The whole system at an instant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableState {
    tick: u8,
    table: SlotTable,
    holders: Vec<Holder>,
    /// Sorted.
    letters: Vec<Letter>,
    sent: u8,
    lost: u8,
}

/// A holder that requests one slot at a time, each under its own lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Holder {
    asks: u8,
    /// True while it waits for the reply to its last request.
    waits: bool,
    /// The slot while its work runs.
    hold: Option<Hold>,
}

/// A message in flight: its request, and the tick at which it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Letter {
    holder: usize,
    ask: u8,
    sent: u8,
    says: Says,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Says {
    Ask,
    Heartbeat,
    /// The holder.
    Release(usize),
    /// The lifetime.
    Slot(Duration),
    /// The lifetime, or `None` if the lease is lost.
    HeartbeatReply(Option<Duration>),
}

/// The next step. Messages are identified by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A holder requests its slot.
    Ask(usize),
    /// A holder sends a heartbeat.
    Heartbeat(usize),
    /// A holder's work ends, and it releases the slot.
    Release(usize),
    /// A holder releases the slot of another.
    ReleaseOther(usize, usize),
    /// A message arrives.
    Arrive(usize),
    /// A message arrives, and will arrive again.
    ArriveTwice(usize),
    /// A message is lost.
    Lose(usize),
    /// A tick passes.
    Tick,
    /// The table is lost.
    LoseTable,
}

impl Slots {
    fn lives(&self) -> Duration {
        TICK * self.lives
    }

    fn at(tick: u8) -> Timestamp {
        Timestamp::from_millis(1_000) + TICK * u32::from(tick)
    }

    fn running(&self, state: &TableState) -> u32 {
        let (now, unfenced) = (Self::at(state.tick), self.seam == Seam::Unfenced);
        let runs = |hold: &&Hold| unfenced || !(**hold).clone().is_fenced(now);
        state.holders.iter().filter_map(|one| one.hold.as_ref()).filter(runs).count() as u32
    }

    fn deliver(&self, state: &mut TableState, letter: Letter) {
        let Letter { holder, ask, sent, says } = letter;
        let (now, owner) = (Self::at(state.tick), Owner(holder as u128));
        let lease = LeaseId(holder as u128 * 256 + u128::from(ask));
        let one = &mut state.holders[holder];
        let is_mine = one.asks == ask;
        let anchor = Self::at(if self.seam == Seam::AnchoredAtReply { state.tick } else { sent });
        let mut answer = |says| state.letters.push(Letter { says, ..letter });
        match says {
            Says::Ask => {
                let step = state.table.acquire(lease, owner, self.most, self.lives(), now);
                if let SlotStep::Admit { slot, .. } = step {
                    answer(Says::Slot(slot.lives));
                }
            }
            Says::Heartbeat => {
                answer(Says::HeartbeatReply(self.heartbeat(&mut state.table, lease, owner, now)));
            }
            Says::Release(by) => {
                let by = if self.seam == Seam::ReleaseByIdAlone { holder } else { by };
                state.table.release(lease, Owner(by as u128), now);
            }
            Says::Slot(lives) if is_mine && one.waits => {
                one.waits = false;
                one.hold = Some(Hold::begin(Margin::NONE, anchor, lives, 0, now));
            }
            Says::HeartbeatReply(lives) if is_mine => {
                one.hold.iter_mut().for_each(|hold| hold.handle_heartbeat(anchor, lives, now));
            }
            Says::Slot(_) | Says::HeartbeatReply(_) => {}
        }
    }

    fn heartbeat(
        &self,
        table: &mut SlotTable,
        lease: LeaseId,
        owner: Owner,
        now: Timestamp,
    ) -> Option<Duration> {
        match table.heartbeat(&[lease], owner, self.lives(), now)[..] {
            [HeartbeatOutcome::Held(slot)] => Some(slot.lives),
            _ if self.seam == Seam::Revives => {
                table.acquire(lease, owner, u32::MAX, self.lives(), now);
                Some(self.lives())
            }
            _ => None,
        }
    }
}

impl Model for Slots {
    type State = TableState;
    type Action = Step;

    fn init_states(&self) -> Vec<TableState> {
        let (table, holders) = (SlotTable::default(), vec![Holder::default(); self.holders]);
        vec![TableState { tick: 0, table, holders, letters: Vec::new(), sent: 0, lost: 0 }]
    }

    fn actions(&self, state: &TableState, steps: &mut Vec<Step>) {
        let can_send = state.sent < self.letters;
        for holder in 0..self.holders {
            if !can_send {
                break;
            }
            match state.holders[holder].hold {
                None => steps.push(Step::Ask(holder)),
                Some(_) => steps.extend([Step::Heartbeat(holder), Step::Release(holder)]),
            }
            steps.push(Step::ReleaseOther(holder, (holder + 1) % self.holders));
        }
        for at in 0..state.letters.len() {
            steps.extend([Step::Arrive(at), Step::ArriveTwice(at), Step::Lose(at)]);
        }
        steps.extend((state.tick < self.ticks).then_some(Step::Tick));
        steps.extend((state.lost < self.losses).then_some(Step::LoseTable));
    }

    fn next_state(&self, last: &TableState, step: Step) -> Option<TableState> {
        let mut state = last.clone();
        let put = |state: &mut TableState, holder: usize, says| {
            state.sent += 1;
            let ask = state.holders[holder].asks;
            state.letters.push(Letter { holder, ask, sent: state.tick, says });
        };
        match step {
            Step::Ask(holder) => {
                let asks = state.holders[holder].asks + 1;
                state.holders[holder] = Holder { asks, waits: true, hold: None };
                put(&mut state, holder, Says::Ask);
            }
            Step::Heartbeat(holder) => put(&mut state, holder, Says::Heartbeat),
            Step::Release(holder) => {
                state.holders[holder].hold = None;
                put(&mut state, holder, Says::Release(holder));
            }
            Step::ReleaseOther(by, holder) => put(&mut state, holder, Says::Release(by)),
            Step::Arrive(at) => {
                let letter = state.letters.remove(at);
                self.deliver(&mut state, letter);
            }
            Step::ArriveTwice(at) => {
                // The message stays in flight. One that changes nothing leads to the same state.
                let letter = state.letters[at];
                self.deliver(&mut state, letter);
            }
            Step::Lose(at) => drop(state.letters.remove(at)),
            Step::Tick => state.tick += 1,
            Step::LoseTable => {
                state.lost += 1;
                let until = Self::at(state.tick) + self.lives();
                let quiet = self.seam != Seam::NoQuiet;
                state.table = if quiet { SlotTable::recovering(until) } else { SlotTable::default() };
            }
        }
        state.letters.sort_unstable();
        state.letters.dedup();
        (state.letters.len() <= UNDER_WAY_MAX).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no more are held than there are slots", |model: &Self, state: &TableState| {
                state.table.occupancy(Self::at(state.tick)) <= model.most
            }),
            Property::always("no more run than there are slots", |model: &Self, state: &TableState| {
                model.running(state) <= model.most
            }),
            Property::sometimes("all slots are in use", |model: &Self, state: &TableState| {
                model.running(state) == model.most
            }),
            Property::sometimes(
                "a hold is fenced and another has its slot",
                |model: &Self, state: &TableState| {
                    let is_fenced = |mut hold: Hold| hold.is_fenced(Self::at(state.tick));
                    let fenced = state.holders.iter().filter_map(|one| one.hold).any(is_fenced);
                    fenced && model.running(state) == model.most
                },
            ),
        ]
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask(holder) => write!(f, "holder {holder} asks"),
            Self::Heartbeat(holder) => write!(f, "holder {holder} sends a heartbeat"),
            Self::Release(holder) => write!(f, "holder {holder} releases"),
            Self::ReleaseOther(by, holder) => write!(f, "holder {by} releases the slot of holder {holder}"),
            Self::Arrive(at) => write!(f, "message {at} arrives"),
            Self::ArriveTwice(at) => write!(f, "message {at} arrives, and will again"),
            Self::Lose(at) => write!(f, "message {at} is lost"),
            Self::Tick => write!(f, "a tick passes"),
            Self::LoseTable => write!(f, "the table is lost"),
        }
    }
}

const TWO: Slots =
    Slots { holders: 2, most: 1, lives: 1, ticks: 2, letters: 3, losses: 0, seam: Seam::Sound };

/// Returns the scenarios that are explored within seconds.
pub fn small() -> Vec<Case> {
    let case = |name, states, model: Slots| Case::new(INVARIANT, name, model.most.to_string(), states, model);
    vec![
        case("2 holders of 1 slot", 95_740, TWO),
        case("2 holders of 1 slot, the table is lost", 22_232, Slots { letters: 2, losses: 1, ..TWO }),
    ]
}

/// Returns the scenarios that take longer.
pub fn large() -> Vec<Case> {
    let case = |name, states, model: Slots| Case::new(INVARIANT, name, model.most.to_string(), states, model);
    let three = Slots { holders: 3, most: 2, ..TWO };
    vec![
        case("3 holders of 2 slots", 556_164, three),
        case("2 holders of 1 slot, 3 messages, the table is lost", 283_354, Slots { losses: 1, ..TWO }),
    ]
}

/// Returns one assumption at a time, with the shortest counterexample in which too many are held or run.
pub fn assumptions() -> Vec<Assumption> {
    let with = |seam| Slots { seam, ..TWO };
    vec![
        without("a heartbeat revives nothing", INVARIANT, with(Seam::Revives)),
        without("a life is counted from when the slot was asked for", INVARIANT, with(Seam::AnchoredAtReply)),
        without("a lease is released by its owner", INVARIANT, with(Seam::ReleaseByIdAlone)),
        without(
            "a table that was lost is quiet",
            INVARIANT,
            Slots { losses: 1, ticks: 0, letters: 2, ..with(Seam::NoQuiet) },
        ),
        without("a holder stops by itself", INVARIANT, with(Seam::Unfenced)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_scenarios_have_as_many_states_as_they_had() {
        for case in small().iter().filter(|case| case.states < 50_000) {
            assert_eq!(case.wrong(&case.explore(1)), None);
        }
    }

    /// One of them; `cargo xtask verify` finds all.
    #[test]
    fn a_lost_table_needs_a_quiet_period() {
        let model = Slots { seam: Seam::NoQuiet, losses: 1, ticks: 0, letters: 2, ..TWO };
        assert!(without("a table that was lost is quiet", INVARIANT, model).counterexample().is_some());
    }
}

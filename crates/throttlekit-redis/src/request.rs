//! Requests to a node, and its replies.

use std::time::Duration;

use redis::{Cmd, Pipeline, Value};
use throttlekit::store::StoreError;

use crate::lineage::{Since, Told};
use crate::unreplicated::Flight;
use crate::wire::Preamble;

/// The purpose of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Errand {
    /// The response grants nothing.
    Plain,
    /// The same, by a script that follows the server's lineage, since it may write a state that was lost.
    Tracked,
    /// The response may grant this many units, which a failover may lose.
    Charge(u64),
    /// The same, by the script that may leave a check for evictions to its caller. The check is of the same time.
    Admit(u64, Preamble),
}

pub(crate) struct Request {
    pub(crate) cmd: Cmd,
    pub(crate) slot: u16,
    /// The key of the lineage record next to its keys.
    pub(crate) record: &'static str,
    /// Set if `ASKING` is sent first, which lets a node respond for a slot that it is importing.
    pub(crate) asking: bool,
    pub(crate) errand: Errand,
}

impl Request {
    /// Returns the pipeline, if it is more than the command: with the number of replies to skip and to take.
    pub(crate) fn pipeline(&self, wait: Option<(u32, Duration)>) -> Option<(Pipeline, usize, usize)> {
        if !self.asking && wait.is_none() {
            return None;
        }
        let mut pipeline = Pipeline::with_capacity(3);
        if self.asking {
            pipeline.cmd("ASKING").ignore();
        }
        pipeline.add_command(self.cmd.clone());
        if let Some((replicas, within)) = wait {
            pipeline.cmd("WAIT").arg(replicas).arg(within.as_millis() as u64);
        }
        Some((pipeline, self.asking.into(), 1 + usize::from(wait.is_some())))
    }
}

/// A response, and the checks that precede spending it.
pub(crate) struct Reply {
    pub(crate) value: Value,
    /// Reason why nothing of it may be spent.
    pub(crate) held_back: Option<StoreError>,
    /// Its entry in the record of unreplicated charges.
    pub(crate) flight: Option<Flight>,
    /// The time since which the server's state behind it is complete.
    pub(crate) since: Since,
}

impl Reply {
    pub(crate) fn of(told: Told) -> Self {
        Self { value: told.value, held_back: None, flight: None, since: told.since }
    }

    /// Records how much was charged, and returns the reason why that must not be spent, if any. Every response that
    /// grants something passes through here.
    pub(crate) fn spend(self, charged: u64) -> Option<StoreError> {
        if let Some(flight) = self.flight {
            flight.land(charged);
        }
        self.held_back.filter(|_| charged > 0)
    }

    /// The same for several results; `charged` returns the units of each, by its index. Those that were charged must
    /// not be spent, if there is a reason.
    pub(crate) fn spend_each<A>(
        self,
        answers: Vec<Result<A, StoreError>>,
        charged: impl Fn((usize, &A)) -> u64,
    ) -> Vec<Result<A, StoreError>> {
        let of = |(place, answer): (usize, &Result<A, StoreError>)| {
            answer.as_ref().map_or(0, |answer| charged((place, answer)))
        };
        let Some(why) = self.spend(answers.iter().enumerate().map(of).sum()) else { return answers };
        let held_back = |(place, answer)| if of((place, &answer)) > 0 { Err(why.clone()) } else { answer };
        answers.into_iter().enumerate().map(held_back).collect()
    }
}

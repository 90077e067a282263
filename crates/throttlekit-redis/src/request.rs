//! What a node is sent, and what it answers.

use std::time::Duration;

use redis::{Cmd, Pipeline, Value};
use throttlekit::store::StoreError;

use crate::lineage::{Since, Told};
use crate::unreplicated::Flight;

/// What a call is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Errand {
    /// Nothing is granted by its answer.
    Plain,
    /// The same by a script that follows the server's lineage, since it may write a state that was lost.
    Tracked,
    /// Its answer may grant so many units, which a failover may lose.
    Charge(u64),
}

pub(crate) struct Request {
    pub(crate) cmd: Cmd,
    pub(crate) slot: u16,
    /// The key of the lineage record beside its keys.
    pub(crate) record: &'static str,
    /// Whether `ASKING` goes before it, which lets a node answer for a slot that it is being given.
    pub(crate) asking: bool,
    pub(crate) errand: Errand,
}

impl Request {
    /// What goes together, if it is more than the command: which answers to skip, and how many to take.
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

/// An answer, and what is to be known before it is spent.
pub(crate) struct Reply {
    pub(crate) value: Value,
    /// Why nothing of it may be spent.
    pub(crate) held_back: Option<StoreError>,
    /// Its entry in the ledger.
    pub(crate) flight: Option<Flight>,
    /// Since when the server's memory behind it is complete.
    pub(crate) since: Since,
}

impl Reply {
    pub(crate) fn of(told: Told) -> Self {
        Self { value: told.value, held_back: None, flight: None, since: told.since }
    }

    /// Says how much was charged, and hears why that must not be spent, if so. Every answer that grants something goes
    /// through here.
    pub(crate) fn spend(self, charged: u64) -> Option<StoreError> {
        if let Some(flight) = self.flight {
            flight.land(charged);
        }
        self.held_back.filter(|_| charged > 0)
    }
}

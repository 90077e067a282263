//! Concurrency: ceilings that follow latency, slots held under a lease, one ceiling shared by many nodes.
//!
//! * [`Estimator`] infers a ceiling from latency, [`Ceiling`] sets its bounds and its rule.
//! * [`division`] shares one ceiling among nodes that admit work without remote calls.
//! * [`SlotTable`] tracks the holders of one key's slots and their expiry, [`Hold`] is the holder's side of one slot.

mod aimd;
mod ceiling;
pub mod division;
mod estimator;
mod gradient;
mod groups;
mod hold;
mod raised;
mod round;
mod slots;
mod standing;
mod variation;
mod windowed_min;

pub use ceiling::Ceiling;
pub use estimator::{Estimator, Sample};
pub use hold::Hold;
pub use slots::{Full, HeartbeatOutcome, LeaseId, Owner, SLOTS_MAX, Slot, SlotSnapshot, SlotStep, SlotTable};
pub use windowed_min::WindowedMin;

/// Outcome of work that held a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// It was done: its latency shows how loaded the backend is.
    Success,
    /// The backend was overloaded: a timeout, a rejection, a crash. Carries no information about latency.
    Dropped,
    /// It carries no information about the backend: another axis denied, or the caller went away.
    Ignored,
}

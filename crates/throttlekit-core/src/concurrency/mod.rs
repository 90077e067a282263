//! How many at a time: ceilings that follow latency, slots held under a lease, one ceiling for a fleet.
//!
//! * [`Estimator`] infers a ceiling from how long work takes, [`Ceiling`] says within which bounds and by which rule.
//! * [`fleet`] shares one ceiling among nodes that let work in by themselves.
//! * [`SlotTable`] has who holds the slots of one key until when, [`Hold`] is one of them seen by whoever holds it.

mod aimd;
mod ceiling;
mod estimator;
pub mod fleet;
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
pub use slots::{Beat, Full, LeaseId, Owner, SLOTS_MAX, Slot, SlotSight, SlotStep, SlotTable};
pub use windowed_min::WindowedMin;

/// How work ended that held a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// It was done: how long it took says how loaded the backend is.
    Success,
    /// The backend was too full for it: a timeout, a refusal, a crash. Says nothing of how long work takes.
    Dropped,
    /// It says nothing of the backend: another axis denied, or the caller went away.
    Ignored,
}

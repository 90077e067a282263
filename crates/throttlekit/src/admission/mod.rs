//! One ask over all axes: one answer, one axis to blame, one permit to settle.

mod axis;
mod event;

pub use axis::{Axes, Axis};
pub use event::{Event, Observer};

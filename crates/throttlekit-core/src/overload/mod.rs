//! Overload: shedding at the client, and limits over more keys than there is memory for.
//!
//! * [`Throttle`] sheds a growing part of the calls to a backend that accepts fewer of them.
//! * [`CountMin`] counts any number of keys in fixed memory and never counts too little; a [`Shape`] is its size.
//! * [`SketchWindow`] is a limit whose counts lie in a sketch.
//! * [`FloodWindow`] is the same with the busiest keys counted individually, so that they do not affect the others.
//! * [`LinearSketch`] counts all requests, admitted or denied, and can be added to those of other nodes.
//! * [`SpaceSaving`] finds the most frequent keys, with a reported error bound for each count.
//!
//! Keys are 64-bit hashes, computed with a secret by the caller; random numbers and the time are passed in as well.

mod count_min;
mod flood;
mod hot_keys;
mod limit;
mod linear;
mod shape;
mod sketch_window;
mod snapshot;
mod space_saving;
mod throttle;

pub use count_min::{AtPlaces, CountMin, CounterSlot, Memory, Places, Plain, SharedCounter};
pub use flood::FloodWindow;
pub use hot_keys::HotKey;
pub use limit::{SketchError, SketchLimit};
pub use linear::{LinearSketch, MergeError, Merged};
pub use shape::{Shape, ShapeError};
pub use sketch_window::SketchWindow;
pub use snapshot::SnapshotError;
pub use space_saving::{Heavy, SpaceSaving};
pub use throttle::{Criticality, Throttle, ThrottleError};

//! Tests of the simulators: laws hold, and seeded bugs are found.

mod fleet;
mod slots;

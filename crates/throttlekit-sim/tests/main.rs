//! Tests of the simulators: invariants hold, and seeded bugs are found.

mod cluster;
mod slots;

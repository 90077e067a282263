//! Tests of the load generator as a process.

mod load;

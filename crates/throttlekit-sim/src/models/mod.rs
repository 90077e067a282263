//! Small worlds, explored in full.

pub mod one_step;
pub mod trilemma;

//! The laws of fairness, over random worlds, with planted bugs.

pub mod tree;

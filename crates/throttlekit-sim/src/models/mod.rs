//! Small scenarios, explored in full.

pub mod case;
pub mod catalogue;
pub mod ceiling;
pub mod check;
pub mod counter_examples;
pub mod network;
pub mod one_step;
pub mod rebalance;
pub mod rolling_return;
pub mod seam;
pub mod table;
pub mod trilemma;

//! Fairness: who gets how much of one budget.

pub mod pool;

//! `budget-tree`: of several token budgets that one call draws on, each is charged at most its budget plus one chunk less
//! one token, all are charged or none, and what is settled is exact.
//!
//! In memory, one caller after another is compared with a [`Model`], across windows, with calls that are lost and
//! sent again. On any store, many callers at once are compared with the sums of what they were told.

mod model;
mod play;
mod scenario;
mod subject;

pub use model::{Model, Node};
pub use play::{Played, examine, examine_at_once, find_seeded};
pub use scenario::{Level, Scenario, Step};
pub use subject::{Subject, TreeBug};

//! `inference` where service times have long tails: goodput beside the best fixed ceiling, and beside published rules.
//!
//! * [`Shape`] is the distribution of service times, [`Scenario`] a backend under a load: Poisson arrivals, a
//!   guard, a FIFO queue and `n` servers behind it.
//! * [`run`] runs one scenario and one seed on anything that [`Infers`](super::Infers) a ceiling.
//! * [`compare`] finds the best fixed ceiling by search and compares ours and the [`PEERS`] with it.
//! * [`TailBug`] lists broken estimators, each of which the thresholds must find.

mod compare;
mod peers;
mod scenario;
mod seeded;
mod shape;

pub use compare::{
    Compared, GOODPUT_BELOW, GOODPUT_FROM, P99_MAX, Result, SEARCH_SEEDS, TailSize, WORST_SEED, compare, ours,
};
pub use peers::{AimdLimit, Fixed, Gradient2Limit, PEERS, Peer, VegasLimit};
pub use scenario::{LOADS, Outcome, SERVERS, Scenario, WAIT_MAX, run};
pub use seeded::{TailBug, find_seeded};
pub use shape::{SHAPES, Shape};

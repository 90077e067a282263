//! PostgreSQL servers with injected faults, and the labels of a store's decisions on them.
//!
//! * [`Server`] is a server for one test, and [`Pooler`] a PgBouncer in front of it.
//! * [`failover_round`], [`restore_round`] and [`crash_round`] lose charges, or could, and count the
//!   decisions beyond the limit that were labeled exact: invariant `label-truth`.
//! * [`hang_commits`] lets commits hang, and counts the connections that a store takes: invariant
//!   `exhaustion`.

mod exhaustion;
mod pooler;
mod rounds;
mod server;
mod window;

pub use exhaustion::{Exhaustion, Load, Second, hang_commits};
pub use pooler::Pooler;
pub use rounds::{crash_round, failover_round, restore_round};
pub use server::{Server, query};
pub use window::{LIMIT, Window};

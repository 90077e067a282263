//! PostgreSQL servers that are broken on purpose, and the labels of what a store decides on them.
//!
//! * [`Server`] is a server of a test's own.
//! * [`failover_round`], [`restore_round`] and [`crash_round`] lose charges, or could, and count the decisions beyond the
//!   limit that were called exact: invariant `label-truth`.
//! * [`hang_commits`] lets commits hang, and counts the connections that a store takes: invariant `exhaustion`.

mod exhaustion;
mod rounds;
mod server;
mod window;

pub use exhaustion::{Exhaustion, Load, Second, hang_commits};
pub use rounds::{crash_round, failover_round, restore_round};
pub use server::{Server, query};
pub use window::{LIMIT, Window};

//! `fleet-slots` on real processes: nodes that share one ceiling of one backend, and a parent that stops,
//! kills and starts them.
//!
//! The backend counts its concurrent requests itself, and refuses requests after the deadline that was sent
//! along. The nodes log the slots that they admitted. A judge adds up both.
//!
//! Each process is the same program: it first checks whether it has a [`post`], and serves it.

mod backend;
mod crew;
mod judge;
mod log;
mod node;
mod post;
mod short;

pub use crew::Crew;
pub use judge::{Tally, most_at_once, tally};
pub use post::{Bug, Limit, Order, Post, post, serve};
pub use short::{SCHEDULES_MAX, SHORT_CEILING, ceiling_holds, short_schedule};

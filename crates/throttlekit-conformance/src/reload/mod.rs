//! `reload`: where a limit takes the place of another of its kind, what keys have used goes on counting, and every store
//! answers alike.
//!
//! A [`ReloadWorld`] is one limit in several versions, and what happens while they follow each other. It is played to a
//! store and to a [`MemoryStore`](throttlekit::store::MemoryStore) beside it: every answer is the same. And whenever the
//! version changes, a judge that knows no states looks at each key before and after: units that were used stay used, and
//! a bucket is full when it would have been.

mod judge;
mod planted;
mod play;
mod world;

pub use planted::{RELOAD_BUGS, ReloadBug, Reloaded};
pub use play::{ReloadReport, examine_reload, find_reload_bug};
pub use world::{ReloadStep, ReloadWorld};

//! Listeners: accepting connections, limiting them, and closing them.
//!
//! Everything has a limit here ([`Limits`]): connections, streams, headers, time. An API sees a request only after all
//! limits have been checked.

mod bind;
mod body;
mod capacity;
mod certificate_expiry;
mod commands;
mod connection;
mod counters;
mod deadline;
mod fast_path;
mod leaving;
mod peer;
mod replayed;
mod serve;
mod supervise;
mod tls;
mod watchdog;
mod within;

pub use bind::judge_bind;
pub use body::Delivery;
pub(crate) use body::read_rest;
pub(crate) use commands::{Commands, Next, Received, Session, Step};
pub(crate) use connection::{FORWARD_AUTH, is_grpc, say};
pub use counters::{Counters, Stats};
pub(crate) use fast_path::FastPath;
pub(crate) use leaving::Leaving;
pub use peer::Peer;
pub(crate) use serve::serve_protocol;
pub use serve::{ListenOptions, Speaks, serve};
pub use tls::{Tls, TlsFiles};
pub(crate) use watchdog::TURN_BYTES;
pub(crate) use within::within;

pub use crate::limits::Limits;
pub use crate::share::Processor;

//! Connections: taking them, bounding what each may cost, and letting them go.
//!
//! Everything has a limit here ([`Limits`]): connections, streams, headers, time. A door sees a request only after
//! all of them have been checked.

mod bind;
mod body;
mod conduct;
mod connection;
mod counters;
mod deadline;
mod expiry;
mod peer;
mod room;
mod serve;
mod tls;

pub use bind::judge_bind;
pub use body::Delivery;
pub(crate) use body::read_rest;
pub(crate) use connection::{FORWARD_AUTH, is_grpc, say};
pub use counters::{Counters, Stats};
pub use peer::Peer;
pub use serve::{ListenOptions, Speaks, serve};
pub use tls::{Tls, TlsFiles};

pub use crate::limits::Limits;
pub use crate::share::Processor;

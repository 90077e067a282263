//! The RESP API: `CL.THROTTLE` for clients of Redis.
//!
//! Commands and replies are those of redis-cell and throttlecrab. The limits are not: a key names a policy of the policy
//! file, and the limits in a command are ignored.

mod parser;
mod reply;
mod session;
mod throttle;

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::access::Access;
use crate::engine::Engine;
use crate::listen::{Counters, Peer};
use crate::share::Shares;
use session::RespSession;

/// The RESP API of an engine.
pub(crate) struct RespApi {
    pub(crate) engine: Engine,
    /// The current access list.
    pub(crate) access: Arc<ArcSwap<Access>>,
    pub(crate) shares: Arc<Shares>,
    /// Counters of the listener.
    pub(crate) counters: Arc<Counters>,
}

impl RespApi {
    /// Creates the session of a connection whose commands have at most `bytes_max` bytes.
    pub(crate) fn session(self: &Arc<Self>, peer: Peer, bytes_max: usize) -> RespSession {
        RespSession::new(self.clone(), peer, bytes_max)
    }
}

//! Checks over HTTP/1.1 without the HTTP library, whose part of such a request costs more than the decision.
//!
//! This understands a strict subset: a whole `POST /v1/check` with one `content-length` and no header that changes how it
//! is read. Everything else a client sends goes to the library, unchanged, and so does the rest of its connection. So no
//! request is read here that the library would read differently.

mod request;
mod response;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use arc_swap::ArcSwap;
use http::{Response, StatusCode};
use tokio::time::Instant;
use tonic::Status;

use super::HttpApi;
use super::body::{Asked, BODY_BYTES_MAX};
use super::routes::check_one;
use crate::access::{Access, Caller, Secret};
use crate::api::fair_use::{CROWDED, named};
use crate::listen::{Counters, Next, Peer, Received, Session, Step, TURN_BYTES, say, within};
use crate::share::Shares;
use request::{Parsed, Plain};
use response::Written;

/// Everything that the fast path shares with all other requests of the HTTP API.
pub(crate) struct CheckContext {
    pub(crate) api: HttpApi,
    /// The current access list.
    pub(crate) access: Arc<ArcSwap<Access>>,
    pub(crate) shares: Arc<Shares>,
    /// Counters of the listener.
    pub(crate) counters: Arc<Counters>,
}

impl CheckContext {
    /// Creates the session of a connection.
    pub(crate) fn session(self: &Arc<Self>, peer: Peer) -> CheckSession {
        let (context, written) = (self.clone(), Written::default());
        CheckSession { context, peer, request: None, has_part: false, written, bytes_in_turn: 0 }
    }
}

/// Answers the checks at the beginning of a connection.
pub(crate) struct CheckSession {
    context: Arc<CheckContext>,
    peer: Peer,
    /// The request that was found last.
    request: Option<Plain>,
    /// Set once a part of the next head was found.
    has_part: bool,
    written: Written,
    /// Bytes of the requests that were answered since other connections last ran.
    bytes_in_turn: usize,
}

impl Session for CheckSession {
    fn look(&mut self, received: &[u8]) -> Received {
        let limits = self.context.shares.limits();
        let body_max = limits.message_bytes_max.min(BODY_BYTES_MAX);
        match request::parse(received, limits.headers_max, body_max) {
            // Each look begins at the first byte: a head in many parts is left to the library, which goes on where it was.
            Parsed::Part if !std::mem::replace(&mut self.has_part, true) => Received::Part,
            Parsed::Part | Parsed::Foreign => Received::Foreign,
            Parsed::Plain(request) => {
                (self.request, self.has_part) = (Some(request), false);
                Received::Command
            }
        }
    }

    async fn answer(&mut self, received: &[u8], leaving: &AtomicBool, responses: &mut Vec<u8>) -> Step {
        const HAND_OVER: Step = Step { answered_bytes: 0, next: Next::HandOver };
        let Some(request) = self.request.take() else { return HAND_OVER };
        let answered_bytes = request.body.end;
        // The layer of all other requests rejects a caller that is not authenticated.
        let Some(caller) = self.identify(request.authorization.clone().map(|token| &received[token])) else {
            return HAND_OVER;
        };
        if self.bytes_in_turn >= TURN_BYTES {
            self.bytes_in_turn = 0;
            tokio::task::yield_now().await;
        }
        self.bytes_in_turn += answered_bytes;
        let CheckContext { shares, counters, .. } = &*self.context;
        counters.count_fast_path();
        let deadline = || Instant::now() + shares.limits().request_max;
        let answer = within(deadline, self.decide(caller, request.denied, &received[request.body])).await;
        let response = answer.unwrap_or_else(|_| {
            counters.count_late();
            say(false, Status::deadline_exceeded("request timed out"))
        });
        let closes = leaving.load(Relaxed);
        self.written.append(&response, closes, responses);
        Step { answered_bytes, next: if closes { Next::Close } else { Next::Answer } }
    }
}

impl CheckSession {
    /// Returns the caller, if it is authenticated.
    fn identify(&self, token: Option<&[u8]>) -> Option<Caller> {
        let access = self.context.access.load();
        // Without a list of principals a token is ignored.
        let token = match token.filter(|_| access.is_listed()) {
            None => None,
            Some(token) => Some(Secret::bearer(token)?),
        };
        access.identify_connection(token.as_ref(), &self.peer).ok()
    }

    /// Waits for the turn of a request, and decides it.
    async fn decide(&self, mut caller: Caller, denied: StatusCode, body: &[u8]) -> Response<String> {
        let CheckContext { api, shares, counters, .. } = &*self.context;
        let who = named(self.peer.who(), &caller);
        if let Some(account) = &self.peer.account {
            account.belongs_to(&who);
        }
        let turn = match shares.turn_now(&who) {
            None => shares.turn(who).await,
            turn => turn,
        };
        let Some(turn) = turn else {
            counters.count_shed();
            return say(false, Status::unavailable(CROWDED));
        };
        caller.takes(turn);
        let answer = match Asked::parse(caller, denied, body) {
            Ok(asked) => check_one(api, &asked).await,
            Err(problem) => Err(problem),
        };
        answer.unwrap_or_else(|problem| problem.response())
    }
}

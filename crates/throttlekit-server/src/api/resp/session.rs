//! The commands of one connection.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use throttlekit::clock::{Clock, WallClock};
use tokio::time::Instant;

use super::RespApi;
use super::parser::{Command, ProtocolError, parse};
use super::reply::{self, Failure};
use super::throttle::{self, is_throttle};
use crate::access::{AuthError, Caller, Secret};
use crate::api::fair_use::named;
use crate::engine::{Answered, PolicyCall};
use crate::listen::{Next, Peer, Received, Session, Step, within};
use crate::policy::Endpoint;
use crate::share::Turn;

/// Maximum number of commands that are decided in one turn: other callers wait for its end.
const TURN_COMMANDS: usize = 32;
/// Size of the responses after which they are sent.
const RESPONSES_BYTES_MAX: usize = 16 << 10;
/// Name that clients send with a token if they have none.
const ANY_NAME: &[u8] = b"default";

/// Answers the commands of one connection.
pub(crate) struct RespSession {
    api: Arc<RespApi>,
    peer: Peer,
    bytes_max: usize,
    /// The token of the last AUTH that was accepted. Each batch is identified by it again: it may expire or be revoked.
    token: Option<Secret>,
    /// Commands since the session last yielded to other connections.
    since_yield: usize,
}

/// The commands of one read, as far as they share something.
struct Batch {
    caller: Result<Caller, AuthError>,
    deadline: Instant,
    /// Set once the deadline has passed: nothing more is decided.
    is_late: bool,
    /// The turn of the next commands, unless they were shed.
    turn: Option<Turn>,
    /// Number of commands left in the turn.
    left: usize,
}

impl Session for RespSession {
    fn look(&mut self, received: &[u8]) -> Received {
        if matches!(self.parse(received), Ok(None)) { Received::Part } else { Received::Command }
    }

    async fn answer(&mut self, received: &[u8], _: &AtomicBool, responses: &mut Vec<u8>) -> Step {
        let deadline = Instant::now() + self.api.shares.limits().request_max;
        let mut batch = Batch { caller: self.identify(), deadline, is_late: false, turn: None, left: 0 };
        let mut rest = received;
        let next = loop {
            if batch.left == 0 && self.since_yield >= TURN_COMMANDS {
                self.since_yield = 0;
                tokio::task::yield_now().await;
            }
            if batch.left == 0 && responses.len() >= RESPONSES_BYTES_MAX {
                break Next::Answer;
            }
            let (command, length) = match self.parse(rest) {
                Ok(Some(parsed)) => parsed,
                Ok(None) => break Next::Read,
                Err(violation) => {
                    reply::error(responses, "ERR", &violation.to_string());
                    break Next::Reject;
                }
            };
            if command.count() > 0 {
                self.api.counters.count_request();
            }
            self.since_yield += 1;
            let next = if is_throttle(command.name()) {
                self.throttle(&mut batch, &command, &rest[length..], responses).await;
                Next::Read
            } else {
                self.other(&mut batch, &command, responses)
            };
            rest = &rest[length..];
            if next != Next::Read {
                break next;
            }
        };
        Step { answered_bytes: received.len() - rest.len(), next }
    }
}

impl RespSession {
    pub(super) fn new(api: Arc<RespApi>, peer: Peer, bytes_max: usize) -> Self {
        Self { api, peer, bytes_max, token: None, since_yield: 0 }
    }

    fn parse<'a>(&self, bytes: &'a [u8]) -> Result<Option<(Command<'a>, usize)>, ProtocolError> {
        parse(bytes, self.bytes_max)
    }

    fn identify(&self) -> Result<Caller, AuthError> {
        let caller = self.api.access.load().identify_connection(self.token.as_ref(), &self.peer);
        if let (Ok(caller), Some(account)) = (&caller, &self.peer.account) {
            account.belongs_to(&named(self.peer.who(), caller));
        }
        caller
    }

    /// Decides a command; `ahead` is what was received after it.
    async fn throttle(
        &mut self,
        batch: &mut Batch,
        command: &Command<'_>,
        ahead: &[u8],
        responses: &mut Vec<u8>,
    ) {
        match self.decide(batch, command, ahead).await {
            Ok(answer) => reply::decision(responses, &answer, WallClock.now()),
            Err(failure) => failure.write(responses),
        }
        if batch.left == 0 {
            batch.turn = None;
        }
    }

    async fn decide(
        &self,
        batch: &mut Batch,
        command: &Command<'_>,
        ahead: &[u8],
    ) -> Result<Answered, Failure> {
        let caller = match &batch.caller {
            Ok(caller) => caller,
            Err(unknown) => return Err(self.unknown(*unknown)),
        };
        if batch.left == 0 {
            batch.left = 1 + self.throttles(ahead);
            let who = named(self.peer.who(), caller);
            batch.turn = self.api.shares.turn_for(who, batch.left as u64).await;
        }
        batch.left -= 1;
        let Some(turn) = &batch.turn else {
            self.api.counters.count_shed();
            return Err(Failure::Crowded);
        };
        let call = throttle::call(command).map_err(Failure::Invalid)?;
        caller.may(Endpoint::Check, call.policy, call.key).map_err(Failure::Refused)?;
        let answer = self.check(call, batch.deadline, &mut batch.is_late).await?;
        turn.denied(u64::from(!answer.decision.allowed));
        Ok(answer)
    }

    async fn check(
        &self,
        call: PolicyCall<'_>,
        deadline: Instant,
        is_late: &mut bool,
    ) -> Result<Answered, Failure> {
        if !*is_late {
            match within(|| deadline, self.api.engine.check(call)).await {
                Ok(answer) => return answer.and_then(Answered::decided).map_err(Failure::Refused),
                Err(_) => *is_late = true,
            }
        }
        self.api.counters.count_late();
        Err(Failure::Late)
    }

    /// Returns the number of complete commands of this kind that follow in the same turn.
    fn throttles(&self, mut ahead: &[u8]) -> usize {
        let mut count = 0;
        while count + 1 < TURN_COMMANDS
            && let Ok(Some((command, length))) = self.parse(ahead)
            && is_throttle(command.name())
        {
            count += 1;
            ahead = &ahead[length..];
        }
        count
    }

    /// Counts a caller that is not authenticated.
    fn unknown(&self, error: AuthError) -> Failure {
        self.api.access.load().note_unknown(error, &self.peer, "RESP");
        Failure::Unknown(error)
    }

    /// Answers a command that needs no decision.
    fn other(&mut self, batch: &mut Batch, command: &Command<'_>, out: &mut Vec<u8>) -> Next {
        let (mut name, args) = ([0; 8], command.args());
        let name = upper(command.name(), &mut name);
        match (name, args) {
            (_, []) => {}
            (b"PING", [_]) => reply::simple(out, "PONG"),
            (b"PING", [_, message]) => reply::bulk(out, message),
            (b"AUTH", [_, token]) => self.auth(batch, ANY_NAME, token, out, ok),
            (b"AUTH", [_, principal, token]) => self.auth(batch, principal, token, out, ok),
            (b"HELLO", [_, options @ ..]) => self.hello(batch, options, out),
            (b"CLIENT", [_, sub, _, ..]) if is(sub, "SETNAME") || is(sub, "SETINFO") => ok(self, out),
            (b"COMMAND", _) => reply::array(out, 0),
            (b"QUIT", _) => {
                ok(self, out);
                return Next::Close;
            }
            (b"PING" | b"AUTH" | b"CLIENT", _) => {
                reply::error(out, "ERR", &format!("wrong arguments of '{}'", shown(command.name())));
            }
            // A browser can send these to any port: what follows them is not a client's.
            (b"POST" | b"HOST:", _) => {
                reply::error(out, "ERR", "this is not HTTP: use the HTTP listener");
                return Next::Reject;
            }
            _ => reply::error(out, "ERR", &format!("unknown command '{}': {KNOWN}", shown(command.name()))),
        }
        Next::Read
    }

    /// Authenticates the connection. A failure leaves it as it was.
    fn auth(
        &mut self,
        batch: &mut Batch,
        name: &[u8],
        token: &[u8],
        out: &mut Vec<u8>,
        then: fn(&Self, &mut Vec<u8>),
    ) {
        match self.authenticated(name, token) {
            Ok(token) => {
                self.token = Some(token);
                batch.caller = self.identify();
                then(self, out);
            }
            Err(error) => self.unknown(error).write(out),
        }
    }

    /// Returns the token if it is that of a principal with this name.
    fn authenticated(&self, name: &[u8], token: &[u8]) -> Result<Secret, AuthError> {
        let token = Secret::of(token).ok_or(AuthError::WrongToken)?;
        let access = self.api.access.load();
        let caller = access.identify_connection(Some(&token), &self.peer)?;
        let is_named = name == ANY_NAME || name == caller.principal().name().as_bytes();
        // Without a list of principals a token is ignored, as in the other APIs.
        if is_named || !access.is_listed() { Ok(token) } else { Err(AuthError::WrongToken) }
    }

    /// Answers `HELLO [2 [AUTH principal token] [SETNAME name]]`.
    fn hello(&mut self, batch: &mut Batch, options: &[&[u8]], out: &mut Vec<u8>) {
        match options {
            [] | [b"2"] => greet(self, out),
            [b"2", auth, name, token, ..] if is(auth, "AUTH") => self.auth(batch, name, token, out, greet),
            [b"2", set, _] if is(set, "SETNAME") => greet(self, out),
            [b"2", ..] => reply::error(out, "ERR", "wrong arguments of 'HELLO'"),
            _ => reply::error(out, "NOPROTO", "unsupported protocol version: this server speaks RESP2"),
        }
    }
}

const KNOWN: &str = "expected CL.THROTTLE, THROTTLE, PING, AUTH, HELLO, CLIENT, COMMAND or QUIT";

fn ok(_: &RespSession, out: &mut Vec<u8>) {
    reply::simple(out, "OK");
}

/// Describes the server, as Redis does.
fn greet(session: &RespSession, out: &mut Vec<u8>) {
    let text = |out: &mut Vec<u8>, name: &str, value: &str| {
        reply::bulk(out, name.as_bytes());
        reply::bulk(out, value.as_bytes());
    };
    let number = |out: &mut Vec<u8>, name: &str, value: u64| {
        reply::bulk(out, name.as_bytes());
        reply::integer(out, crate::wire_format::signed(value));
    };
    reply::array(out, 14);
    text(out, "server", "throttlekit");
    text(out, "version", env!("CARGO_PKG_VERSION"));
    number(out, "proto", 2);
    number(out, "id", session.peer.connection);
    text(out, "mode", "standalone");
    text(out, "role", "master");
    reply::bulk(out, b"modules");
    reply::array(out, 0);
}

fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// Converts a name to upper case; a longer one is none that is known.
fn upper<'a>(name: &[u8], place: &'a mut [u8; 8]) -> &'a [u8] {
    let Some(place) = place.get_mut(..name.len()) else { return &[] };
    place.copy_from_slice(name);
    place.make_ascii_uppercase();
    place
}

/// Returns the beginning of a name, for an error.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().take(32).flat_map(char::escape_debug).collect()
}

//! Fair use of the server: the layer that gives each request its turn.

mod body;

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::request::Parts;
use http::{Extensions, Request, Response};
use hyper::body::{Bytes, Incoming};
use tonic::Status;
use tower::{Layer, Service};

use crate::access::{Caller, is_open};
use crate::limits::ENVOY_BYTES_MAX;
use crate::listen::{Counters, Peer, is_grpc, say};
use crate::share::{Shares, Turn, Who};
pub(crate) use body::HeldBytes;
pub(crate) use body::Whole;
use body::{Missing, Read, whole};

/// The service whose streaming requests need no turn.
const STREAMED: &str = "/grpc.reflection.";

/// Path of sessions, whose messages take their turns themselves.
pub(crate) const SESSION: &str = "/throttlekit.v1.RateLimiter/Session";

/// Paths of Envoy's requests.
const ENVOY_ASKS: [&str; 2] = [
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    "/envoy.service.auth.v3.Authorization/Check",
];

/// Reads each request whole and gives it its turn, or sheds it. Follows [`Identify`](crate::access::Identify), whose
/// callers it distinguishes. Health is served immediately.
#[derive(Clone)]
pub(crate) struct FairUse {
    shares: Arc<Shares>,
    counters: Arc<Counters>,
}

impl FairUse {
    /// Creates the layer of a listener with these counters.
    pub(crate) fn new(shares: Arc<Shares>, counters: Arc<Counters>) -> Self {
        Self { shares, counters }
    }

    /// Returns the request with its body, and its turn unless it needs none, if all of that is there at once; or the
    /// request as far as it has begun.
    fn begin_now(&self, request: Request<Incoming>) -> Result<Request<Whole>, Box<Begun>> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        if path.starts_with(STREAMED) || path == SESSION {
            return Ok(Request::from_parts(parts, Whole::Comes { body }));
        }
        let who = who(&parts.extensions);
        if let Some(account) = parts.extensions.get::<Peer>().and_then(|peer| peer.account.as_ref()) {
            account.belongs_to(&who);
        }
        let asks_for_envoy = ENVOY_ASKS.contains(&path);
        let bytes_max = if asks_for_envoy { ENVOY_BYTES_MAX } else { self.shares.limits().message_bytes_max };
        let body = Read::begin(body, bytes_max).map(|read| read.done(bytes_max));
        let begun =
            |parts, body| Box::new(Begun { parts, who: who.clone(), body, asks_for_envoy, bytes_max });
        match body {
            Ok(Ok(body)) if is_open(path) => Ok(Request::from_parts(parts, body)),
            Ok(Ok(body)) => match self.shares.turn_now(&who) {
                Some(turn) => Ok(with_turn(parts, body, turn)),
                None => Err(begun(parts, Ok(BodyBegun::Whole(body)))),
            },
            Ok(Err(read)) => Err(begun(parts, Ok(BodyBegun::Part(read)))),
            Err(missing) => Err(begun(parts, Err(missing))),
        }
    }

    /// Returns the request that has begun, or the status for its client.
    async fn begin(&self, begun: Box<Begun>) -> Result<Request<Whole>, Status> {
        let Begun { parts, who, body, asks_for_envoy, bytes_max } = *begun;
        let body = match body {
            Ok(BodyBegun::Whole(body)) => Ok(body),
            Ok(BodyBegun::Part(read)) => whole(&self.shares, &who, read, bytes_max).await,
            Err(missing) => Err(missing),
        };
        let body = match body {
            Ok(body) => body,
            Err(why) => {
                let status = self.missing(why);
                return if asks_for_envoy {
                    Ok(crowded(parts, Whole::of(EMPTY_MESSAGE)))
                } else {
                    Err(status)
                };
            }
        };
        if is_open(parts.uri.path()) {
            return Ok(Request::from_parts(parts, body));
        }
        let Some(turn) = self.shares.turn(who).await else {
            self.counters.count_shed();
            return if asks_for_envoy { Ok(crowded(parts, body)) } else { Err(Status::unavailable(CROWDED)) };
        };
        Ok(with_turn(parts, body, turn))
    }

    fn missing(&self, why: Missing) -> Status {
        match why {
            Missing::Late => {
                self.counters.count_late();
                Status::deadline_exceeded("request body timed out: send the whole body at once")
            }
            Missing::Crowded => {
                self.counters.count_shed();
                Status::unavailable(CROWDED)
            }
            Missing::Broken => Status::cancelled("request body incomplete"),
        }
    }
}

/// A request that waits for its body, or for its turn.
struct Begun {
    parts: Parts,
    who: Who,
    body: Result<BodyBegun, Missing>,
    asks_for_envoy: bool,
    bytes_max: usize,
}

enum BodyBegun {
    Part(Read),
    Whole(Whole),
}

fn with_turn(mut parts: Parts, body: Whole, turn: Turn) -> Request<Whole> {
    if let Some(caller) = parts.extensions.get_mut::<Caller>() {
        caller.takes(turn);
    }
    Request::from_parts(parts, body)
}

/// Returns the group that a request with these extensions counts for.
pub(crate) fn who(extensions: &Extensions) -> Who {
    let unseen = || Peer::at((Ipv4Addr::UNSPECIFIED, 0).into()).who();
    let somebody = extensions.get::<Peer>().map_or_else(unseen, Peer::who);
    match extensions.get::<Caller>() {
        Some(caller) => named(somebody, caller),
        None => somebody,
    }
}

/// Returns the group that requests of this caller count for: that of its name, if it has one.
pub(crate) fn named(somebody: Who, caller: &Caller) -> Who {
    match caller.principal().name() {
        "" => somebody,
        _ => somebody.named(caller.principal().clone(), caller.weight()),
    }
}

/// Converts a request of Envoy to one that gets a response without a decision. Envoy allows a request on an error, and
/// its clients could cause one by sending many requests: so it gets a response.
fn crowded(mut parts: Parts, body: Whole) -> Request<Whole> {
    if let Some(caller) = parts.extensions.get_mut::<Caller>() {
        caller.gets_no_turn();
    }
    Request::from_parts(parts, body)
}

/// The empty message, as gRPC frames it.
const EMPTY_MESSAGE: Bytes = Bytes::from_static(&[0; 5]);

pub(crate) const CROWDED: &str = "too many requests of this caller in flight: retry later";

impl<S> Layer<S> for FairUse {
    type Service = Fair<S>;

    fn layer(&self, inner: S) -> Fair<S> {
        Fair { uses: self.clone(), inner }
    }
}

/// A service whose callers take turns.
#[derive(Clone)]
pub(crate) struct Fair<S> {
    uses: FairUse,
    inner: S,
}

impl<S, R> Service<Request<Incoming>> for Fair<S>
where
    S: Service<Request<Whole>, Response = Response<R>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    R: Default + Send,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = Either<S::Future, Waits<R>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let is_grpc = is_grpc(&request);
        let begun = match self.uses.begin_now(request) {
            Ok(request) => return Either::Left(self.inner.call(request)),
            Err(begun) => begun,
        };
        // Calls the service that is ready, and keeps its clone.
        let clone = self.inner.clone();
        let (mut inner, uses) = (std::mem::replace(&mut self.inner, clone), self.uses.clone());
        Either::Right(Box::pin(async move {
            match uses.begin(begun).await {
                Ok(request) => inner.call(request).await,
                Err(status) => Ok(say(is_grpc, status)),
            }
        }))
    }
}

/// A request that waits.
type Waits<R> = Pin<Box<dyn Future<Output = Result<Response<R>, Infallible>> + Send>>;

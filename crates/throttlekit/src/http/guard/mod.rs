//! A tower layer that lets at most so many requests be served at a time.
//!
//! ```
//! use std::sync::Arc;
//! use http::{Request, Response, StatusCode};
//! use throttlekit::Guard;
//! use throttlekit::http::guard::GuardLayer;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! let guard = Arc::new(Guard::fixed(1));
//! let layer = GuardLayer::new(Arc::clone(&guard));
//! # let serve = async |_: Request<()>| Ok::<_, std::convert::Infallible>(Response::new(String::from("done")));
//! let service = layer.layer(service_fn(serve));
//!
//! # fn at_once<F: Future>(f: F) -> F::Output {
//! #     let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
//! #     match std::pin::pin!(f).poll(&mut cx) { std::task::Poll::Ready(out) => out, _ => panic!() }
//! # }
//! # at_once(async {
//! let first = service.clone().oneshot(Request::new(())).await?; // its body is still to be read
//! assert_eq!(guard.in_flight(), 1);
//! let second = service.clone().oneshot(Request::new(())).await?;
//! assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
//! drop(first);
//! assert_eq!(guard.in_flight(), 0);
//! # Ok::<(), std::convert::Infallible>(())
//! # }).unwrap();
//! ```
//!
//! # What happens to a request
//!
//! 1. [`GuardLayer::exempt`] requests pass untouched.
//! 2. A slot of the request's [class](GuardLayer::class) is taken. Where there is none, the request
//!    [waits](GuardLayer::wait) if it may, and is answered 503 with a problem document otherwise, or
//!    `RESOURCE_EXHAUSTED` for gRPC.
//! 3. The service is called. The slot is held until the response's body has been sent or given up.
//! 4. How long the service took **to its headers** is what the guard learns from. How long the body takes is as much
//!    the client's doing, or, where tokens are streamed, a matter of how many there are.
//!
//! # How it ended
//!
//! By [`GuardLayer::ending`], from the status. Unless told otherwise: 429, 503 and 504 are drops, for the backend says
//! that it is full. 2xx and 3xx are successes. All else is ignored, since whoever answers with an error may do so much
//! faster or slower than work takes. gRPC says it in `grpc-status`, in headers or trailers: `DEADLINE_EXCEEDED`,
//! `RESOURCE_EXHAUSTED` and `UNAVAILABLE` are drops. A service that fails without a response is a drop. A client that
//! goes away is ignored, and so is a body that the server never reads, as of a `HEAD`; a panic is a drop.

mod body;
mod future;
mod layer;
mod service;
#[cfg(test)]
mod tests;

pub use body::GuardBody;
pub use future::GuardFuture;
pub use layer::GuardLayer;
pub use service::GuardService;

//! A tower layer that limits the number of concurrent requests.
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
//! # Request flow
//!
//! 1. [`GuardLayer::exempt`] requests pass untouched.
//! 2. A slot of the request's [priority](GuardLayer::priority) is taken. If there is none, the request
//!    [waits](GuardLayer::wait) if it may, and otherwise gets 503 with a problem document, or `RESOURCE_EXHAUSTED` for
//!    gRPC.
//! 3. The service is called. The slot is held until the response's body has been sent or dropped.
//! 4. The guard learns from the service's time **to its headers**. The time of the body depends as much on the client
//!    or, for streamed tokens, on how many there are.
//!
//! # Outcomes
//!
//! Determined by [`GuardLayer::ending`], from the status. Default: 429, 503 and 504 are drops, since the backend
//! reports that it is full. 2xx and 3xx are successes. All else is ignored, since an error may be much faster or slower
//! than work takes. gRPC reports the outcome in `grpc-status`, in headers or trailers: `DEADLINE_EXCEEDED`,
//! `RESOURCE_EXHAUSTED` and `UNAVAILABLE` are drops. A service that fails without a response is a drop. A client that
//! disconnects is ignored, and so is a body that the server never reads, as of a `HEAD`; a panic is a drop.

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

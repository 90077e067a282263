//! A tower layer that checks requests before they reach the service, and reports the limit to clients.
//!
//! It works in axum, tonic, hyper and any other tower service over `http` types. Cloned services share the limits.
//!
//! ```
//! use http::{Request, Response, StatusCode};
//! use std::{convert::Infallible, net::SocketAddr};
//! use throttlekit::{Limiter, Rate};
//! use throttlekit::http::{AdmitLayer, ClientIp, Plan};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! let plan = Plan::new("api", Limiter::new(Rate::per_minute(60).burst(1))?)?;
//! let layer = AdmitLayer::new(plan, ClientIp::peer());
//! let hello = layer.layer(service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new()))));
//!
//! let request = || Request::builder().extension(SocketAddr::from(([192, 0, 2, 7], 443))).body(()).unwrap();
//! # fn at_once<F: Future>(f: F) -> F::Output {
//! #     let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
//! #     match std::pin::pin!(f).poll(&mut cx) { std::task::Poll::Ready(out) => out, _ => panic!() }
//! # }
//! # at_once(async {
//! let first = hello.clone().oneshot(request()).await?;
//! assert_eq!(first.headers()["ratelimit"], r#""api";r=0;t=1"#);
//!
//! let second = hello.clone().oneshot(request()).await?;
//! assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert_eq!(second.headers()["retry-after"], "1");
//! # Ok::<(), Infallible>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Request flow
//!
//! 1. [`AdmitLayer::exempt`] requests pass untouched.
//! 2. The key is found ([`KeyExtractor`]) and with it the [`Plan`], that is, the limit. Without a key, [`OnMissing`]
//!    applies.
//! 3. The limit is checked ([`Admit`]). If it cannot decide, [`OnFailure`] applies.
//! 4. Denied: 429 with a problem document, or `RESOURCE_EXHAUSTED` for gRPC. A denial costs nothing.
//! 5. Allowed: the service is called, after the delay if the limit shapes ([`AdmitLayer::delay`]).
//! 6. The response gets its headers ([`HeaderStyle`]).
//!
//! The [`Decision`](crate::Decision) is in the extensions of the request, for the service, and of the response, for
//! outer layers.
//!
//! # The body
//!
//! A refusal must have a body in whatever type the service uses, and there is no way to make an arbitrary one:
//! axum's comes from a string, tonic's does not, hyper's `Incoming` only from a socket. So the response body is
//! [`AdmitBody`], either the service's or a string, with the service's own data and error types. Its only requirement
//! is that the data can be made from a `String`, as `Bytes` can. axum and tonic box it as they do any body.
//!
//! # Several limits
//!
//! Layers stack. The outer one checks first, and its charge stays if the inner one then denies. The standard headers
//! list both limits, the older ones show the tighter.

mod admit;
mod body;
mod choice;
mod client_address;
mod forwarded;
mod future;
mod grpc;
pub mod guard;
mod headers;
mod key;
mod layer;
mod plan;
mod refusal;
mod secret_header;
mod service;
mod stamp;
#[cfg(test)]
mod tests;

pub use admit::{Admit, AdmitError};
pub use body::AdmitBody;
pub use choice::{ChooseOnFailure, OnFailure, OnMissing};
pub use client_address::ClientIp;
pub use future::AdmitFuture;
pub use headers::HeaderStyle;
pub use ipnet::IpNet;
pub use key::{Header, Key, KeyExtractor, Missing, Or, SharedKey};
pub use layer::AdmitLayer;
pub use plan::{Caller, NameError, Plan};
pub use secret_header::SecretHeader;
pub use service::AdmitService;

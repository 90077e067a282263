//! A tower layer that checks requests before they reach the service, and reports the limit to clients.
//!
//! It works in axum, tonic, hyper and any other tower service over `http` types, with anything that is
//! [`Admit`](crate::Admit). Cloned services share the limits.
//!
//! ```
//! use http::{Request, Response, StatusCode};
//! use std::{convert::Infallible, net::SocketAddr};
//! use throttlekit::{Limiter, Rate};
//! use throttlekit::http::{AdmissionLayer, client_ip};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! let limiter = Limiter::new(Rate::per_minute(60).burst(1))?;
//! let layer = AdmissionLayer::builder(limiter, client_ip()).name("api").build()?;
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
//! 1. [`exempt`](AdmissionLayerBuilder::exempt) requests pass untouched.
//! 2. The key is extracted ([`KeyExtractor`]). Without a key,
//!    [`on_missing_key`](AdmissionLayerBuilder::on_missing_key) applies.
//! 3. The limits decide. If they cannot, [`on_error`](AdmissionLayerBuilder::on_error) applies.
//! 4. Denied: 429 with a problem document, or `RESOURCE_EXHAUSTED` for gRPC. If no slot is free, 503 instead of 429,
//!    after the [wait](AdmissionLayerBuilder::wait) if there is one. A denial costs nothing.
//! 5. Allowed: the service is called, after the [delay](AdmissionLayerBuilder::delay) if the limit shapes.
//! 6. The response gets its headers ([`HeaderStyle`]).
//! 7. The permit is held until the response's body has been sent or dropped. Then the cost is
//!    [settled](AdmissionLayerBuilder::settle) and the [outcome](AdmissionLayerBuilder::ending) reported.
//!
//! The [`Decision`](crate::Decision) is in the extensions of the request, for the service, and of the response, for
//! outer layers. What passed without a decision carries a [`StoreError`](crate::admit::StoreError) instead.
//!
//! # Outcomes
//!
//! An adaptive [`Guard`](crate::Guard) learns from the service's time **to its headers**: the time of the body depends
//! as much on the client or, for streamed tokens, on how many there are. 429, 503 and 504 are drops, since the backend
//! reports that it is full; the slot is released at once. 2xx and 3xx are successes. All else is ignored, since an
//! error may be much faster or slower than work takes. gRPC reports the outcome in `grpc-status`, in headers or
//! trailers. A service that fails without a response is a drop, and so is a panic. A client that disconnects is
//! ignored, and so is a body that the server never reads, as of a `HEAD`.
//!
//! # The body
//!
//! A refusal must have a body in whatever type the service uses, and there is no way to make an arbitrary one:
//! axum's comes from a string, tonic's does not, hyper's `Incoming` only from a socket. So the response body is
//! [`AdmissionBody`], either the service's or a string, with the service's own data and error types. Its only
//! requirement is that the data can be made from a `String`, as `Bytes` can. axum and tonic box it as they do any body.
//!
//! # Several limits
//!
//! Layers stack. The outer one checks first, and its charge stays if the inner one then denies; a
//! [`Policy`](crate::Policy) in one layer charges all or none. The standard headers list all limits, the older ones
//! show the tightest.

mod body;
mod builder;
mod client_ip;
mod exempt;
mod fallback;
mod forwarded;
mod future;
mod grpc;
mod header_style;
mod key;
mod layer;
mod outcome;
#[cfg(test)]
mod permit_tests;
mod plan;
mod refusal;
mod secret_header;
mod service;
mod settings;
mod stamp;
#[cfg(test)]
mod tests;

pub use body::AdmissionBody;
pub use builder::AdmissionLayerBuilder;
pub use client_ip::{ClientIp, client_ip};
pub use exempt::preflight_or_health;
pub use fallback::Fallback;
pub use future::AdmissionFuture;
pub use header_style::HeaderStyle;
pub use key::{Fixed, Header, Key, KeyExtractor, MissingKey, Or, fixed, header};
pub use layer::AdmissionLayer;
#[cfg(feature = "outbound")]
pub(crate) use outcome::{GRPC_STATUS, ending_of};
pub use plan::Plan;
pub use secret_header::{SecretHeader, secret_header};
pub use service::AdmissionService;

//! Telemetry of decisions: counters, traces, top keys. It never changes, delays or breaks a decision.
//!
//! A [`Telemetry`] is an [`Observer`](throttlekit::observe::Observer): a policy passes it each decision, once.
//!
//! * [`Counts`] are incremented immediately, on the calling thread: always exact, and they only grow.
//! * Everything else runs on a separate thread, behind a bounded queue. [`Subscriber`]s receive each event there; one
//!   that blocks or panics does not affect callers. An event that finds the queue full is lost, and counted.
//! * [`Telemetry::top`] returns the busiest keys, with the error bounds of their counts, in fixed memory.
//!
//! ```
//! use std::sync::{Arc, mpsc};
//! use std::time::Duration;
//!
//! use throttlekit::observe::{Event, Observer};
//! use throttlekit::rate::ALLOW_FULL;
//! use throttlekit::{Axis, Decision, Guarantee};
//! use throttlekit_telemetry::Telemetry;
//!
//! let (told, heard) = mpsc::channel();
//! let telemetry = Telemetry::builder()
//!     .subscribe(move |event: &Event<'_>| told.send(event.decision.allowed).unwrap_or_default())
//!     .start()?;
//!
//! // What a policy does after each decision.
//! let denied = Event {
//!     policy: "chat",
//!     key: b"alice",
//!     cost: 1,
//!     decision: Decision { allowed: false, remaining: 0, ..ALLOW_FULL },
//!     denied_by: Some(Axis::Rate),
//!     limit_name: None,
//!     guarantee: Guarantee::Exact,
//! };
//! telemetry.observe(&denied);
//!
//! let chat = &telemetry.counts().policies()[0];
//! assert_eq!((chat.policy(), chat.denied_by(Axis::Rate)), ("chat", 1));
//!
//! assert!(telemetry.flush(Duration::from_secs(5)));
//! assert_eq!(heard.try_recv(), Ok(false));
//! assert_eq!(telemetry.top().denied.keys[0].key, b"alice");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Features
//!
//! Each off by default.
//!
//! * `prometheus`: the counters as a page that Prometheus scrapes.
//! * `outbound`: the calls of an `Outbound` on that page; enables `prometheus`.
//! * `opentelemetry`: the counters as metrics, and the attributes of a decision.
//! * `tracing`: an event for each decision, and the attributes of a decision on a span.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attributes;
mod counts;
mod histogram;
#[cfg(feature = "opentelemetry")]
pub mod opentelemetry;
#[cfg(feature = "prometheus")]
pub mod prometheus;
mod queue;
mod queued_event;
mod subscriber;
mod telemetry;
#[cfg(test)]
mod test_events;
mod top_keys;
#[cfg(feature = "tracing")]
pub mod tracing;

pub use attributes::Attributes;
pub use counts::{Counts, GUARANTEES, OTHER, PolicyCounts};
pub use histogram::Histogram;
pub use queued_event::KEY_BYTES;
pub use subscriber::Subscriber;
pub use telemetry::{Telemetry, TelemetryBuilder};
pub use top_keys::{Top, TopKey, TopKeys};

/// The README's code, run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

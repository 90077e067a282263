//! The output to `tracing`.
#![cfg(feature = "tracing")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::event;
use throttlekit::admit::LimitName;
use throttlekit::observe::{Event, Observer};
use throttlekit::{Axis, Guarantee};
use throttlekit_telemetry::Telemetry;
use throttlekit_telemetry::tracing::{Decisions, TARGET, record};
use tracing::dispatcher::{Dispatch, with_default};
use tracing::field::{Empty, Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, info_span};

type Fields = BTreeMap<&'static str, String>;

/// Records events and spans.
#[derive(Clone, Default)]
struct Listener {
    events: Arc<Mutex<Vec<(Level, String, Fields)>>>,
    recorded: Arc<Mutex<Fields>>,
}

struct Visitor<'a>(&'a mut Fields);

impl Visit for Visitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl tracing::Subscriber for Listener {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Visitor(&mut self.recorded.lock().unwrap()));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Visitor(&mut fields));
        let told = (*event.metadata().level(), event.metadata().target().to_owned(), fields);
        self.events.lock().unwrap().push(told);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn told(decisions: Decisions, events: &[Event<'_>]) -> Vec<(Level, String, Fields)> {
    let listener = Listener::default();
    let decisions = decisions.to(Dispatch::new(listener.clone()));
    let telemetry = Telemetry::builder().subscribe(decisions).start().unwrap();
    events.iter().for_each(|event| telemetry.observe(event));
    assert!(telemetry.flush(Duration::from_secs(20)));
    drop(telemetry);
    listener.events.lock().unwrap().clone()
}

fn fields<const N: usize>(fields: [(&'static str, &str); N]) -> Fields {
    fields.map(|(name, value)| (name, value.to_owned())).into()
}

#[test]
fn each_decision_is_one_event_with_its_fields() {
    let denied = event("chat", false, Some(Axis::Rate));
    let told = told(Decisions::new(), &[event("chat", true, None), denied]);
    let allowed = fields([
        ("message", "allowed"),
        ("policy", "chat"),
        ("cost", "3"),
        ("policy_denied", "false"),
        ("throttlekit.allowed", "true"),
        ("throttlekit.limit", "10"),
        ("throttlekit.remaining", "7"),
        ("throttlekit.retry_after_ms", "0"),
        ("throttlekit.guarantee", "exact"),
    ]);
    let mut denied = allowed.clone();
    denied.extend(fields([
        ("message", "denied"),
        ("throttlekit.allowed", "false"),
        ("throttlekit.binding_axis", "rate"),
        ("throttlekit.retry_after_ms", "1501"),
    ]));
    let expected = [(Level::DEBUG, TARGET.to_owned(), allowed), (Level::INFO, TARGET.to_owned(), denied)];
    assert_eq!(told, expected);
}

#[test]
fn decisions_during_an_outage_are_warnings() {
    let open = Event { guarantee: Guarantee::Open, ..event("chat", true, None) };
    let closed = Event { guarantee: Guarantee::Closed, ..event("chat", false, Some(Axis::Rate)) };
    let local = Event { guarantee: Guarantee::Local, ..event("chat", true, None) };
    let levels: Vec<Level> =
        told(Decisions::new(), &[open, closed, local]).into_iter().map(|(level, ..)| level).collect();
    assert_eq!(levels, [Level::WARN, Level::WARN, Level::DEBUG]);
}

#[test]
fn keys_are_recorded_only_on_request() {
    let odd = Event { key: b"al\xFFce", ..event("chat", true, None) };
    assert!(!told(Decisions::new(), &[odd])[0].2.contains_key("key"));
    assert_eq!(told(Decisions::new().with_keys(), &[odd])[0].2["key"], "al\u{FFFD}ce");
}

#[test]
fn a_span_records_only_its_declared_fields() {
    let listener = Listener::default();
    with_default(&Dispatch::new(listener.clone()), || {
        let span = info_span!(
            "all",
            throttlekit.allowed = Empty,
            throttlekit.binding_axis = Empty,
            throttlekit.limit_name = Empty,
        );
        let limit_name = LimitName::new("team");
        record(&span, &Event { limit_name, ..event("chat", false, Some(Axis::Cost)) });
    });
    let recorded = listener.recorded.lock().unwrap();
    let declared = [
        ("throttlekit.allowed", "false"),
        ("throttlekit.binding_axis", "cost"),
        ("throttlekit.limit_name", "team"),
    ];
    assert_eq!(*recorded, fields(declared));
}

#[test]
fn a_span_with_all_fields_records_all() {
    let listener = Listener::default();
    with_default(&Dispatch::new(listener.clone()), || {
        let span = info_span!(
            "all",
            throttlekit.allowed = Empty,
            throttlekit.binding_axis = Empty,
            throttlekit.limit = Empty,
            throttlekit.remaining = Empty,
            throttlekit.retry_after_ms = Empty,
            throttlekit.guarantee = Empty,
        );
        record(&span, &event("chat", true, None));
    });
    let recorded = listener.recorded.lock().unwrap();
    let expected = fields([
        ("throttlekit.allowed", "true"),
        ("throttlekit.limit", "10"),
        ("throttlekit.remaining", "7"),
        ("throttlekit.retry_after_ms", "0"),
        ("throttlekit.guarantee", "exact"),
    ]);
    assert_eq!(*recorded, expected);
}

//! Tests of the audit log.

use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tracing::subscriber::DefaultGuard;

use super::*;
use crate::engine::{Backend, EngineOptions};

const POLICIES: &str = "version: 1
policies: {api: {rate: {algorithm: fixed_window, limit: 5, per: 1h}}}
";

/// Lines in memory.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log of this thread while it exists.
struct Log {
    lines: Lines,
    _guard: DefaultGuard,
}

impl Log {
    fn start() -> Self {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().json().flatten_event(true);
        let log = log.with_writer(move || writer.clone()).finish();
        Self { lines, _guard: tracing::subscriber::set_default(log) }
    }

    /// Removes and returns the events of the audit log.
    fn take(&self) -> Vec<Value> {
        let lines = std::mem::take(&mut *self.lines.0.lock().unwrap());
        let lines = serde_json::Deserializer::from_slice(&lines).into_iter::<Value>();
        lines.map(Result::unwrap).filter(|event| event["target"] == AUDIT).collect()
    }

    /// Removes the only event of the audit log, and returns its message.
    fn message(&self) -> String {
        let events = self.take();
        let [event] = &events[..] else { panic!("one event was expected: {events:?}") };
        event["message"].as_str().unwrap().to_owned()
    }
}

fn operator() -> Operator {
    let (file, _) = crate::policy::load(POLICIES).unwrap();
    Operator::new(Engine::start(EngineOptions::over(Backend::memory()), file).unwrap())
}

fn filter() -> Option<v1::LeaseFilter> {
    Some(v1::LeaseFilter { policy: "api".into(), key: "ada".into(), ..Default::default() })
}

fn gold() -> v1::SetPlanRequest {
    let rates = vec![v1::RateChange { limit: 9, ..Default::default() }];
    let limits = Some(v1::LimitChanges { rates, ..Default::default() });
    let plan = v1::Plan { policy: "api".into(), name: "gold".into(), limits, ..Default::default() };
    v1::SetPlanRequest { plan: Some(plan) }
}

fn golden_ada() -> v1::SetOverrideRequest {
    let one =
        v1::Override { policy: "api".into(), key: "ada".into(), plan: "gold".into(), ..Default::default() };
    v1::SetOverrideRequest { r#override: Some(one), for_ms: 0 }
}

#[tokio::test]
async fn each_action_is_one_event_of_the_audit_log() {
    let (operator, caller, log) = (operator(), &Caller::anyone(), Log::start());
    let (policy, key, keys) = (|| "api".to_owned(), || "ada".to_owned(), Vec::new);
    operator.reset(caller, v1::ResetRequest { policy: policy(), key: key(), keys: keys() }).await.unwrap();
    assert_eq!(log.message(), "key reset");
    let grant = v1::GrantRequest { policy: policy(), key: key(), keys: keys(), units: 1, id: "a".into() };
    operator.grant(caller, grant).await.unwrap();
    assert_eq!(log.message(), "credit granted");
    operator.set_plan(caller, gold()).await.unwrap();
    assert_eq!(log.message(), "plan set");
    operator.set_override(caller, golden_ada()).await.unwrap();
    assert_eq!(log.message(), "override set");
    let list = v1::ListOverridesRequest { policy: policy(), prefix: "a".into(), ..Default::default() };
    operator.list_overrides(caller, &list).unwrap();
    let events = log.take();
    assert_eq!(events.len(), 1);
    let shown = ["message", "policy", "prefix", "overrides"].map(|field| &events[0][field]);
    assert_eq!(shown, [&json!("overrides listed"), &json!("api"), &json!("a"), &json!(1)]);
    operator.list_plans(caller, &v1::ListPlansRequest { policy: policy() }).unwrap();
    assert_eq!(log.message(), "plans listed");
    let remove = v1::RemoveOverrideRequest { policy: policy(), key: key() };
    operator.remove_override(caller, remove).await.unwrap();
    assert_eq!(log.message(), "override removed");
    let remove = v1::RemovePlanRequest { policy: policy(), name: "gold".into() };
    operator.remove_plan(caller, remove).await.unwrap();
    assert_eq!(log.message(), "plan removed");
    let list = v1::ListLeasesRequest { filter: filter(), ..Default::default() };
    operator.list_leases(caller, list).await.unwrap();
    assert_eq!(log.message(), "leases listed");
    operator.release_leases(caller, v1::ReleaseLeasesRequest { filter: filter() }).await.unwrap();
    assert_eq!(log.message(), "leases released");
}

#[tokio::test]
async fn each_action_that_fails_is_one_event_with_its_error() {
    let (operator, caller, log) = (operator(), &Caller::anyone(), Log::start());
    let failed = |action: &str| {
        let events = log.take();
        let [event] = &events[..] else { panic!("{action}: one event was expected: {events:?}") };
        assert_eq!((&event["message"], &event["action"]), (&json!("action failed"), &json!(action)));
        assert!(event["error"].as_str().is_some_and(|error| !error.is_empty()), "{event}");
        event.clone()
    };
    let (policy, key) = (|| "none".to_owned(), || "ada".to_owned());
    let reset = v1::ResetRequest { policy: policy(), key: key(), keys: vec!["x".into()] };
    operator.reset(caller, reset).await.unwrap_err();
    let event = failed("reset");
    let shown = ["policy", "key", "keys"].map(|field| &event[field]);
    assert_eq!(shown, [&json!("none"), &json!("ada"), &json!("[\"x\"]")]);
    operator.grant(caller, v1::GrantRequest { policy: policy(), ..Default::default() }).await.unwrap_err();
    failed("grant");
    operator.set_override(caller, golden_ada()).await.unwrap_err();
    let event = failed("set_override");
    let shown = ["policy", "key", "plan"].map(|field| &event[field]);
    assert_eq!(shown, [&json!("api"), &json!("ada"), &json!("gold")]);
    let list = v1::ListOverridesRequest { policy: policy(), page_size: -1, ..Default::default() };
    operator.list_overrides(caller, &list).unwrap_err();
    failed("list_overrides");
    operator.set_plan(caller, v1::SetPlanRequest { plan: None }).await.unwrap_err();
    failed("set_plan");
    operator.set_plan(caller, gold()).await.unwrap();
    operator.set_override(caller, golden_ada()).await.unwrap();
    assert_eq!(log.take().len(), 2);
    let remove = v1::RemovePlanRequest { policy: "api".into(), name: "gold".into() };
    operator.remove_plan(caller, remove).await.unwrap_err();
    failed("remove_plan");
    operator.list_leases(caller, v1::ListLeasesRequest::default()).await.unwrap_err();
    failed("list_leases");
    operator.release_leases(caller, v1::ReleaseLeasesRequest::default()).await.unwrap_err();
    failed("release_leases");
    // This engine runs without a server.
    operator.drain(caller).unwrap_err();
    failed("drain");
    operator.reload(caller).await.unwrap_err();
    failed("reload");
    operator.set_log_filter(caller, &v1::SetLogFilterRequest::default()).unwrap_err();
    failed("set_log_filter");
    operator.configuration(caller).unwrap_err();
    failed("get_config");
}

#[tokio::test]
async fn a_canceled_action_is_an_event_and_a_refused_caller_is_none() {
    let (operator, caller, log) = (operator(), &Caller::anyone(), Log::start());
    let attempt = Attempt::of(caller, Action::Reset, Subject::key("api", "ada"));
    drop(attempt.perform(pending::<Result<(), Refusal>>()));
    let events = log.take();
    assert_eq!(events.len(), 1);
    let shown = ["message", "action", "policy", "key"].map(|field| &events[0][field]);
    assert_eq!(shown, [&json!("action canceled"), &json!("reset"), &json!("api"), &json!("ada")]);
    let nobody = &Caller::nobody();
    operator.release_leases(nobody, v1::ReleaseLeasesRequest::default()).await.unwrap_err();
    operator.drain(nobody).unwrap_err();
    operator.list_plans(nobody, &v1::ListPlansRequest::default()).unwrap_err();
    assert_eq!(log.take(), Vec::<Value>::new());
}

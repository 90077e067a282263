//! The page of metrics.

use throttlekit_server::internals::telemetry::{TelemetryOptions, metrics};

use crate::telemetry::strict::Page;
use crate::telemetry::{load, server_stats, started};

#[tokio::test]
async fn every_decision_is_counted_once_under_how_it_ended() {
    let (telemetry, engine, reloader) = started(TelemetryOptions::default());
    load(&telemetry, &engine).await;
    let page = Page::read(&metrics(&telemetry, &engine, &reloader.status(), server_stats()));
    for (policy, allowed, denied, shadow) in
        [("api", 3.0, 2.0, 0.0), ("tried", 5.0, 0.0, 4.0), ("slots", 2.0, 1.0, 0.0)]
    {
        let of = |name: &str| page.at(&format!("throttlekit_{name}{{policy=\"{policy}\"}}"));
        assert_eq!((of("allowed_total"), of("denied_total")), (allowed, denied), "{policy}");
        assert_eq!(of("shadow_denied_total"), shadow, "{policy}");
        assert_eq!(of("decision_seconds_count"), allowed + denied, "{policy}");
        assert!(of("decision_seconds_sum") > 0.0, "{policy}");
        let all = format!("throttlekit_decision_seconds_bucket{{le=\"+Inf\",policy=\"{policy}\"}}");
        assert_eq!(page.at(&all), allowed + denied, "{policy}");
        let exact = format!("throttlekit_guarantee_total{{policy=\"{policy}\",guarantee=\"exact\"}}");
        assert_eq!(page.at(&exact), allowed + denied);
        let in_force = format!("throttlekit_guarantee_in_force{{policy=\"{policy}\",guarantee=\"exact\"}}");
        assert_eq!(page.at(&in_force), 1.0);
    }
    assert_eq!(page.at("throttlekit_denied_by_axis_total{policy=\"api\",axis=\"rate\"}"), 2.0);
    assert_eq!(page.at("throttlekit_denied_by_axis_total{policy=\"slots\",axis=\"concurrency\"}"), 1.0);
    assert_eq!(page.at("throttlekit_engine_calls_total{policy=\"api\"}"), 5.0);
    assert_eq!(page.at("throttlekit_engine_calls_total{policy=\"quiet\"}"), 0.0);
    assert_eq!(page.at("throttlekit_guard_in_flight{policy=\"slots\"}"), 2.0);
    assert_eq!(page.at("throttlekit_guard_limit{policy=\"slots\"}"), 2.0);
    assert_eq!(page.at("throttlekit_leases_held"), 2.0);
    assert_eq!(page.at("throttlekit_leases_max"), 100_000.0);
    assert_eq!(page.at("throttlekit_leases_caller_held"), 2.0);
    assert_eq!(page.at("throttlekit_leases_caller_max"), 100_000.0);
    assert_eq!(page.at("throttlekit_store_up{store=\"memory\"}"), 1.0);
    assert_eq!(page.at("throttlekit_events_lost_total"), 0.0);
}

#[tokio::test]
async fn counters_only_grow_and_no_key_is_on_the_page() {
    let (telemetry, engine, reloader) = started(TelemetryOptions::default());
    load(&telemetry, &engine).await;
    let before = Page::read(&metrics(&telemetry, &engine, &reloader.status(), server_stats()));
    load(&telemetry, &engine).await;
    let text = metrics(&telemetry, &engine, &reloader.status(), server_stats());
    assert!(!text.contains("bob") && !text.contains('\x1b') && !text.contains("1b}ice"), "{text}");
    let after = Page::read(&text);
    for (series, count) in &before.samples {
        let name = series.split('{').next().unwrap_or(series);
        if name.ends_with("_total") || name.ends_with("_bucket") || name.ends_with("_count") {
            assert!(after.at(series) >= *count, "{series}");
        }
    }
    assert_eq!(after.at("throttlekit_denied_total{policy=\"api\"}"), 7.0);
}

#[tokio::test]
async fn policies_beyond_the_cap_share_one_label() {
    let (telemetry, engine, reloader) =
        started(TelemetryOptions { policies_max: 1, ..TelemetryOptions::default() });
    load(&telemetry, &engine).await;
    let page = Page::read(&metrics(&telemetry, &engine, &reloader.status(), server_stats()));
    assert_eq!(page.at("throttlekit_allowed_total{policy=\"api\"}"), 3.0);
    assert_eq!(page.at("throttlekit_allowed_total{policy=\"other\"}"), 7.0);
    assert_eq!(page.at("throttlekit_engine_calls_total{policy=\"api\"}"), 5.0);
    let labels = page.samples.keys().filter(|series| series.starts_with("throttlekit_engine_calls_total"));
    assert_eq!(labels.count(), 2);
}

#[tokio::test]
async fn files_taken_up_and_refused_are_counted_and_the_one_in_force_is_named() {
    let (telemetry, engine, reloader) = started(TelemetryOptions::default());
    std::fs::write(reloader.path(), "version: 1\npolicies: nonsense").unwrap();
    // A file is judged when it was read twice alike.
    assert!(reloader.look(&engine).await.is_none());
    reloader.look(&engine).await.unwrap().unwrap_err();
    std::fs::write(reloader.path(), "version: 1\npolicies: {}").unwrap();
    assert!(reloader.look(&engine).await.is_none());
    reloader.look(&engine).await.unwrap().unwrap();
    let status = reloader.status();
    let page = Page::read(&metrics(&telemetry, &engine, &status, server_stats()));
    assert_eq!(page.at("throttlekit_config_reloads_total"), 1.0);
    assert_eq!(page.at("throttlekit_config_rejected_total"), 1.0);
    assert_eq!(page.at(&format!("throttlekit_config_info{{version=\"{}\"}}", status.hash)), 1.0);
}

//! The dashboard in ops/grafana reads what the page shows, and nothing else.

use std::collections::BTreeSet;

use serde_json::Value;
use throttlekit_server::internals::telemetry::{TelemetryOptions, metrics};

use crate::telemetry::strict::Page;
use crate::telemetry::{load, server_stats, started};

const DASHBOARD: &str = include_str!("../../../../ops/grafana/throttlekit.json");

#[tokio::test]
async fn every_series_that_the_dashboard_asks_for_is_on_the_page() {
    let (telemetry, engine, reloader) = started(TelemetryOptions::default());
    load(&telemetry, &engine).await;
    let text = metrics(&telemetry, &engine, &reloader.status(), server_stats());
    let page = Page::read(&text);
    let shown: BTreeSet<&str> = page.names().into_iter().collect();
    let asked = asked();
    let unknown: Vec<_> = asked.iter().filter(|name| !shown.contains(name.as_str())).collect();
    assert!(unknown.is_empty(), "not exported: {unknown:?}");
    // And of what is exported, everything is looked at. Sums and counts come with their buckets.
    let unseen = shown
        .iter()
        .filter(|name| !asked.contains(**name) && !name.ends_with("_sum") && !name.ends_with("_count"));
    assert_eq!(unseen.collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn panels_have_titles_and_places_of_their_own() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    let mut cells = BTreeSet::new();
    for panel in panels {
        assert!(panel["title"].as_str().is_some_and(|title| !title.is_empty()));
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24);
        for cell in
            (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
        {
            assert!(cells.insert(cell), "{} overlaps another", panel["title"]);
        }
    }
}

/// Names of series in all queries.
fn asked() -> BTreeSet<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().cloned().unwrap_or_default());
    let queries = targets.map(|target| target["expr"].as_str().unwrap().to_owned());
    let queries: Vec<_> = queries
        .chain(
            dashboard["templating"]["list"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|variable| Some(variable["query"].as_str()?.to_owned())),
        )
        .collect();
    let words =
        queries.iter().flat_map(|query| query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    words.filter(|word| word.starts_with("throttlekit_")).map(str::to_owned).collect()
}

//! The alerts in ops and the guide for who is on call name series that a server exports, and headings that are there.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::common::Serving;

const ALERTS: &str = include_str!("../../../ops/prometheus-alerts.yml");
const OPERATIONS: &str = include_str!("../../../docs/operate/runbook.md");
const POLICIES: &str = include_str!("../../../ops/docker/policies.yaml");
/// Leases that last longer than the test, of slots for each key and of slots for all.
const SLOTS: &str = "version: 1
policies:
  each: {concurrency: {limit: 2, scope: key, lease_for: 60s}}
  all: {concurrency: {limit: 1, scope: instance, lease_for: 60s}}
";

fn alerts() -> Vec<Value> {
    let file: Value = serde_saphyr::from_str(ALERTS).unwrap();
    let groups = file["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// Sends a request without keeping the connection, and returns the response.
fn call(address: &str, method: &str, path: &str, body: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        socket,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).unwrap();
    response
}

/// Returns the page of metrics of a server.
fn page(server: &Serving) -> String {
    call(server.at("metrics"), "GET", "/metrics", "")
}

/// The names of all series on the page of a server: families and the endings that their kind has.
fn exported() -> BTreeSet<String> {
    let page = page(&Serving::start(POLICIES, &["--store", "memory"]));
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    families
        .flat_map(|(name, kind)| {
            let endings: &[&str] = match kind {
                "counter" => &["_total"],
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            endings.iter().map(move |ending| format!("{name}{ending}"))
        })
        .collect()
}

/// Evaluates an alert for the server and for each policy of [`SLOTS`]: comparisons that `and` and `or` join.
fn fires(alert: &str, page: &str) -> bool {
    let alerts = alerts();
    let rule = alerts.iter().find(|rule| rule["alert"] == alert).expect("a rule of the file");
    let expr = rule["expr"].as_str().unwrap();
    let holds_for =
        |labels: &str| expr.split(" or ").any(|all| all.split(" and ").all(|one| holds(one, page, labels)));
    ["", "{policy=\"each\"}", "{policy=\"all\"}"].into_iter().any(holds_for)
}

/// Evaluates a comparison of two products of numbers and series. It does not hold if a series is missing.
fn holds(comparison: &str, page: &str, labels: &str) -> bool {
    let words: Vec<&str> = comparison.split_whitespace().collect();
    let at = words.iter().position(|word| [">", ">="].contains(word)).expect("a comparison");
    let value = |word: &&str| match word.parse::<f64>() {
        Ok(number) => Some(number),
        Err(_) => {
            let series = format!("{word}{labels} ");
            page.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok())
        }
    };
    let product =
        |words: &[&str]| words.iter().filter(|word| **word != "*").map(value).product::<Option<f64>>();
    let (Some(left), Some(right)) = (product(&words[..at]), product(&words[at + 1..])) else { return false };
    left > right || (words[at] == ">=" && left == right)
}

/// Names of series in a text; of a histogram also its own.
fn series(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("throttlekit_"))
}

fn headings() -> BTreeSet<String> {
    let links = |heading: &str| {
        let kept = heading.to_lowercase().replace(' ', "-");
        kept.chars().filter(|c| c.is_alphanumeric() || *c == '-').collect()
    };
    OPERATIONS.lines().filter_map(|line| line.strip_prefix("## ")).map(links).collect()
}

#[test]
fn every_series_that_alerts_and_guide_name_is_exported() {
    let exported = exported();
    assert!(exported.len() > 20, "{exported:?}");
    let alerts = alerts();
    let asked: BTreeSet<&str> =
        alerts.iter().flat_map(|alert| series(alert["expr"].as_str().unwrap())).collect();
    assert!(asked.len() >= 10, "{asked:?}");
    let unknown: Vec<_> = asked.iter().filter(|name| !exported.contains(**name)).collect();
    assert!(unknown.is_empty(), "alerts: not exported: {unknown:?}");
    let known = |name: &str| exported.contains(name) || exported.contains(&format!("{name}_bucket"));
    let unknown: Vec<_> = series(OPERATIONS).filter(|name| !known(name)).collect();
    assert!(unknown.is_empty(), "the guide: not exported: {unknown:?}");
}

/// Without `access` all clients are one caller, which reaches its own limit first. Slots of single keys never add up to
/// the limit of a server.
#[test]
fn alerts_on_slots_and_leases_fire_at_the_limit_and_not_before() {
    let server = Serving::start(SLOTS, &["--store", "memory", "--leases-per-caller", "10"]);
    let admit = |policy: &str, key: usize| {
        let body = format!(r#"{{"policy":"{policy}","key":"{key}"}}"#);
        let response = call(server.at("http"), "POST", "/v1/admit", &body);
        assert!(response.contains("\"lease_id\":\""), "{response}");
    };
    (0..9).for_each(|key| admit("each", key));
    let before = page(&server);
    assert!(before.contains("throttlekit_leases_caller_held 9"), "{before}");
    assert!(!fires("ThrottlekitLeasesRunOut", &before), "nine of ten leases");
    assert!(!fires("ThrottlekitSlotsFull", &before), "each key has its own limit");
    admit("all", 0);
    let after = page(&server);
    assert!(fires("ThrottlekitLeasesRunOut", &after), "{after}");
    assert!(fires("ThrottlekitSlotsFull", &after), "{after}");
}

#[test]
fn every_alert_leads_to_a_heading_that_says_what_to_do() {
    let headings = headings();
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        let runbook = alert["annotations"]["runbook"].as_str().unwrap();
        let place = runbook.strip_prefix("docs/operate/runbook.md#").unwrap();
        assert!(headings.contains(place), "{name}: no heading {place} in {headings:?}");
        assert!(["page", "ticket"].contains(&alert["labels"]["severity"].as_str().unwrap()), "{name}");
        assert!(!alert["annotations"]["summary"].as_str().unwrap().is_empty(), "{name}");
    }
    for link in OPERATIONS.split("](#").skip(1) {
        let place = link.split_once(')').unwrap().0;
        assert!(headings.contains(place), "no heading {place} in {headings:?}");
    }
}

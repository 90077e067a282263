//! The alerts in ops and the guide for who is on call name series that a server exports, and headings that are there.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

const ALERTS: &str = include_str!("../../../ops/prometheus-alerts.yml");
const OPERATIONS: &str = include_str!("../../../docs/operate/runbook.md");
const POLICIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ops/docker/policies.yaml");

fn alerts() -> Vec<Value> {
    let file: Value = serde_saphyr::from_str(ALERTS).unwrap();
    let groups = file["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// A server of its own, ended with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The names of all series on the page of a server: families and the endings that their kind has.
fn exported() -> BTreeSet<String> {
    let mut serve = Command::new(env!("CARGO_BIN_EXE_throttlekit"));
    serve.args(["serve", POLICIES, "--store", "memory", "--log-json"]);
    serve.args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
    let mut server = Server(serve.stderr(Stdio::piped()).spawn().unwrap());
    let log = BufReader::new(server.0.stderr.take().unwrap());
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let mut serves = lines.filter(|line| line["message"] == "server started");
    let address = serves.next().expect("it says where it serves")["metrics"].as_str().unwrap().to_owned();
    let mut socket = TcpStream::connect(&address).unwrap();
    write!(socket, "GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    socket.read_to_string(&mut page).unwrap();
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

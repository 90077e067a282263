//! The output to Prometheus.
#![cfg(feature = "prometheus")]

use std::collections::BTreeMap;
use std::thread;

use crate::common::event;
use throttlekit::observe::{Event, Observer};
use throttlekit::{Axis, Guarantee};
use throttlekit_telemetry::{Counts, Telemetry, prometheus};

/// Returns the counters of a page, each once. Sums of histograms are not whole numbers, and have a test of
/// their own.
fn scrape(counts: &Counts) -> BTreeMap<String, u64> {
    let page = prometheus::text(counts);
    assert!(page.ends_with("# EOF\n"));
    let mut samples = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#') && !line.contains("_sum{")) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let before = samples.insert(name.to_owned(), value.parse().unwrap());
        assert_eq!(before, None, "{name} is there twice");
    }
    samples
}

/// Returns the sum of all samples of this name whose labels contain this.
fn sum(samples: &BTreeMap<String, u64>, name: &str, label: &str) -> u64 {
    let of_name = |sample: &str| sample == name || sample.starts_with(&format!("{name}{{"));
    samples.iter().filter(|(key, _)| of_name(key) && key.contains(label)).map(|(_, count)| count).sum()
}

/// Checks that every scrape adds up, for each policy.
fn adds_up(samples: &BTreeMap<String, u64>, policies: &[&str]) {
    for policy in policies {
        let label = format!("policy=\"{policy}\"");
        let of = |name: &str| sum(samples, name, &label);
        let denied =
            samples.get(&format!("throttlekit_decisions_total{{policy=\"{policy}\",outcome=\"denied\"}}"));
        let by = of("throttlekit_denied_by_axis_total") + of("throttlekit_policy_denied_total");
        assert_eq!(denied, Some(&by), "{policy}");
        assert_eq!(of("throttlekit_decisions_total"), of("throttlekit_guarantee_total"), "{policy}");
        for name in ["throttlekit_cost", "throttlekit_retry_after_seconds"] {
            let all = sum(samples, &format!("{name}_bucket"), &format!("le=\"+Inf\",{label}"));
            assert_eq!(of(&format!("{name}_count")), all, "{policy}: {name}");
        }
    }
}

#[test]
fn counters_only_grow_and_add_up_in_every_scrape_under_load() {
    const ROUNDS: u64 = 2_000;
    const POLICIES: [&str; 2] = ["chat", "embed"];
    let telemetry = Telemetry::builder().queue(16).start().unwrap();
    let counts = telemetry.counts();
    // Each policy's first decision, so that all scrapes have it.
    POLICIES.iter().for_each(|policy| telemetry.observe(&event(policy, true, None)));
    let round = || {
        for policy in POLICIES {
            telemetry.observe(&event(policy, true, None));
            Axis::ALL.iter().for_each(|axis| telemetry.observe(&event(policy, false, Some(*axis))));
            telemetry.observe(&Event { guarantee: Guarantee::Closed, ..event(policy, false, None) });
            telemetry.observe(&Event { guarantee: Guarantee::Bounded(3), ..event(policy, true, None) });
        }
    };
    let mut last = scrape(&counts);
    let mut grew = 0;
    thread::scope(|threads| {
        let askers = [0, 1, 2].map(|_| threads.spawn(|| (0..ROUNDS).for_each(|_| round())));
        while !askers.iter().all(thread::ScopedJoinHandle::is_finished) {
            let now = scrape(&counts);
            adds_up(&now, &POLICIES);
            assert!(last.iter().all(|(name, count)| now[name] >= *count), "none goes back");
            grew += u64::from(now != last);
            last = now;
        }
    });
    let end = scrape(&counts);
    adds_up(&end, &POLICIES);
    println!("{grew} scrapes that saw more; {} events lost", counts.events_lost());
    assert!(grew > 1);
    for policy in POLICIES {
        let at = |name: &str, labels: &str| end[&format!("{name}_total{{policy=\"{policy}\"{labels}}}")];
        let asks = 3 * ROUNDS;
        assert_eq!(at("throttlekit_decisions", ",outcome=\"allowed\""), 2 * asks + 1);
        assert_eq!(at("throttlekit_decisions", ",outcome=\"denied\""), 6 * asks);
        for axis in ["concurrency", "rate", "cost", "fairness", "none"] {
            assert_eq!(at("throttlekit_denied_by_axis", &format!(",axis=\"{axis}\"")), asks);
        }
        assert_eq!(at("throttlekit_policy_denied", ""), asks);
        let worth = |label: &str| at("throttlekit_guarantee", &format!(",guarantee=\"{label}\""));
        assert_eq!(
            ["exact", "bounded", "local", "open", "closed"].map(worth),
            [6 * asks + 1, asks, 0, 0, asks]
        );
    }
    assert_eq!(end["throttlekit_events_lost_total"], counts.events_lost());
}

#[test]
fn labels_are_capped_and_never_keys() {
    let telemetry = Telemetry::builder().policies_max(8).top_keys(0).start().unwrap();
    let names: Vec<String> = (0..1_000).map(|n| format!("policy-{n}")).collect();
    for policy in &names {
        telemetry.observe(&Event { policy, key: policy.as_bytes(), ..event("", true, None) });
    }
    let samples = scrape(&telemetry.counts());
    assert_eq!(
        samples.len(),
        9 * (2 + 5 + 1 + 5 + 2 * 12) + 2,
        "eight policies, the others, and two without labels"
    );
    assert_eq!(sum(&samples, "throttlekit_decisions_total", "policy=\"other\""), 992);
    assert_eq!(sum(&samples, "throttlekit_decisions_total", ""), 1_000);
    assert!(samples.keys().all(|name| !name.contains("alice") && !name.contains("policy-8\"")));
}

#[test]
fn a_name_cannot_break_the_page() {
    let telemetry = Telemetry::builder().top_keys(0).start().unwrap();
    telemetry.observe(&event("a\"} 7\nb\\", true, None));
    let page = prometheus::text(&telemetry.counts());
    let sample = r#"throttlekit_decisions_total{policy="a\"} 7\nb\\",outcome="allowed"} 1"#;
    assert!(page.lines().any(|line| line == sample), "{page}");
}

#[test]
fn the_page_is_as_the_format_has_it() {
    let telemetry = Telemetry::builder().top_keys(0).start().unwrap();
    telemetry.observe(&event("chat", false, Some(Axis::Rate)));
    let page = prometheus::text(&telemetry.counts());
    let start = "# HELP throttlekit_decisions Decisions, by outcome\n\
                 # TYPE throttlekit_decisions counter\n\
                 throttlekit_decisions_total{policy=\"chat\",outcome=\"allowed\"} 0\n\
                 throttlekit_decisions_total{policy=\"chat\",outcome=\"denied\"} 1\n";
    assert!(page.starts_with(start), "{page}");
}

#[test]
fn costs_and_waits_are_histograms() {
    let telemetry = Telemetry::builder().top_keys(0).start().unwrap();
    telemetry.observe(&event("chat", true, None));
    telemetry.observe(&event("chat", false, Some(Axis::Rate)));
    let page = prometheus::text(&telemetry.counts());
    let lines = [
        "# TYPE throttlekit_cost histogram",
        "throttlekit_cost_sum{policy=\"chat\"} 6.0",
        "throttlekit_cost_count{policy=\"chat\"} 2",
        "throttlekit_cost_bucket{le=\"1.0\",policy=\"chat\"} 0",
        "throttlekit_cost_bucket{le=\"4.0\",policy=\"chat\"} 2",
        "throttlekit_cost_bucket{le=\"+Inf\",policy=\"chat\"} 2",
        "throttlekit_retry_after_seconds_sum{policy=\"chat\"} 1.501",
        "throttlekit_retry_after_seconds_bucket{le=\"1.0\",policy=\"chat\"} 0",
        "throttlekit_retry_after_seconds_bucket{le=\"5.0\",policy=\"chat\"} 1",
    ];
    for line in lines {
        assert!(page.lines().any(|of_page| of_page == line), "{line} in:\n{page}");
    }
}

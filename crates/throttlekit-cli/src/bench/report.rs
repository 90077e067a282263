//! Results of a load test, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::load::{Failed, Tally};
use super::{Args, Rpc};

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
/// Maximum length of a bar.
const BAR_MAX: u64 = 40;

pub(super) fn text(args: &Args, tally: &Tally) -> String {
    let mut out = String::new();
    let each_second = |count: u64| count as f64 / tally.elapsed.as_secs_f64().max(f64::EPSILON);
    let decisions = tally.allowed + tally.denied;
    // Writing to a string cannot fail.
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    line(format!(
        "{} of `{}` at {}: {} connections, {} in flight on each, {} keys, {:.1} s",
        name(args.rpc),
        args.policy,
        args.connection.target,
        args.connections,
        args.in_flight,
        args.keys,
        tally.elapsed.as_secs_f64()
    ));
    line(format!("requests   {:>12}   {:.0}/s", tally.answers(), each_second(tally.answers())));
    line(format!("decisions  {decisions:>12}   {:.0}/s", each_second(decisions)));
    line(format!("allowed    {:>12}   {:.1} %", tally.allowed, part(tally.allowed, decisions)));
    line(format!("denied     {:>12}   {:.1} %", tally.denied, part(tally.denied, decisions)));
    for (code, Failed { count, says }) in &tally.errors {
        line(format!("error      {count:>12}   {code}: {says}"));
    }
    if args.rpc != Rpc::Admit && tally.errors.contains_key("Unimplemented") {
        line("           a policy with a concurrency limit requires --rpc admit".into());
    }
    let from = if args.rate.is_some() {
        "from when each request was due"
    } else {
        "from when each request was sent"
    };
    line(format!("latency    {from}"));
    for (name, part) in QUANTILES {
        line(format!("  {name:<8} {:>10}", time(tally.times.quantile(part))));
    }
    line(format!("  {:<8} {:>10}", "max", time(tally.times.max())));
    line(format!("  {:<8} {:>10}", "mean", time(tally.times.mean())));
    let doublings = tally.times.doublings();
    let most = doublings.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    for (upto, count) in doublings {
        let bar = "▇".repeat((count * BAR_MAX).div_ceil(most) as usize);
        line(format!("  ≤ {:>8} {count:>10} {bar}", time(upto)));
    }
    out
}

pub(super) fn json(args: &Args, tally: &Tally) -> Value {
    let micros = |time: Duration| time.as_nanos() as f64 / 1_000.0;
    let mut latency: serde_json::Map<_, _> = QUANTILES
        .map(|(name, part)| (name.to_owned(), micros(tally.times.quantile(part)).into()))
        .into_iter()
        .collect();
    latency.insert("max".into(), micros(tally.times.max()).into());
    latency.insert("mean".into(), micros(tally.times.mean()).into());
    json!({
        "rpc": name(args.rpc),
        "policy": args.policy,
        "connections": args.connections,
        "in_flight": args.in_flight,
        "keys": args.keys,
        "rate": args.rate,
        "seconds": tally.elapsed.as_secs_f64(),
        "requests": tally.answers(),
        "requests_per_second": tally.answers() as f64 / tally.elapsed.as_secs_f64().max(f64::EPSILON),
        "allowed": tally.allowed,
        "denied": tally.denied,
        "errors": tally.errors.iter().map(|(code, failed)| (code, failed.count)).collect::<BTreeMap<_, _>>(),
        "error_messages": tally.errors.iter().map(|(code, failed)| (code, &failed.says)).collect::<BTreeMap<_, _>>(),
        "latency_us": latency,
        "latency_from": if args.rate.is_some() { "due" } else { "sent" },
    })
}

fn name(rpc: Rpc) -> &'static str {
    match rpc {
        Rpc::Check => "check",
        Rpc::CheckMany => "check-many",
        Rpc::Admit => "admit",
    }
}

fn part(count: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { count as f64 * 100.0 / of as f64 }
}

fn time(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    match nanos {
        _ if nanos < 1e6 => format!("{:.1}µs", nanos / 1e3),
        _ if nanos < 1e9 => format!("{:.2}ms", nanos / 1e6),
        _ => format!("{:.2}s", nanos / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn tally() -> Tally {
        let mut tally = Tally { allowed: 3, denied: 1, elapsed: Duration::from_secs(2), ..Tally::default() };
        tally.errors.insert("Unavailable".into(), Failed { count: 5, says: "retry later".into() });
        for micros in [100, 100, 100, 9_000] {
            tally.times.record(Duration::from_micros(micros));
        }
        tally
    }

    #[test]
    fn figures_are_told_to_people() {
        let args = Cli::parse_from(["bench", "--policy", "api"]).args;
        let text = text(&args, &tally());
        for wanted in [
            "check of `api` at 127.0.0.1:50051",
            "2/s",
            "75.0 %",
            "5   Unavailable: retry later",
            "from when each request was sent",
        ] {
            assert!(text.contains(wanted), "{wanted} in\n{text}");
        }
        assert!(
            text.lines().any(|line| line.trim_start().starts_with("max") && line.contains("9.00ms")),
            "{text}"
        );
        let bars: Vec<_> = text.lines().filter(|line| line.contains('▇')).collect();
        assert_eq!((bars.len(), bars[0].matches('▇').count(), bars[1].matches('▇').count()), (2, 40, 14));
    }

    #[test]
    fn and_to_programs() {
        let args = Cli::parse_from(["bench", "--policy", "api", "--rate", "50", "--rpc", "check-many"]).args;
        let told = json(&args, &tally());
        assert_eq!((&told["requests"], &told["denied"], &told["rate"]), (&json!(4), &json!(1), &json!(50)));
        assert_eq!((&told["rpc"], &told["latency_from"]), (&json!("check-many"), &json!("due")));
        assert_eq!(
            (&told["errors"]["Unavailable"], &told["latency_us"]["max"]),
            (&json!(5), &json!(9_000.0))
        );
        assert_eq!(told["error_messages"]["Unavailable"], "retry later");
    }
}

//! Metrics of listeners, callers and Envoy's service.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use throttlekit::rate::Timestamp;

use crate::listen::Stats;
use crate::share::{Load, PrincipalSeen};

/// Counts of listeners, callers and Envoy's service so far.
#[derive(Clone, Debug, Default)]
pub struct ServerStats {
    /// Each listener by its name: `grpc`, `http`, `resp`, `metrics`.
    pub listeners: Vec<(&'static str, Stats)>,
    /// Counts of Envoy's rate limit service.
    pub envoy: EnvoyStats,
    /// Counts of the rules of Envoy's descriptors.
    pub envoy_rules: Vec<EnvoyRuleStats>,
    /// Current load.
    pub load: Load,
    /// Counts of each principal.
    pub principals: Vec<PrincipalSeen>,
    /// Callers that were refused, by reason.
    pub callers_refused: Vec<(&'static str, u64)>,
    /// Expiry of the server's certificate, if it has one.
    pub certificate_expires: Option<Timestamp>,
}

/// Counts of Envoy's service since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnvoyStats {
    /// Requests.
    pub requests: u64,
    /// Descriptors that no rule matched. They were allowed.
    pub unmatched: u64,
    /// Descriptors with a limit of their own. The configured one was used instead.
    pub overrides_ignored: u64,
    /// Descriptors that requested a refund. Nothing was refunded, and nothing charged.
    pub refunds_ignored: u64,
    /// Descriptors that could not be counted: the caller lacks the right, more than any limit, or more than can be
    /// decided in time. They were denied.
    pub refused: u64,
}

/// Counts of the descriptors that one rule matched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvoyRuleStats {
    /// Domain of the rule.
    pub domain: Box<str>,
    /// Its entries, as in `key=value,key`.
    pub entries: Box<str>,
    /// Descriptors that were within their limit.
    pub within_limit: u64,
    /// Descriptors that were over it, or could not be counted.
    pub over_limit: u64,
}

/// A count of a listener.
type Count = fn(&Stats) -> u64;

const COUNTERS: &[(&str, &str, Count)] = &[
    ("connections_accepted", "Accepted connections", |stats| stats.accepted),
    ("accept_errors", "Failures to accept a connection, such as no free file descriptors", |stats| {
        stats.accept_errors
    }),
    ("requests", "Requests", |stats| stats.requests),
    ("requests_fast_path", "Requests answered by the fast path of HTTP", |stats| stats.fast_path),
    ("requests_shed", "Requests shed: too many of their caller in flight", |stats| stats.shed),
    ("requests_late", "Requests not received or not served in time", |stats| stats.late),
];

/// A count of a principal.
type PrincipalCount = fn(&PrincipalSeen) -> u64;

const PRINCIPAL_COUNTERS: &[(&str, &str, PrincipalCount)] = &[
    ("principal_requests", "Requests that were processed, by principal", |seen| seen.requests),
    ("principal_decisions", "Decisions requested, by principal", |seen| seen.decisions),
    ("principal_denied", "Denied decisions, by principal", |seen| seen.denied),
    ("principal_shed", "Requests shed, by principal", |seen| seen.shed),
];

/// Reasons why connections were rejected.
const REFUSED: &[(&str, Count)] = &[("all", |stats| stats.over_cap), ("peer", |stats| stats.over_peer_cap)];

/// Reasons why connections were closed, gracefully or not, other than by their clients.
const CLOSED: &[(&str, Count)] = &[
    ("handshake_failed", |stats| stats.handshake_failures),
    ("handshake_timeout", |stats| stats.handshake_timeouts),
    ("slow_headers", |stats| stats.slow_heads),
    ("stalled", |stats| stats.stalled),
    ("idle", |stats| stats.idle),
    ("max_age", |stats| stats.aged),
    ("abandoning", |stats| stats.abandoning),
    ("goaway", |stats| stats.sent_away),
    ("broken", |stats| stats.broken),
    ("forced", |stats| stats.cut_off),
];

impl ServerStats {
    fn write_reasons(
        &self,
        page: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        reasons: &[(&str, Count)],
    ) -> fmt::Result {
        let mut family = page.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (listener, stats) in &self.listeners {
            for (reason, count) in reasons {
                let labels = [("listener", *listener), ("reason", *reason)];
                ConstCounter::new(count(stats)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn write_shares(&self, page: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Load { deciding, waiting, body_bytes, health_streams, sessions } = self.load;
        for (name, help, level) in [
            ("deciding", "Decisions in progress", deciding),
            ("waiting", "Requests in the queue", waiting),
            ("body_bytes", "Bytes held for incomplete request bodies", body_bytes),
            ("health_streams", "Open health streams", health_streams),
            ("sessions", "Open sessions", sessions),
        ] {
            let level = ConstGauge::new(i64::try_from(level).unwrap_or(i64::MAX));
            level.encode(page.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        for (name, help, count) in PRINCIPAL_COUNTERS {
            let mut family = page.encode_descriptor(name, help, None, MetricType::Counter)?;
            for seen in &self.principals {
                let labels = [("principal", seen.name.as_str())];
                ConstCounter::new(count(seen)).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Fraction of all decisions since the previous scrape, by principal";
        let mut family = page.encode_descriptor("principal_share", help, None, MetricType::Gauge)?;
        for seen in &self.principals {
            let labels = [("principal", seen.name.as_str())];
            ConstGauge::new(seen.share as f64 / 1_000.0).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn write_access(&self, page: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Callers refused: an unknown or expired token, no token, no secret, or not allowed";
        let mut family = page.encode_descriptor("callers_refused", help, None, MetricType::Counter)?;
        for (reason, count) in &self.callers_refused {
            ConstCounter::new(*count).encode(family.encode_family(&[("reason", *reason)])?)?;
        }
        let help = "Expiry of the server's TLS certificate, since the Unix epoch";
        let name = "certificate_expires_timestamp_seconds";
        let family = page.encode_descriptor(name, help, None, MetricType::Gauge)?;
        match self.certificate_expires {
            Some(at) => {
                let seconds = at.as_millis_ceil() / 1_000;
                ConstGauge::new(i64::try_from(seconds).unwrap_or(i64::MAX)).encode(family)
            }
            None => Ok(()),
        }
    }

    fn write_envoy(&self, page: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let EnvoyStats { requests, unmatched, overrides_ignored, refunds_ignored, refused } = self.envoy;
        for (name, help, count) in [
            ("envoy_requests", "Requests of Envoy's rate limit service", requests),
            ("envoy_unmatched", "Descriptors that no rule matched; they were allowed", unmatched),
            (
                "envoy_overrides_ignored",
                "Descriptors with a limit of their own; the configured limit was used",
                overrides_ignored,
            ),
            (
                "envoy_refunds_ignored",
                "Descriptors with a refund; nothing was charged or refunded",
                refunds_ignored,
            ),
            ("envoy_refused", "Descriptors that could not be counted; they were denied", refused),
        ] {
            ConstCounter::new(count).encode(page.encode_descriptor(
                name,
                help,
                None,
                MetricType::Counter,
            )?)?;
        }
        self.write_envoy_rules(page)
    }

    fn write_envoy_rules(&self, page: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Descriptors by the rule that matched them";
        let mut family = page.encode_descriptor("envoy_descriptors", help, None, MetricType::Counter)?;
        for EnvoyRuleStats { domain, entries, within_limit, over_limit } in &self.envoy_rules {
            for (result, count) in [("within_limit", within_limit), ("over_limit", over_limit)] {
                let labels = [("domain", &**domain), ("entries", &**entries), ("result", result)];
                ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl Collector for ServerStats {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let page = &mut encoder;
        for (name, help, count) in COUNTERS {
            let mut family = page.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (listener, stats) in &self.listeners {
                ConstCounter::new(count(stats)).encode(family.encode_family(&[("listener", *listener)])?)?;
            }
        }
        let mut family =
            page.encode_descriptor("connections_open", "Open connections", None, MetricType::Gauge)?;
        for (listener, stats) in &self.listeners {
            let open = stats.accepted.saturating_sub(stats.ended);
            let open = ConstGauge::new(i64::try_from(open).unwrap_or(i64::MAX));
            open.encode(family.encode_family(&[("listener", *listener)])?)?;
        }
        let help = "Connections rejected: connection limit reached, of all addresses or of one";
        self.write_reasons(page, "connections_refused", help, REFUSED)?;
        let help = "Connections that the server closed, or that broke";
        self.write_reasons(page, "connections_closed", help, CLOSED)?;
        self.write_shares(page)?;
        self.write_access(page)?;
        self.write_envoy(page)
    }
}

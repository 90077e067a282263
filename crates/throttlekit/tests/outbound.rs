//! The client layer under hyper-util's client, against a simulated provider over real sockets.
#![cfg(feature = "outbound")]

use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use throttlekit::outbound::{EstimatedTokens, Outbound, OutboundLayer};
use tower::{Layer, ServiceExt};

use crate::provider::{Account, CLIENT, Provider, Rule, Style, TOKENS};

fn account(style: Style, rule: Rule) -> Account {
    Account {
        style,
        rule,
        requests: 6_000,
        tokens: 600_000,
        left_at_start: 50,
        changes: Vec::new(),
        latency: Duration::from_millis(1),
        error_every: 0,
        clock_ahead: 420,
    }
}

/// Sends calls at the same time. Returns their statuses.
async fn call(layer: &OutboundLayer, uri: &str, calls: usize) -> Vec<StatusCode> {
    let client = layer.layer(Client::builder(TokioExecutor::new()).build_http());
    let call = |_| {
        let request =
            Request::post(uri).header(CLIENT, 1).header(TOKENS, 100).extension(EstimatedTokens(120));
        let call = client.clone().oneshot(request.body(Full::<Bytes>::from("{}")).expect("a request"));
        tokio::spawn(async move {
            let response = call.await.expect("a response");
            let status = response.status();
            response.into_body().collect().await.expect("a body");
            status
        })
    };
    let calls: Vec<_> = (0..calls).map(call).collect();
    let mut statuses = Vec::new();
    for call in calls {
        statuses.push(call.await.expect("no panic"));
    }
    statuses
}

/// The provider has 300 requests left at the start and refills faster than calls are sent, so none is refused.
#[tokio::test(flavor = "multi_thread")]
async fn calls_within_the_limits_are_not_refused() {
    for (style, rule) in [(Style::OpenAi, Rule::TokenBucket), (Style::Anthropic, Rule::SlidingWindow)] {
        let provider = Provider::start(account(style, rule), Duration::ZERO).await.expect("a provider");
        let outbound = Outbound::builder("provider").requests_per_minute(6_000).tokens_per_minute(600_000);
        let layer = OutboundLayer::new(outbound.build().expect("limits"));
        let statuses = call(&layer, &provider.uri(), 100).await;
        assert!(statuses.iter().all(|status| *status == StatusCode::OK), "{statuses:?}");
        assert!(
            provider
                .served()
                .iter()
                .all(|served| served.admitted && served.client == 1 && served.tokens == 100)
        );
        assert!(provider.served().is_sorted_by_key(|served| served.at));
        let stats = layer.outbound().stats();
        assert_eq!((stats.admitted, stats.refused), (100, 0));
        assert_eq!(stats.keys[0].requests_per_minute, Some(6_000), "{:?}", stats.keys);
        assert_eq!(stats.keys[0].requests.and_then(|requests| requests.limit), Some(6_000));
    }
}

/// The configured ceiling is ten times what the provider allows.
#[tokio::test(flavor = "multi_thread")]
async fn a_lower_limit_of_the_provider_is_learned_and_refusals_are_counted() {
    let account = Account { requests: 600, ..account(Style::OpenAi, Rule::TokenBucket) };
    let provider = Provider::start(account, Duration::ZERO).await.expect("a provider");
    let outbound = Outbound::builder("provider").requests_per_minute(6_000).build().expect("limits");
    let layer = OutboundLayer::new(outbound);
    let statuses = call(&layer, &provider.uri(), 45).await;
    let refused = statuses.iter().filter(|status| **status == StatusCode::TOO_MANY_REQUESTS).count();
    assert_eq!(provider.served().iter().filter(|served| !served.admitted).count(), refused);
    let stats = layer.outbound().stats();
    assert_eq!(stats.refused, refused as u64);
    assert_eq!(stats.keys[0].requests_per_minute, Some(600), "{:?}", stats.keys);
}

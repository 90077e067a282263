//! A generated tonic client under the layer for outgoing calls.

use throttlekit::outbound::OutboundLayer;
use throttlekit_proto::v1::CheckRequest;
use throttlekit_proto::v1::rate_limiter_client::RateLimiterClient;
use throttlekit_server::internals::engine::Backend;
use tonic::Code;
use tonic::transport::Endpoint;
use tower::Layer;

use crate::common::{Running, runtime};

#[test]
fn a_tonic_client_waits_its_turn_and_its_outcomes_are_observed() {
    let server = Running::start("  api: {rate: {limit: 10, per: 1m}}\n", Backend::memory());
    runtime().block_on(async {
        let channel = Endpoint::from_shared(format!("http://{}", server.address())).unwrap().connect_lazy();
        let layer = OutboundLayer::per_minute(6_000).build().unwrap();
        let mut client = RateLimiterClient::new(layer.layer(channel));
        let request = |policy: &str| CheckRequest {
            policy: policy.into(),
            key: "alice".into(),
            cost: 1,
            ..Default::default()
        };
        let response = client.check(request("api")).await.unwrap().into_inner();
        assert!(response.decision.is_some_and(|decision| decision.allowed));
        assert_eq!(client.check(request("unknown")).await.unwrap_err().code(), Code::NotFound);
        let stats = layer.outbound().stats();
        assert_eq!((stats.admitted, stats.refused), (2, 0));
    });
}

//! The examples of `ops/kubernetes` for Istio and Envoy Gateway, in a real Envoy: their filters, routes and policies.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::stand::{Stand, ops};

/// Returns an Envoy that has only a router, one route and two clusters.
fn plain() -> Value {
    let mut envoy = yaml(&ops("envoy.yaml"));
    let filters = envoy.pointer_mut(&format!("{CONNECTIONS}/http_filters")).unwrap();
    filters.as_array_mut().unwrap().retain(|filter| filter["name"] == "envoy.filters.http.router");
    let host = envoy.pointer_mut(&format!("{CONNECTIONS}/route_config/virtual_hosts/0")).unwrap();
    host["routes"] = json!([{"match": {"prefix": "/"}, "route": {"cluster": "service"}}]);
    envoy
}

const CONNECTIONS: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";

/// Inserts a filter before the router.
fn insert(envoy: &mut Value, filter: &Value) {
    let filters = envoy.pointer_mut(&format!("{CONNECTIONS}/http_filters")).unwrap().as_array_mut().unwrap();
    filters.insert(filters.len() - 1, filter.clone());
}

fn merge_into_host(envoy: &mut Value, routes: &Value) {
    let host = envoy.pointer_mut(&format!("{CONNECTIONS}/route_config/virtual_hosts/0")).unwrap();
    host["typed_per_filter_config"] = routes.clone();
}

/// Returns the Envoy that Istio configures with the example: its filters and routes, and its name of our cluster.
fn istio() -> Value {
    let filter = yaml(&kubernetes("istio/envoyfilter.yaml"));
    let mut envoy = plain();
    for patch in filter["spec"]["configPatches"].as_array().unwrap() {
        let (to, operation) = (patch["applyTo"].as_str(), patch["patch"]["operation"].as_str());
        let value = &patch["patch"]["value"];
        match (to.unwrap(), operation.unwrap()) {
            ("HTTP_FILTER", "INSERT_BEFORE") => insert(&mut envoy, value),
            ("VIRTUAL_HOST", "MERGE") => merge_into_host(&mut envoy, &value["typed_per_filter_config"]),
            other => panic!("{other:?}"),
        }
    }
    let cluster = "outbound|50051||throttlekit.throttlekit.svc.cluster.local";
    let ours = envoy.pointer_mut("/static_resources/clusters/1").unwrap();
    (ours["name"], ours["load_assignment"]["cluster_name"]) = (cluster.into(), cluster.into());
    envoy
}

/// Returns the Envoy that Envoy Gateway configures with the example, without TLS. The filter that writes the tokens into
/// the metadata, as Envoy AI Gateway does, is that of the example for Istio.
fn envoy_gateway() -> Value {
    let policy = yaml(&kubernetes("envoy-gateway/envoypatchpolicy.yaml"));
    let [limits, routes, cluster] =
        [0, 1, 2].map(|patch| policy["spec"]["jsonPatches"][patch]["operation"]["value"].clone());
    let mut envoy = plain();
    insert(&mut envoy, &limits);
    let counts = &yaml(&kubernetes("istio/envoyfilter.yaml"))["spec"]["configPatches"][1]["patch"]["value"];
    insert(&mut envoy, counts);
    merge_into_host(&mut envoy, &routes);
    let mut ours = cluster.as_object().unwrap().clone();
    ours.remove("transport_socket").unwrap();
    let mut ours = Value::Object(ours);
    ours["type"] = "STATIC".into();
    let endpoint = &mut ours["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"];
    endpoint["address"]["socket_address"] = json!({"address": "127.0.0.1", "port_value": 8_081});
    *envoy.pointer_mut("/static_resources/clusters/1").unwrap() = ours;
    envoy
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_charged_on_completion_by_the_examples_for_istio_and_envoy_gateway() {
    for (name, envoy) in [("istio", istio()), ("envoy-gateway", envoy_gateway())] {
        let policies = yaml(&kubernetes(&format!("{name}/values.yaml")))["policies"].clone();
        let budget = policies["policies"]["model-tokens"]["cost"]["budget"].as_u64().unwrap();
        let each = budget / 2 + 1;
        let envoy = serde_saphyr::to_string(&envoy).unwrap();
        let stand = Stand::with(name, &envoy, &policies.to_string()).await;
        let tokens = each.to_string();
        let ask = async || {
            let headers = [("x-user", "ann"), ("x-answer-usage", tokens.as_str())];
            stand.get("/v1/chat/completions", &headers).await.status
        };
        for used in [each, 2 * each] {
            assert_eq!(ask().await, 200, "{name}: {used} after it");
            stand.until_debited("model-tokens", "ann", used).await;
        }
        assert_eq!(ask().await, 429, "{name}: the budget is spent");
        assert_eq!(stand.served(), 2, "{name}");
        assert_eq!(stand.get("/", &[("x-user", "ben")]).await.status, 200, "{name}: nobody else is denied");
        assert_eq!(stand.get("/", &[]).await.status, 200, "{name}: without the header");
    }
}

fn kubernetes(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/kubernetes").join(name)
}

fn yaml(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

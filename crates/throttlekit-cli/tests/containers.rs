//! What ops/docker, ops/helm and ops/kubernetes describe exists: flags, files, ports, variables. Nothing here needs
//! Docker or a cluster.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn throttlekit(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_throttlekit")).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What a command says of its flags, in one line.
fn help(command: &str) -> String {
    throttlekit(&[command, "--help"]).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(|item| item.as_str().unwrap()).collect()
}

/// The services that run our image.
fn servers(compose: &Value) -> Vec<(&String, &Value)> {
    let services = compose["services"].as_object().unwrap();
    services.iter().filter(|(_, service)| service["image"] == "throttlekit").collect()
}

/// A flag of a server's command, as `--name=value`.
fn flag<'a>(service: &'a Value, name: &str) -> &'a str {
    let found =
        texts(&service["command"]).into_iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("{name} is not given"))
}

fn port(address: &str) -> &str {
    address.rsplit_once(':').unwrap().1
}

#[test]
fn flags_and_variables_of_the_servers_are_ones_that_serve_knows() {
    let (compose, help) = (yaml("ops/docker/compose.yaml"), help("serve"));
    let servers = servers(&compose);
    assert_eq!(servers.len(), 2);
    for (name, service) in servers {
        let command = texts(&service["command"]);
        assert_eq!(command[0], "serve", "{name}");
        for given in command[2..].iter().map(|arg| arg.split('=').next().unwrap()) {
            let known = help.split(' ').any(|word| word == given);
            assert!(given.starts_with("--") && known, "{name}: {given} is no flag of serve");
        }
        for variable in service["environment"].as_object().unwrap().keys() {
            assert!(help.contains(&format!("[env: {variable}")), "{name}: nobody reads {variable}");
        }
        let open = texts(&service["ports"]);
        let inside: Vec<_> = open.iter().map(|mapping| port(mapping)).collect();
        assert_eq!(inside, [port(flag(service, "--listen")), port(flag(service, "--http"))], "{name}");
        assert!(
            open.iter().all(|mapping| mapping.starts_with("127.0.0.1:")),
            "in the clear, so on loopback only"
        );
    }
}

#[test]
fn what_is_mounted_is_there_and_the_policy_file_is_good() {
    let compose = yaml("ops/docker/compose.yaml");
    let here = root().join("ops/docker");
    for (name, service) in compose["services"].as_object().unwrap() {
        for mount in texts(&service["volumes"]) {
            let (source, inside) = mount.split_once(':').unwrap();
            if source.starts_with('.') {
                assert!(here.join(source).exists(), "{name}: {source}");
                assert!(inside.ends_with(":ro"), "{name}: {mount}");
            } else {
                assert!(compose["volumes"].get(source).is_some(), "{name}: {source}");
            }
        }
        let image = service["image"].as_str().unwrap();
        assert!(image == "throttlekit" || image.contains(':'), "{name}: which version of {image}?");
    }
    for (name, service) in servers(&compose) {
        let build = &service["build"];
        let context = here.join(build["context"].as_str().unwrap());
        assert!(context.join(build["dockerfile"].as_str().unwrap()).is_file(), "{name}");
        let (source, inside) = texts(&service["volumes"])[0].split_once(':').unwrap();
        let folder = inside.strip_suffix(":ro").unwrap();
        let policies = texts(&service["command"])[1].strip_prefix(folder).unwrap().trim_start_matches('/');
        let said = throttlekit(&["lint", here.join(source).join(policies).to_str().unwrap()]);
        assert!(said.starts_with("api: "), "{said}");
    }
}

#[test]
fn prometheus_looks_at_every_server_and_grafana_at_prometheus() {
    let (compose, prometheus) = (yaml("ops/docker/compose.yaml"), yaml("ops/prometheus.yml"));
    let servers = servers(&compose);
    let pages: Vec<_> =
        servers.iter().map(|(name, s)| format!("{name}:{}", port(flag(s, "--metrics")))).collect();
    let job = &prometheus["scrape_configs"][0];
    assert_eq!(texts(&job["static_configs"][0]["targets"]), pages);
    // The alerts ask for the job by its name.
    assert!(text("ops/prometheus-alerts.yml").contains(&format!("job={}", job["job_name"])));
    for rules in texts(&prometheus["rule_files"]) {
        let mounts = texts(&compose["services"]["prometheus"]["volumes"]);
        assert!(mounts.iter().any(|mount| mount.contains(&format!("/etc/prometheus/{rules}:"))), "{rules}");
    }
    let source = yaml("ops/grafana/provisioning/datasources/prometheus.yml");
    assert_eq!(source["datasources"][0]["url"], "http://prometheus:9090");
    let boards = yaml("ops/grafana/provisioning/dashboards/throttlekit.yml");
    let folder = boards["providers"][0]["options"]["path"].as_str().unwrap();
    let mounts = texts(&compose["services"]["grafana"]["volumes"]);
    assert!(mounts.contains(&format!("../grafana/throttlekit.json:{folder}/throttlekit.json:ro").as_str()));
}

#[test]
fn the_image_runs_as_nobody_and_asks_itself_for_its_health() {
    let dockerfile = text("ops/docker/Dockerfile");
    let said = |word: &str| {
        let lines = dockerfile.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        lines.collect::<Vec<_>>()
    };
    let [build, manifests, compiled, image] = said("FROM")[..] else { panic!("four stages") };
    assert!(manifests.starts_with("tools ") && compiled.starts_with("tools "), "one compiler for all stages");
    let toolchain = text("rust-toolchain.toml");
    let compiler = build.strip_prefix("rust:").and_then(|rest| rest.split_once('-')).unwrap().0;
    assert!(toolchain.contains(&format!("channel = \"{compiler}.")), "built with {compiler}");
    assert!(image.ends_with(":nonroot") && said("USER") == ["65532:65532"], "{image}");
    let built: Vec<_> = said("RUN").into_iter().filter(|run| run.contains("--profile dist")).collect();
    let features = "--no-default-features --features otlp --bin throttlekit";
    assert!(
        built.len() == 2 && built.iter().all(|run| run.contains(features)),
        "one set of dependencies: {built:?}"
    );
    let health = said("HEALTHCHECK")[0].split_once("CMD ").unwrap().1;
    let health: Vec<String> = serde_json::from_str(health).unwrap();
    assert_eq!(health, ["throttlekit", "health"]);
    help("health");
    let help = help("serve");
    for port in said("EXPOSE")[0].split(' ') {
        assert!(help.contains(&format!("[default: 127.0.0.1:{port}]")), "no listener has port {port}");
    }
}

#[test]
fn policy_files_for_kubernetes_are_valid() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("policies.yaml");
    let values = [
        "ops/helm/throttlekit/values.yaml",
        "ops/kubernetes/istio/values.yaml",
        "ops/kubernetes/envoy-gateway/values.yaml",
    ]
    .map(yaml);
    let inline = values.iter().map(|values| values["policies"].clone());
    for policies in inline.chain([yaml("ops/kubernetes/policies.yaml")]) {
        // JSON is YAML.
        std::fs::write(&file, policies.to_string()).unwrap();
        throttlekit(&["lint", "-q", file.to_str().unwrap()]);
        // While the store is unavailable each pod has a share: no more than this many run at a time.
        let nodes = policies["defaults"]["on_outage"]["local"]["nodes"].as_u64().unwrap();
        assert_eq!(nodes, values[0]["autoscaling"]["maxReplicas"].as_u64().unwrap() + 1);
    }
}

#[test]
fn the_envoy_filter_names_a_domain_of_the_policies_and_the_service_of_the_chart() {
    let (filter, values) =
        (yaml("ops/kubernetes/istio/envoyfilter.yaml"), yaml("ops/kubernetes/istio/values.yaml"));
    let patches = &filter["spec"]["configPatches"];
    let limits = &patches[0]["patch"]["value"]["typed_config"];
    let domain = &values["policies"]["envoy"][0];
    assert_eq!(limits["domain"], domain["domain"]);
    let service = &limits["rate_limit_service"]["grpc_service"]["envoy_grpc"]["cluster_name"];
    assert_eq!(service, "outbound|50051||throttlekit.throttlekit.svc.cluster.local");
    counts_requests_and_tokens(&patches[2]["patch"]["value"]["typed_per_filter_config"], domain);
}

#[test]
fn the_envoy_patch_policy_names_a_domain_of_the_policies_and_the_service_of_the_chart() {
    let (policy, values) = (
        yaml("ops/kubernetes/envoy-gateway/envoypatchpolicy.yaml"),
        yaml("ops/kubernetes/envoy-gateway/values.yaml"),
    );
    let [limits, routes, cluster] =
        [0, 1, 2].map(|patch| &policy["spec"]["jsonPatches"][patch]["operation"]["value"]);
    let domain = &values["policies"]["envoy"][0];
    assert_eq!(limits["typed_config"]["domain"], domain["domain"]);
    let service = &limits["typed_config"]["rate_limit_service"]["grpc_service"]["envoy_grpc"]["cluster_name"];
    assert_eq!((service, service), (&cluster["name"], &cluster["load_assignment"]["cluster_name"]));
    let endpoint = &cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"];
    let address = &endpoint["address"]["socket_address"];
    assert_eq!(address["address"], "throttlekit.throttlekit.svc.cluster.local");
    assert_eq!(address["port_value"], 50_051);
    counts_requests_and_tokens(routes, domain);
}

/// Routes have descriptors for requests and tokens: a request is admitted while tokens are left, then they are counted.
fn counts_requests_and_tokens(routes: &Value, domain: &Value) {
    let limits = routes["envoy.filters.http.ratelimit"]["rate_limits"].as_array().unwrap();
    let keys = limits.iter().map(|limit| &limit["actions"][0]["request_headers"]["descriptor_key"]);
    let [requests, tokens] = [0, 1].map(|rule| &domain["rules"][rule]["entries"][0]["key"]);
    assert_eq!(keys.collect::<Vec<_>>(), [requests, tokens, tokens]);
    assert_eq!(
        (&limits[1]["hits_addend"]["number"], &limits[2]["apply_on_stream_done"]),
        (&0.into(), &true.into())
    );
}

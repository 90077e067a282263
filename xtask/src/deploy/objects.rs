//! Kubernetes objects that are applied together: what they require of each other, and of the server.

use serde_json::{Map, Value};

/// Seconds after lame duck and grace until Kubernetes kills a pod.
const STOP_SLACK_S: u64 = 5;

/// Returns the problems of a deployment. `cli` is the reference of the command line, with every flag and variable.
pub(super) fn problems(objects: &[Value], cli: &str) -> Vec<String> {
    let mut found = Problems::default();
    let Some(deployment) = objects.iter().find(|object| object["kind"] == "Deployment") else {
        return vec!["no Deployment".into()];
    };
    let template = &deployment["spec"]["template"];
    let pod = &template["spec"];
    let server = &pod["containers"][0];
    references(objects, deployment, &mut found);
    volumes(objects, pod, &mut found);
    probes(server, &mut found);
    stopping(pod, &mut found);
    known(server, cli, &mut found);
    items(&pod["initContainers"])
        .chain(items(&pod["containers"]))
        .for_each(|one| hardened(pod, one, &mut found));
    found.0
}

#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn expect(&mut self, holds: bool, problem: impl Into<String>) {
        if !holds {
            self.0.push(problem.into());
        }
    }
}

/// Selectors match labels, ports have names that exist, and names are those of objects.
fn references(objects: &[Value], deployment: &Value, found: &mut Problems) {
    let template = &deployment["spec"]["template"];
    let labels = &template["metadata"]["labels"];
    let ports = &template["spec"]["containers"][0]["ports"];
    let pod = &template["spec"];
    found.expect(contains(labels, &deployment["spec"]["selector"]["matchLabels"]), "Deployment: selector");
    for spread in items(&pod["topologySpreadConstraints"]) {
        found
            .expect(contains(labels, &spread["labelSelector"]["matchLabels"]), "Deployment: spread selector");
    }
    let account = &pod["serviceAccountName"];
    found.expect(named(objects, "ServiceAccount", account).is_some(), "Deployment: no such ServiceAccount");
    for object in objects {
        let (kind, spec) = (text(&object["kind"]), &object["spec"]);
        let mut expect = |holds, problem: &str| found.expect(holds, format!("{kind}: {problem}"));
        match kind {
            "Service" => {
                expect(contains(labels, &spec["selector"]), "selects no pod");
                items(&spec["ports"])
                    .for_each(|port| expect(has_port(ports, &port["targetPort"]), "no such port"));
            }
            "PodDisruptionBudget" => {
                expect(contains(labels, &spec["selector"]["matchLabels"]), "selects no pod");
            }
            "NetworkPolicy" => {
                expect(contains(labels, &spec["podSelector"]["matchLabels"]), "selects no pod");
                let open: Vec<_> = items(&spec["ingress"]).flat_map(|rule| items(&rule["ports"])).collect();
                open.iter().for_each(|port| expect(has_port(ports, &port["port"]), "no such port"));
                let is_open = |port: &Value| open.iter().any(|open| open["port"] == port["name"]);
                expect(items(ports).all(is_open), "a port is open to nobody");
            }
            "HorizontalPodAutoscaler" => {
                let target = &spec["scaleTargetRef"];
                expect(target["name"] == deployment["metadata"]["name"], "no such Deployment");
                let requests = &pod["containers"][0]["resources"]["requests"];
                expect(requests["cpu"].is_string(), "the container requests no CPU");
                expect(deployment["spec"]["replicas"].is_null(), "the Deployment has replicas of its own");
            }
            "ServiceMonitor" => {
                let selected = objects.iter().find(|object| {
                    object["kind"] == "Service"
                        && contains(&object["metadata"]["labels"], &spec["selector"]["matchLabels"])
                });
                expect(selected.is_some(), "selects no Service");
                let ports = selected.map_or(&Value::Null, |service| &service["spec"]["ports"]);
                items(&spec["endpoints"])
                    .for_each(|one| expect(has_port(ports, &one["port"]), "no such port"));
            }
            _ => {}
        }
    }
}

/// Each volume is mounted and each mount has one. Files of a ConfigMap that flags name are among its keys.
fn volumes(objects: &[Value], pod: &Value, found: &mut Problems) {
    let server = &pod["containers"][0];
    let files: Vec<&str> =
        items(&server["args"]).map(|arg| text(arg).rsplit('=').next().unwrap_or("")).collect();
    for mount in items(&server["volumeMounts"]) {
        let name = text(&mount["name"]);
        let Some(volume) = items(&pod["volumes"]).find(|volume| volume["name"] == mount["name"]) else {
            found.expect(false, format!("{name}: mounted, and no such volume"));
            continue;
        };
        let folder = format!("{}/", text(&mount["mountPath"]));
        let mut used = files.iter().filter_map(|file| file.strip_prefix(&folder)).peekable();
        found.expect(used.peek().is_some(), format!("{name}: no flag names a file in {folder}"));
        if let Some(map) = volume.get("configMap") {
            let map = named(objects, "ConfigMap", &map["name"]);
            found.expect(map.is_some(), format!("{name}: no such ConfigMap"));
            let has = |file: &str| map.is_some_and(|map| map["data"].get(file).is_some());
            used.for_each(|file| found.expect(has(file), format!("{name}: the ConfigMap has no key {file}")));
        }
    }
    for volume in items(&pod["volumes"]) {
        let is_mounted = items(&server["volumeMounts"]).any(|mount| mount["name"] == volume["name"]);
        found.expect(is_mounted, format!("{}: not mounted", text(&volume["name"])));
    }
}

/// Liveness depends on the process alone. Both probes use the scheme that the server has.
fn probes(server: &Value, found: &mut Problems) {
    let has_tls = flag(server, "--tls-cert").is_some();
    let scheme = if has_tls { "HTTPS" } else { "HTTP" };
    for name in ["livenessProbe", "readinessProbe"] {
        let probe = &server[name]["httpGet"];
        found.expect(probe["scheme"] == scheme, format!("{name}: scheme"));
        found.expect(has_port(&server["ports"], &probe["port"]), format!("{name}: no such port"));
    }
    let live = &server["livenessProbe"]["httpGet"]["path"];
    found.expect(live == "/healthz", "livenessProbe: restarts servers whose store is unavailable");
    for (option, name) in
        [("--listen", "grpc"), ("--http", "http"), ("--resp", "resp"), ("--metrics", "metrics")]
    {
        let listens = flag(server, option).and_then(|at| at.rsplit_once(':')?.1.parse::<u64>().ok());
        let open = items(&server["ports"]).find(|port| port["name"] == name);
        let open = open.and_then(|port| port["containerPort"].as_u64());
        found.expect(listens == open, format!("{option}: not the port {name}"));
    }
}

/// Readiness fails during the lame duck, and no pod is killed before the grace ends.
fn stopping(pod: &Value, found: &mut Problems) {
    let server = &pod["containers"][0];
    let seconds = |option| flag(server, option).and_then(|value| value.parse::<u64>().ok());
    let (Some(lame_duck), Some(grace)) = (seconds("--lame-duck-s"), seconds("--grace-s")) else {
        return found.expect(false, "no --lame-duck-s or no --grace-s");
    };
    let stops = pod["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
    found.expect(stops >= lame_duck + grace + STOP_SLACK_S, "killed before the grace ends");
    let probe = &server["readinessProbe"];
    let times = |name| probe[name].as_u64().unwrap_or(10);
    found.expect(times("periodSeconds") * times("failureThreshold") < lame_duck, "ready after the lame duck");
}

/// Every flag and variable is one of `throttlekit serve`.
fn known(server: &Value, cli: &str, found: &mut Problems) {
    let words: Vec<_> = cli.split(|c: char| c.is_whitespace() || "[]=`,;".contains(c)).collect();
    for flag in items(&server["args"]).map(text).filter(|arg| arg.starts_with("--")) {
        let name = flag.split('=').next().unwrap_or_default();
        found.expect(words.contains(&name), format!("{name}: unknown flag"));
    }
    for name in items(&server["env"]).map(|variable| text(&variable["name"])) {
        let is_ours = name.starts_with("THROTTLEKIT_");
        found.expect(!is_ours || words.contains(&name), format!("{name}: unknown variable"));
    }
}

/// No privileges, as the restricted Pod Security Standard requires, and no writable files.
fn hardened(pod: &Value, container: &Value, found: &mut Problems) {
    let (all, own) = (&pod["securityContext"], &container["securityContext"]);
    let holds = all["runAsNonRoot"] == true
        && all["seccompProfile"]["type"] == "RuntimeDefault"
        && own["allowPrivilegeEscalation"] == false
        && own["readOnlyRootFilesystem"] == true
        && own["capabilities"]["drop"][0] == "ALL"
        && own["capabilities"]["add"].is_null();
    found.expect(holds, format!("{}: not hardened", text(&container["name"])));
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns `true` if labels contain all of a selector, which must not be empty.
fn contains(labels: &Value, selector: &Value) -> bool {
    let empty = Map::new();
    let selector = selector.as_object().unwrap_or(&empty);
    !selector.is_empty() && selector.iter().all(|(name, value)| labels.get(name) == Some(value))
}

fn has_port(ports: &Value, wanted: &Value) -> bool {
    items(ports).any(|port| port["name"] == *wanted)
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &Value) -> Option<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == *name)
}

/// Returns the value of a flag of a container, as `--name=value`.
fn flag<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    items(&container["args"]).find_map(|arg| text(arg).strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{PLAIN, parsed};
    use super::*;
    use crate::repository::root;

    /// The plain manifests with the ConfigMap that kustomize generates, and changes of the test in them.
    fn found(changes: &[(&str, &str, Value)]) -> Vec<String> {
        let mut objects = parsed(&fs::read_to_string(root().join(PLAIN)).unwrap()).unwrap();
        let map = r#"{"kind": "ConfigMap", "metadata": {"name": "throttlekit-policies"}, "data": {"policies.yaml": ""}}"#;
        objects.push(serde_json::from_str(map).unwrap());
        for (kind, pointer, value) in changes {
            let object = objects.iter_mut().find(|object| object["kind"] == *kind).unwrap();
            *object.pointer_mut(pointer).unwrap_or_else(|| panic!("{kind} has no {pointer}")) = value.clone();
        }
        problems(&objects, &fs::read_to_string(root().join("docs/reference/cli.md")).unwrap())
    }

    #[test]
    fn the_plain_manifests_are_consistent() {
        assert_eq!(found(&[]), Vec::<String>::new());
    }

    #[test]
    fn every_broken_reference_is_found() {
        let pod = "/spec/template/spec";
        let server = "/spec/template/spec/containers/0";
        let broken = [
            ("Deployment", "/spec/selector/matchLabels", r#"{"app": "x"}"#, "Deployment: selector"),
            ("Service", "/spec/selector", r#"{"app": "x"}"#, "Service: selects no pod"),
            ("Service", "/spec/ports/0/targetPort", r#""x""#, "Service: no such port"),
            ("PodDisruptionBudget", "/spec/selector", "{}", "PodDisruptionBudget: selects no pod"),
            ("NetworkPolicy", "/spec/ingress/1", "{}", "NetworkPolicy: a port is open to nobody"),
            ("HorizontalPodAutoscaler", "/spec/scaleTargetRef/name", r#""x""#, "no such Deployment"),
            ("ServiceAccount", "/metadata/name", r#""x""#, "no such ServiceAccount"),
            ("ConfigMap", "/data", "{}", "policies: the ConfigMap has no key policies.yaml"),
            ("ConfigMap", "/metadata/name", r#""x""#, "policies: no such ConfigMap"),
            (
                "Deployment",
                &format!("{pod}/volumes/0/name"),
                r#""x""#,
                "policies: mounted, and no such volume",
            ),
            (
                "Deployment",
                &format!("{pod}/terminationGracePeriodSeconds"),
                "30",
                "killed before the grace ends",
            ),
            ("Deployment", &format!("{pod}/securityContext/runAsNonRoot"), "false", "not hardened"),
            (
                "Deployment",
                &format!("{server}/args/2"),
                r#""--listn=0.0.0.0:50051""#,
                "--listn: unknown flag",
            ),
            (
                "Deployment",
                &format!("{server}/env/0/name"),
                r#""THROTTLEKIT_STOR""#,
                "THROTTLEKIT_STOR: unknown",
            ),
            ("Deployment", &format!("{server}/ports/0/containerPort"), "1", "--listen: not the port grpc"),
            ("Deployment", &format!("{server}/livenessProbe/httpGet/path"), r#""/readyz""#, "livenessProbe"),
            (
                "Deployment",
                &format!("{server}/readinessProbe/failureThreshold"),
                "3",
                "ready after the lame duck",
            ),
            (
                "Deployment",
                &format!("{server}/securityContext/readOnlyRootFilesystem"),
                "false",
                "not hardened",
            ),
        ];
        for (kind, pointer, value, problem) in broken {
            let found = found(&[(kind, pointer, serde_json::from_str(value).unwrap())]);
            assert!(found.iter().any(|found| found.contains(problem)), "{kind} {pointer}: {found:?}");
        }
    }

    #[test]
    fn without_a_deployment_there_is_nothing_to_check() {
        assert_eq!(problems(&[], ""), ["no Deployment"]);
    }
}

//! `cargo xtask deploy`: the Helm chart, the plain manifests that are rendered from it, and the systemd units.
//!
//! * [`objects`] checks what objects of one deployment require of each other and of the server.
//! * Helm checks the chart and its values, the schemas of Kubernetes the objects, systemd the units.

mod objects;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::repository::{printed, root};
use crate::services::tools;

const CHART: &str = "ops/helm/throttlekit";
/// Values that the chart is rendered with: its own, and those for tests.
const VALUES: [&str; 6] = [
    "ops/helm/throttlekit/values.yaml",
    "ops/helm/throttlekit/ci/full-values.yaml",
    "ops/helm/throttlekit/ci/memory-values.yaml",
    "ops/kubernetes/envoy-gateway/values.yaml",
    "ops/kubernetes/istio/values.yaml",
    "ops/kubernetes/values.yaml",
];
/// Values that the chart must reject, so that the schema is known to be applied.
const BAD_VALUES: [&str; 4] =
    ["replicaCount=0", "server.lameDuckSeconds=1", "store.memory=true", "tls.enabld=true"];
/// The plain manifests: written from the chart with these values.
const PLAIN: &str = "ops/kubernetes/throttlekit.yaml";
const PLAIN_VALUES: &str = "ops/kubernetes/values.yaml";
/// Versions of Kubernetes whose schemas the objects have: the oldest that the chart supports, and the newest known.
const KUBERNETES: [&str; 2] = ["1.27", "1.37"];
/// Tenths of the exposure that `systemd-analyze security` computes.
const EXPOSURE_MAX: &str = "20";

/// Writes the plain manifests.
pub(crate) fn write() -> Result<()> {
    fs::write(root().join(PLAIN), plain(&tools::helm()?)?).with_context(|| format!("cannot write {PLAIN}"))
}

/// Fails if the chart, a manifest or a unit is invalid, or if the manifests are not those of the chart.
pub(crate) fn check() -> Result<()> {
    let helm = tools::helm()?;
    printed(Command::new(&helm).args(["lint", "--strict", CHART]))?;
    let served = fs::read_to_string(root().join("docs/reference/cli.md"))?;
    let mut problems = Vec::new();
    let mut count = 0;
    for values in VALUES {
        let mut all = parsed(&render(&helm, &["--values", values])?)?;
        if values == PLAIN_VALUES {
            all.push(policies_of_kustomization()?);
        }
        count += all.len();
        let copies = one_copy(&all)?.into_iter().map(str::to_owned);
        let found = objects::problems(&all, &served).into_iter().chain(copies);
        problems.extend(found.map(|problem| format!("{values}: {problem}")));
        validate(&all).context(values)?;
    }
    for bad in BAD_VALUES {
        ensure!(render(&helm, &["--set", bad]).is_err(), "the chart accepts {bad}");
    }
    ensure!(validate(&[json!({"apiVersion": "v1", "kind": "Service", "spec": {"prts": []}})]).is_err());
    ensure!(problems.is_empty(), "deployment:\n  {}", problems.join("\n  "));
    let kept = fs::read_to_string(root().join(PLAIN)).unwrap_or_default();
    ensure!(kept == plain(&helm)?, "{PLAIN} has drifted; run `cargo xtask deploy`");
    units()?;
    println!(
        "figure: {}",
        json!({"name": "deploy", "values": VALUES.len(), "objects": count, "problems": 0})
    );
    Ok(())
}

/// Returns what the chart renders.
fn render(helm: &Path, args: &[&str]) -> Result<String> {
    let mut command = Command::new(helm);
    command.args(["template", "throttlekit", CHART, "--namespace", "throttlekit"]).args(args);
    printed(&mut command)
}

/// Returns the plain manifests: without comments of Helm, and without the label that it manages them.
fn plain(helm: &Path) -> Result<String> {
    let rendered = render(helm, &["--values", PLAIN_VALUES])?;
    let is_kept =
        |line: &&str| !line.starts_with("# Source: ") && !line.contains("app.kubernetes.io/managed-by:");
    let kept: Vec<_> = rendered.lines().filter(is_kept).collect();
    let title = "# Written by `cargo xtask deploy` from the Helm chart, with values.yaml beside this file.\n";
    Ok(title.to_owned() + &kept.join("\n") + "\n")
}

fn parsed(text: &str) -> Result<Vec<Value>> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(all.into_iter().filter(|object| !object.is_null()).collect())
}

fn yaml(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_saphyr::from_str(&text).with_context(|| path.display().to_string())
}

/// Returns the ConfigMap that kustomize would generate. Fails if the kustomization names files that do not exist.
fn policies_of_kustomization() -> Result<Value> {
    let folder = root().join("ops/kubernetes");
    let kustomization = yaml(&folder.join("kustomization.yaml"))?;
    let names = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
    };
    let generator = &kustomization["configMapGenerator"][0];
    let files = names(&generator["files"]);
    for file in names(&kustomization["resources"]).iter().chain(&files) {
        ensure!(folder.join(file).is_file(), "kustomization.yaml: no such file: {file}");
    }
    // A name with a hash would restart the servers, which reload the file.
    ensure!(generator["options"]["disableNameSuffixHash"] == true, "kustomization.yaml: a name with a hash");
    let data: serde_json::Map<_, _> = files.into_iter().map(|file| (file, json!(""))).collect();
    Ok(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data}),
    )
}

/// Returns problems of alerts and the dashboard, if they are rendered: they are those of `ops`.
fn one_copy(all: &[Value]) -> Result<Vec<&'static str>> {
    let mut problems = Vec::new();
    let alerts = yaml(&root().join("ops/prometheus-alerts.yml"))?;
    for rule in all.iter().filter(|object| object["kind"] == "PrometheusRule") {
        problems.extend(
            (rule["spec"] != alerts).then_some("the alerts are not those of ops/prometheus-alerts.yml"),
        );
    }
    let board = fs::read_to_string(root().join("ops/grafana/throttlekit.json"))?;
    let rendered = all.iter().filter_map(|object| object["data"]["throttlekit.json"].as_str());
    for text in rendered {
        problems.extend((text.trim() != board.trim()).then_some("the dashboard is not that of ops/grafana"));
    }
    Ok(problems)
}

/// Fails if an object does not have the schema of its kind. Kinds of the Prometheus Operator have none here.
fn validate(all: &[Value]) -> Result<()> {
    let own = all.iter().filter(|object| object["apiVersion"] != "monitoring.coreos.com/v1");
    let documents: Vec<_> = own.map(ToString::to_string).collect();
    let file = scratch()?.join("objects.yaml");
    fs::write(&file, documents.join("\n---\n"))?;
    for version in KUBERNETES {
        let mut command = tools::kubernetes_validate()?;
        printed(command.args(["--strict", "--quiet", "-k", version]).arg(&file))?;
    }
    Ok(())
}

/// Fails if systemd would warn about a unit, or if a server would be exposed more than it needs to be.
fn units() -> Result<()> {
    let folder = scratch()?;
    let mut paths = Vec::new();
    for name in ["throttlekit.service", "throttlekit.socket"] {
        let unit = fs::read_to_string(root().join("ops/systemd").join(name))?;
        // systemd looks for the program, which need not be installed here.
        let unit = unit.replace("/usr/local/bin/throttlekit", "/bin/true");
        fs::write(folder.join(name), unit)?;
        paths.push(folder.join(name));
    }
    let analyze = tools::systemd_analyze()?;
    let verify = |paths: &[PathBuf]| -> Result<()> {
        let output = Command::new(&analyze).args(["verify", "--man=no"]).args(paths).output()?;
        let warnings = String::from_utf8_lossy(&output.stderr);
        let own = warnings.lines().find(|line| line.contains("throttlekit") || line.contains("broken"));
        own.map_or(Ok(()), |warning| bail!("{warning}"))
    };
    verify(&paths)?;
    let broken = folder.join("broken.service");
    fs::write(&broken, "[Service]\nExecStart=/bin/true\nProtectSistem=strict\n")?;
    ensure!(verify(&[broken]).is_err(), "systemd-analyze accepts an unknown setting");
    let security = ["security", "--offline=true", "--no-pager", "--threshold", EXPOSURE_MAX];
    printed(Command::new(&analyze).args(security).arg(&paths[0]))?;
    Ok(())
}

fn scratch() -> Result<PathBuf> {
    let folder = root().join("target/deploy");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

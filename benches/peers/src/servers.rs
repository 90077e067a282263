//! The servers: where their programs are, how each is configured and started.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use anyhow::{Context, Result};

use crate::apis::{Api, Wire};
use crate::process::{Process, free_address, output};

pub const OURS: &str = "ours";
/// Another process of ours, or of an earlier build of ours, called without sessions.
pub const UNARY: &str = "unary Check";
pub const CRAB: &str = "throttlecrab";
pub const LIMITADOR: &str = "Limitador";

/// A limit that every server has: units per hour, all of them at once after idle time.
#[derive(Clone, Copy)]
pub struct Limit {
    /// Our policy and Envoy domain, Limitador's namespace.
    pub name: &'static str,
    pub units: u64,
}

pub const PERIOD_S: u64 = 3_600;
/// Never denies. Fits the 32-bit fields of throttlecrab.
pub const FREE: Limit = Limit { name: "free", units: 1_000_000_000 };
/// Replenishes one unit every 36 s: none while exactness is checked.
pub const HUNDRED: Limit = Limit { name: "hundred", units: 100 };
/// Keeps the state of a key that was used once for 12 minutes.
pub const FIVE: Limit = Limit { name: "five", units: 5 };
const LIMITS: [Limit; 3] = [FREE, HUNDRED, FIVE];

/// The store behind a server; throttlecrab has memory only.
#[derive(Clone, Copy)]
pub enum Store<'a> {
    Memory,
    Redis(&'a str),
}

/// A running server and its listeners.
pub struct Server {
    pub process: Process,
    grpc: SocketAddr,
    http: SocketAddr,
    resp: Option<SocketAddr>,
}

impl Server {
    /// Returns the address of the listener for an API.
    pub fn address(&self, api: Api) -> Option<SocketAddr> {
        match api.wire {
            Wire::Grpc { .. } | Wire::Session { .. } => Some(self.grpc),
            Wire::Http { .. } => Some(self.http),
            Wire::Resp { .. } => self.resp,
        }
    }
}

/// Servers by name, as far as their programs are known.
pub struct Running(Vec<(&'static str, Server)>);

impl Running {
    pub fn get(&self, name: &str) -> Option<&Server> {
        self.0.iter().find(|(other, _)| *other == name).map(|(_, server)| server)
    }

    /// Returns why a server cannot be measured by an API.
    pub fn absence(&self, name: &str, api: Api) -> Option<String> {
        match self.get(name) {
            None => Some(absent(name)),
            Some(server) if server.address(api).is_none() => Some("not available, no listener for it".into()),
            Some(_) => None,
        }
    }
}

/// Paths of the programs, and a folder for their configuration.
pub struct Programs {
    ours: PathBuf,
    /// An earlier build of ours.
    baseline: Option<PathBuf>,
    crab: Option<PathBuf>,
    limitador: Option<PathBuf>,
    ours_has_resp: bool,
    folder: PathBuf,
}

impl Programs {
    pub fn find() -> Result<Self> {
        let path = |name| env::var_os(name).map(PathBuf::from);
        let ours =
            path("THROTTLEKIT_BIN").context("THROTTLEKIT_BIN is not set: run `cargo xtask bench peers`")?;
        let ours_has_resp = output(Command::new(&ours).args(["serve", "--help"]))?.contains("--resp");
        let folder = env::temp_dir().join(format!("throttlekit-peers-{}", process::id()));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("policies.yaml"), policies())?;
        fs::write(folder.join("limits.yaml"), limits())?;
        let (crab, limitador) = (path("THROTTLECRAB_BIN"), path("LIMITADOR_BIN"));
        let baseline = path("BASELINE_BIN");
        Ok(Self { ours, baseline, crab, limitador, ours_has_resp, folder })
    }

    pub fn has_limitador(&self) -> bool {
        self.limitador.is_some()
    }

    /// Returns the names of the programs and what `--version` prints, or how to have them measured.
    pub fn versions(&self) -> Result<Vec<(&'static str, String)>> {
        let version = |program: &Path| output(Command::new(program).arg("--version"));
        let peer = |program: &Option<PathBuf>, name| match program {
            Some(program) => version(program),
            None => Ok(absent(name)),
        };
        Ok(vec![
            (OURS, version(&self.ours)?),
            (UNARY, self.baseline.as_deref().map_or_else(|| Ok("the same".into()), version)?),
            (CRAB, peer(&self.crab, CRAB)?),
            (LIMITADOR, peer(&self.limitador, LIMITADOR)?),
        ])
    }

    /// Starts every server that has such a store.
    pub fn start_all(&self, store: Store<'_>) -> Result<Running> {
        let mut running = vec![(OURS, self.start_ours(store)?)];
        if let (Some(program), Store::Memory) = (&self.crab, store) {
            running.push((CRAB, start_crab(program)?));
        }
        if let Some(program) = &self.limitador {
            running.push((LIMITADOR, self.start_limitador(program, store)?));
        }
        Ok(Running(running))
    }

    /// Starts our server twice, to compare its sessions with the unary method: that of the baseline, if there is one.
    pub fn start_unary(&self) -> Result<Running> {
        let unary = match &self.baseline {
            Some(baseline) => self.start_baseline(baseline)?,
            None => self.start_ours(Store::Memory)?,
        };
        Ok(Running(vec![(OURS, self.start_ours(Store::Memory)?), (UNARY, unary)]))
    }

    /// Starts a server with the options and policies that every build of ours has, for gRPC only.
    fn start_baseline(&self, program: &Path) -> Result<Server> {
        let (grpc, http) = (free_address()?, free_address()?);
        let file = self.folder.join("baseline.yaml");
        fs::write(&file, format!("version: 1\npolicies:\n{}", LIMITS.map(policy).concat()))?;
        let mut command = Command::new(program);
        command.arg("serve").arg(file).args(["--listen", &grpc.to_string(), "--http", &http.to_string()]);
        start(command, grpc, http, None)
    }

    fn start_ours(&self, store: Store<'_>) -> Result<Server> {
        let (grpc, http) = (free_address()?, free_address()?);
        let mut command = Command::new(&self.ours);
        command.arg("serve").arg(self.folder.join("policies.yaml"));
        command.args(["--listen", &grpc.to_string(), "--http", &http.to_string(), "--metrics", "off"]);
        command.args(["--log", "warn", "--store"]);
        command.arg(match store {
            Store::Memory => "memory",
            Store::Redis(url) => url,
        });
        let resp = self.ours_has_resp.then(free_address).transpose()?;
        if let Some(resp) = resp {
            command.args(["--resp", &resp.to_string()]);
        }
        start(command, grpc, http, resp)
    }

    fn start_limitador(&self, program: &Path, store: Store<'_>) -> Result<Server> {
        let (grpc, http) = (free_address()?, free_address()?);
        let mut command = Command::new(program);
        command.args(["--rls-ip", &grpc.ip().to_string(), "--rls-port", &grpc.port().to_string()]);
        command.args(["--http-ip", &http.ip().to_string(), "--http-port", &http.port().to_string()]);
        command.arg(self.folder.join("limits.yaml"));
        match store {
            Store::Memory => command.arg("memory"),
            Store::Redis(url) => command.args(["redis", url]),
        };
        start(command, grpc, http, None)
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Starts throttlecrab with its default store.
fn start_crab(program: &Path) -> Result<Server> {
    let (grpc, http, resp) = (free_address()?, free_address()?, free_address()?);
    let mut command = Command::new(program);
    command.args(["--log-level", "warn"]);
    for (name, address) in [("grpc", grpc), ("http", http), ("redis", resp)] {
        command.args([format!("--{name}"), format!("--{name}-host"), address.ip().to_string()]);
        command.args([format!("--{name}-port"), address.port().to_string()]);
    }
    start(command, grpc, http, Some(resp))
}

fn start(command: Command, grpc: SocketAddr, http: SocketAddr, resp: Option<SocketAddr>) -> Result<Server> {
    let listeners: Vec<SocketAddr> = [grpc, http].into_iter().chain(resp).collect();
    Ok(Server { process: Process::start(command, &listeners)?, grpc, http, resp })
}

/// The text of a row whose peer is not there.
pub fn absent(peer: &str) -> String {
    let variable = if peer == CRAB { "THROTTLECRAB_BIN" } else { "LIMITADOR_BIN" };
    format!("not measured, set {variable}")
}

fn policy(limit: Limit) -> String {
    format!("  {}: {{rate: {{limit: {}, per: 1h}}}}\n", limit.name, limit.units)
}

fn policies() -> String {
    let domain = |Limit { name, .. }| {
        format!(
            "  - {{domain: {name}, headers: none, rules: [{{entries: [{{key: user}}], policy: {name}}}]}}\n"
        )
    };
    let (policies, domains): (String, String) = (LIMITS.map(policy).concat(), LIMITS.map(domain).concat());
    format!("version: 1\npolicies:\n{policies}envoy:\n{domains}")
}

fn limits() -> String {
    let limit = |Limit { name, units }| {
        format!(
            "- {{namespace: {name}, max_value: {units}, seconds: {PERIOD_S}, conditions: [], \
             variables: [\"descriptors[0]['user']\"]}}\n"
        )
    };
    LIMITS.map(limit).concat()
}

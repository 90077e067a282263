//! One Redis, and the common configuration of every server of its family.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::Engine;
use super::command::{Words, words};
use super::install::{Need, program};
use super::server::{self, Server};

pub(super) const ENGINE: Engine = Engine {
    name: "redis",
    needs: &NEEDS,
    lay_out: |folder, ports| Ok(vec![lay_out_server(folder, "redis", ports.take()?, "")?]),
    start: server::start_all,
    env: |servers| vec![("THROTTLEKIT_REDIS", server::list(servers, "redis://"))],
};

pub(super) const NEEDS: [Need; 2] = [("redis-server", "redis-server"), ("redis-cli", "redis-tools")];

/// Configures a server in a directory of its own; `more` adds to its configuration, and takes precedence.
pub(super) fn lay_out_server(folder: &Path, name: &str, port: u16, more: &str) -> Result<Server> {
    let folder = folder.join(name);
    let file = |ending: &str| folder.join(format!("{name}.{ending}"));
    let server = Server {
        name: name.to_owned(),
        port,
        pid_file: file("pid"),
        log: file("log"),
        start: vec![program("redis-server")?, file("conf").display().to_string()],
        probe: cli(port, ["info", "server"])?,
        stop_signal: "TERM".to_owned(),
        folder: folder.clone(),
    };
    fs::create_dir_all(&folder)?;
    fs::write(file("conf"), format!("{}{more}\n", process(&server)) + DATA)?;
    Ok(server)
}

/// Returns the settings that Sentinel needs too. The title stays the command line, which identifies the
/// process.
pub(super) fn process(server: &Server) -> String {
    let Server { port, folder, pid_file, log, .. } = server;
    format!(
        "bind 127.0.0.1\nport {port}\ndaemonize yes\nset-proc-title no\ndir {folder:?}\npidfile {pid_file:?}\n\
         logfile {log:?}\n"
    )
}

/// Nothing on disk, nothing evicted, no delays. `DEBUG` is enabled to block a server.
const DATA: &str = "\
save \"\"
appendonly no
maxmemory-policy noeviction
repl-diskless-sync-delay 0
shutdown-timeout 0
enable-debug-command local
";

/// Returns a command to the server at a port.
pub(super) fn cli<const N: usize>(port: u16, question: [&str; N]) -> Result<Words> {
    let to = [program("redis-cli")?, "-h".into(), "127.0.0.1".into(), "-p".into(), port.to_string()];
    Ok([to.to_vec(), words(question)].concat())
}

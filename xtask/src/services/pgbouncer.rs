//! PgBouncer in front of PostgreSQL, a connection per transaction: tests the effects of a real pooler on a
//! store.

use std::fs;

use anyhow::Result;

use super::command::words;
use super::install::program;
use super::ports::Ports;
use super::postgres::{as_owner, own_folder, psql};
use super::server::Server;

pub(super) fn lay_out(postgres: u16, ports: &mut Ports) -> Result<Server> {
    let (folder, port) = (own_folder("pgbouncer")?, ports.take()?);
    let file = |ending: &str| folder.join(format!("pgbouncer.{ending}"));
    let configuration = file("ini").display().to_string();
    let server = Server {
        name: "pgbouncer".to_owned(),
        port,
        pid_file: file("pid"),
        log: file("log"),
        start: as_owner(words([&program("pgbouncer")?, "-d", &configuration])),
        probe: psql(port, "pgbouncer", "show version")?,
        stop_signal: "TERM".to_owned(),
        folder: folder.clone(),
    };
    fs::write(configuration, text(&server, postgres))?;
    Ok(server)
}

/// Rust clients set the output format of floats, which a shared connection cannot keep; the parameter is
/// ignored.
fn text(server: &Server, postgres: u16) -> String {
    let Server { port, log, pid_file, .. } = server;
    format!(
        "[databases]\n* = host=127.0.0.1 port={postgres} user=postgres\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         logfile = {}\npidfile = {}\nauth_type = any\npool_mode = transaction\nmax_client_conn = 1000\n\
         ignore_startup_parameters = extra_float_digits\n",
        log.display(),
        pid_file.display()
    )
}

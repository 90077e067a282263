//! PostgreSQL with its default durability, and PgBouncer before it.
//!
//! PostgreSQL refuses to run as root, so root runs it as the user that Debian created for it. That user may
//! not be able to enter the directory of this repository; the data are therefore in the system's temporary
//! directory, where the user creates a directory of its own.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::command::{self, Words, words};
use super::install::{Need, program, we_are_root};
use super::ports::Ports;
use super::server::Server;
use super::{Engine, pgbouncer};

pub(super) const ENGINE: Engine = Engine {
    name: "postgres",
    needs: &NEEDS,
    lay_out: |_, ports| {
        let postgres = lay_out(ports)?;
        let pgbouncer = pgbouncer::lay_out(postgres.port, ports)?;
        Ok(vec![postgres, pgbouncer])
    },
    start,
    env: |servers| {
        vec![("THROTTLEKIT_POSTGRES", url(&servers[0])), ("THROTTLEKIT_PGBOUNCER", url(&servers[1]))]
    },
};

/// The server's package also has `pgbench` and `pg_stat_statements`.
const NEEDS: [Need; 2] = [("postgres", "postgresql"), ("pgbouncer", "pgbouncer")];

fn lay_out(ports: &mut Ports) -> Result<Server> {
    let (folder, port) = (own_folder("postgres")?, ports.take()?);
    let (data, log) = (folder.join("data"), folder.join("postgres.log"));
    let (place, log_place) = (data.display().to_string(), log.display().to_string());
    let control = [&program("pg_ctl")?, "-D", &place, "-l", &log_place, "-w", "-t", "20", "start"];
    Ok(Server {
        name: "postgres".to_owned(),
        port,
        pid_file: data.join("postmaster.pid"),
        log,
        start: as_owner(words(control)),
        probe: psql(port, "postgres", "select version()")?,
        stop_signal: "QUIT".to_owned(),
        folder,
    })
}

fn start(servers: &[Server]) -> Result<()> {
    let (postgres, pgbouncer) = (&servers[0], &servers[1]);
    let data = postgres.folder.join("data");
    if !data.join("PG_VERSION").exists() {
        create(postgres, &data)?;
    }
    postgres.start()?;
    pgbouncer.start()?;
    // Through the pool, which shows that it works.
    let extend = "create extension if not exists pg_stat_statements";
    command::output(&psql(pgbouncer.port, "postgres", extend)?).map(drop)
}

/// Creates a new database cluster. Only its creation is not flushed to disk; later writes are.
fn create(postgres: &Server, data: &Path) -> Result<()> {
    let (initdb, place) = (program("initdb")?, data.display().to_string());
    let text = ["--encoding=UTF8", "--locale=C.UTF-8"];
    let create = [&initdb, "-D", &place, "-A", "trust", "-U", "postgres", text[0], text[1], "--no-sync"];
    command::run(&as_owner(words(create)), &postgres.folder)?;
    let mut file = fs::File::options().append(true).open(data.join("postgresql.conf"))?;
    Ok(file.write_all(configuration(postgres).as_bytes())?)
}

fn configuration(postgres: &Server) -> String {
    format!(
        "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = ''\nmax_connections = 200\n\
         shared_preload_libraries = 'pg_stat_statements'\n",
        postgres.port
    )
}

/// Returns a command that queries the server at a port.
pub(super) fn psql(port: u16, database: &str, question: &str) -> Result<Words> {
    let (psql, port) = (program("psql")?, port.to_string());
    let to = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-d", database];
    Ok([words([&psql, "-XAtqw"]), words(to), words(["-c", question])].concat())
}

/// Creates a new directory that belongs to the user of the server.
pub(super) fn own_folder(name: &str) -> Result<PathBuf> {
    let pattern = format!("throttlekit-{name}-XXXXXX");
    let made = command::output(&as_owner(words(["mktemp", "-d", "-p", "/tmp", &pattern])))?;
    Ok(PathBuf::from(made.trim()))
}

/// Returns the command as the user of the servers.
pub(super) fn as_owner(command: Words) -> Words {
    if we_are_root() { [words(["runuser", "-u", "postgres", "--"]), command].concat() } else { command }
}

fn url(server: &Server) -> String {
    format!("postgres://postgres@{}/postgres", server.address())
}

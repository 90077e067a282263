//! PostgreSQL with its durability as it comes, and PgBouncer before it.
//!
//! PostgreSQL refuses to run as root, so root runs it as the user that Debian made for it. That user may not
//! be able to enter the folder this repository lies in; the data therefore live in the system's folder for
//! temporary files, where the user makes a folder of its own.

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
    // Through the pool, which shows that it leads somewhere.
    let extend = "create extension if not exists pg_stat_statements";
    command::output(&psql(pgbouncer.port, "postgres", extend)?).map(drop)
}

/// A fresh database cluster. Only its making is not flushed to disk; what it does later is.
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

/// Asks the server at a port, whoever it is.
pub(super) fn psql(port: u16, database: &str, question: &str) -> Result<Words> {
    let (psql, port) = (program("psql")?, port.to_string());
    let to = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-d", database];
    Ok([words([&psql, "-XAtqw"]), words(to), words(["-c", question])].concat())
}

/// A fresh folder that belongs to whom the server runs as.
pub(super) fn own_folder(name: &str) -> Result<PathBuf> {
    let pattern = format!("throttlekit-{name}-XXXXXX");
    let made = command::output(&as_owner(words(["mktemp", "-d", "-p", "/tmp", &pattern])))?;
    Ok(PathBuf::from(made.trim()))
}

/// The command as the user the servers run as.
pub(super) fn as_owner(command: Words) -> Words {
    if we_are_root() { [words(["runuser", "-u", "postgres", "--"]), command].concat() } else { command }
}

fn url(server: &Server) -> String {
    format!("postgres://postgres@{}/postgres", server.address())
}

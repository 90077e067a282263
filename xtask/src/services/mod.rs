//! Real engines for the tests: `cargo xtask services up | down | status`.
//!
//! A store that was only tested with a fake engine has not been tested. So the tests use the real engines:
//! started here on loopback ports, in a temporary directory, stopped by their own process ids. An engine is
//! first configured (ports, directories, files), then recorded, then started; so `down` can stop what a
//! failed `up` has left, and `up` restarts a killed server at its old address.

mod cluster;
mod command;
mod envoy;
mod install;
mod pgbouncer;
mod ports;
mod postgres;
mod redis;
mod sentinel;
mod server;
mod state;
mod tls;
pub(crate) mod tools;
mod valkey;
mod wheel;

use std::path::Path;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use throttlekit::clock::{Clock, PreciseClock};

use install::Need;
use ports::Ports;
use server::Server;
use state::State;

const USAGE: &str = "usage: cargo xtask services up [--only NAME,NAME] | down | status";

/// One kind of engine: a server, or several that belong together.
struct Engine {
    name: &'static str,
    needs: &'static [Need],
    /// Chooses ports and writes configuration below the directory; starts nothing.
    lay_out: fn(&Path, &mut Ports) -> Result<Vec<Server>>,
    /// Starts what does not run, and returns when all of it can be used.
    start: fn(&[Server]) -> Result<()>,
    env: fn(&[Server]) -> Vec<(&'static str, String)>,
}

const ENGINES: [&Engine; 7] = [
    &redis::ENGINE,
    &tls::ENGINE,
    &sentinel::ENGINE,
    &cluster::ENGINE,
    &valkey::ENGINE,
    &postgres::ENGINE,
    &envoy::ENGINE,
];

/// The addresses of the engines: the environment variables that tests read, and their values.
pub(crate) type Addresses = Vec<(&'static str, String)>;

/// Runs the command. Only addresses go to standard output, so that a shell can evaluate it.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    match args {
        ["up"] => print(&up()?),
        ["up", "--only", names] => print(&up_only(&names.split(',').collect::<Vec<_>>())?),
        ["down"] => return down(),
        ["status"] => return status(),
        _ => bail!(USAGE),
    }
    Ok(())
}

/// Installs missing programs and starts every engine that does not run.
pub(crate) fn up() -> Result<Addresses> {
    bring_up(&ENGINES)
}

/// Does the same for some engines.
pub(crate) fn up_only(names: &[&str]) -> Result<Addresses> {
    let engines: Vec<_> = ENGINES.into_iter().filter(|engine| names.contains(&engine.name)).collect();
    if let Some(stranger) = names.iter().find(|name| !engines.iter().any(|engine| engine.name == **name)) {
        bail!("no engine is called {stranger:?}; there are {}", ENGINES.map(|engine| engine.name).join(", "));
    }
    bring_up(&engines)
}

/// Returns `true` if an `up` has not been followed by a `down`.
pub(crate) fn recorded() -> bool {
    State::load().is_ok_and(|state| !state.engines.is_empty())
}

/// Stops every started server and removes its directory.
pub(crate) fn down() -> Result<()> {
    let _turn = state::take_turn()?;
    let state = State::load()?;
    let servers: Vec<&Server> = state.engines.values().flatten().collect();
    servers.iter().for_each(|server| server.signal());
    for server in &servers {
        server.end()?;
        command::remove_folder(&server.folder)?;
    }
    command::remove_folder(&state::folder()?)?;
    eprintln!("{} servers stopped", servers.len());
    Ok(())
}

/// Prints one line per server; fails if one is dead.
fn status() -> Result<()> {
    let state = State::load()?;
    ensure!(!state.engines.is_empty(), "nothing is up; start with `cargo xtask services up`");
    let mut dead = Vec::new();
    for server in state.engines.values().flatten() {
        let (line, alive) = server.report();
        println!("{line}");
        dead.extend((!alive).then_some(server.name.as_str()));
    }
    ensure!(dead.is_empty(), "not alive: {}; `cargo xtask services up` starts what is dead", dead.join(", "));
    Ok(())
}

fn bring_up(engines: &[&'static Engine]) -> Result<Addresses> {
    let _turn = state::take_turn()?;
    install::ensure(engines)?;
    let mut state = State::load()?;
    lay_out(engines, &mut state)?;
    start(engines, &state)?;
    let env = |engine: &&Engine| (engine.env)(&state.engines[engine.name]);
    Ok(engines.iter().flat_map(env).collect())
}

fn lay_out(engines: &[&'static Engine], state: &mut State) -> Result<()> {
    let folder = state::folder()?;
    let mut ports = Ports::new();
    for engine in engines {
        if !state.engines.contains_key(engine.name) {
            let servers = (engine.lay_out)(&folder, &mut ports).context(engine.name)?;
            state.engines.insert(engine.name.to_owned(), servers);
        }
    }
    state.save()
}

/// Starts all at once: most of the time is waiting.
fn start(engines: &[&'static Engine], state: &State) -> Result<()> {
    thread::scope(|scope| {
        let start = |engine: &&'static Engine| {
            let (engine, servers) = (*engine, &state.engines[engine.name]);
            scope.spawn(move || start_one(engine, servers).context(engine.name))
        };
        let started: Vec<_> = engines.iter().map(start).collect();
        started.into_iter().try_for_each(|engine| engine.join().expect("an engine's thread does not panic"))
    })
    .context("`cargo xtask services down` removes what has been started")
}

fn start_one(engine: &Engine, servers: &[Server]) -> Result<()> {
    if servers.iter().all(Server::answers) {
        eprintln!("{}: up already", engine.name);
        return Ok(());
    }
    let clock = PreciseClock::new();
    let begun = clock.now();
    (engine.start)(servers)?;
    eprintln!("{}: up in {:.1} s", engine.name, clock.now().since(begun).as_secs_f64());
    Ok(())
}

fn print(addresses: &[(&str, String)]) {
    for (name, value) in addresses {
        println!("export {name}={}", quoted(value));
    }
}

/// Quotes a word for a shell: the name of a directory may contain a space.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/:.,@_-".contains(c);
    if value.chars().all(plain) { value.to_owned() } else { format!("'{}'", value.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_only_where_a_shell_would_cut_it() {
        assert_eq!(
            quoted("redis://127.0.0.1:1,redis://127.0.0.1:2"),
            "redis://127.0.0.1:1,redis://127.0.0.1:2"
        );
        assert_eq!(quoted("/a b's"), r"'/a b'\''s'");
    }
}

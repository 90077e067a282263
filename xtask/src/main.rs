//! The project's own commands. All steps of CI are here, so that they can be run locally.

mod bench;
mod book;
mod ci;
mod cycles;
mod deploy;
mod proto;
mod python;
mod repository;
mod services;
mod vectors;

use std::process::ExitCode;

use throttlekit_verify_drivers as drivers;

const USAGE: &str = "\
usage: cargo xtask <command>

  ci [STAGE…] | --list     what CI runs, or some of its stages; prints the seconds of each at the end
  verify NAME|all|--list   check one guarantee or all of them, or list them with their seeded bugs; `verify` alone prints
                           the names and their options; `prove` is an alias
  model NAME|all [--small] explore every state of small models: lease, ceiling, slots
  plots                    draw the pictures of the documents
  vectors [--check]        write our own golden vectors; with --check, fail if they have drifted
  proto [--check]          write the wire types from their .proto files; with --check, fail if they have drifted
  reference [--check]      write the generated pages of the book; with --check, fail if they have drifted
  prose                    fail if a page is hard to read, or uses words to avoid
  book                     build the book; fail if a link is dead or a Rust block is not tested
  api                      count the public API and fail if it is too wide
  cycles                   fail if modules of different folders import each other
  locks                    fail if a workspace beside this one has a stale lock
  links                    fail if a link into the repository is broken, or a README of a crate has a relative one
  manifests                fail if a published crate lacks metadata, or a library crate needs a newer Rust than it states
  deploy [--check]         write ops/kubernetes from the Helm chart; with --check, fail if it has drifted, or if the
                           chart, a manifest or a systemd unit is invalid
  clone                    clone what is committed into an empty folder and test the library there
  publish                  package every published crate and build it from its package
  semver                   compare public APIs with the last release (cargo-semver-checks)
  python test              build the Python wheel, install it into a clean environment and run its tests
  python docs              build the API reference of the Python package as a site
  services up|down|status  real engines for the tests; `up` prints where they listen, for a shell to evaluate
  bench NAME               run a benchmark, which fails if a threshold is missed:
  bench inproc             checks in process beside the peers
  bench sketch             limits in a sketch beside the peer that counts in one
  bench slots              concurrency slots in process beside a semaphore and adaptive limiters
  bench admission          calls over several axes beside the sum of the axes, in process and on Redis
  bench fair               a check among a hundred tenants that share a budget and among a hundred thousand
  bench budget             debits of a token budget in process beside a peer
  bench redis|postgres     decisions on a shared store beside what the engine does bare
  bench server             the service beside a bare echo and beside its own store
  bench peers              the server beside throttlecrab and Limitador: processor time, latency, memory, exactness
  bench lease              spends of a lease in process beside the peers, and batches on Redis beside single asks
  bench outbound           calls to a simulated provider, by several processes over Redis
  bench python             checks from Python beside `limits`, and middleware beside slowapi";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["ci", ref names @ ..] => ci::run(names),
        ["verify", "--list"] => {
            drivers::print_list();
            Ok(())
        }
        ["verify"] => Err(anyhow::anyhow!("{}", drivers::usage())),
        ["verify", "all"] => drivers::verify_all(services::up_only),
        ["verify" | "prove", name, ref rest @ ..] => drivers::verify(name, rest, services::up_only),
        ["model", name, ref rest @ ..] => drivers::model(name, rest, services::up_only),
        ["plots", ref rest @ ..] => drivers::plots(rest),
        ["vectors"] => vectors::write(),
        ["vectors", "--check"] => vectors::check(),
        ["reference"] => book::reference::write(),
        ["reference", "--check"] => book::reference::check(),
        ["prose"] => book::prose::check(),
        ["book"] => book::build(),
        ["api"] => repository::api::check(),
        ["cycles"] => cycles::check(),
        ["locks"] => repository::locks::check(),
        ["links"] => repository::links::check(),
        ["manifests"] => repository::manifests::check(),
        ["deploy"] => deploy::write(),
        ["deploy", "--check"] => deploy::check(),
        ["clone"] => repository::clone::check(),
        ["publish"] => repository::publish::check(),
        ["semver"] => repository::semver::check(),
        ["proto"] => proto::write(),
        ["proto", "--check"] => proto::check(),
        ["python", ref rest @ ..] => python::run(rest),
        ["services", ref rest @ ..] => services::run(rest),
        ["bench", ..] => bench::run(&args[1..]),
        _ => Err(anyhow::anyhow!("{USAGE}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

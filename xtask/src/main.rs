//! The project's own commands. What CI runs is here, so that everyone can run it.

mod bench;
mod ci;
mod cycles;
mod locks;
mod parts;
mod plots;
mod proto;
mod prove;
mod prove_abuse;
mod prove_admission;
mod prove_budget;
mod prove_budget_use;
mod prove_exhaustion;
mod prove_failover;
mod prove_fair_regions;
mod prove_fleet;
mod prove_fuzz;
mod prove_inference;
mod prove_isolation;
mod prove_key_capacity;
mod prove_label_truth;
mod prove_learn;
mod prove_lease_model;
mod prove_lease_scale;
mod prove_lease_sim;
mod prove_metering;
mod prove_price;
mod prove_reload_room;
mod prove_sketch;
mod prove_slots;
mod prove_stores;
mod services;
mod vectors;
mod verify;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  ci [STEP…]               what CI runs, or some of its steps: format, lints, tests, doc tests, loom, docs, vectors, wire types, locks,
                           and the proofs at a small size
  verify NAME|all|--list   check one guarantee or all of them, or list them with their seeded bugs; `prove` is the same
                           as `verify`, by the names below
  prove rate [--cases N]   every law of the rate axis over N worlds (default 1000000), and every seeded bug
  prove fair [--cases N]   every law of sharing by weight over N worlds (default 1000000), and every seeded bug
  prove learn              what the learners pay beside the best in hindsight, streams with any reservation, and
                           every seeded bug
  prove metering           three ways to meter tokens beside each other, and every seeded meter
  prove budget             how far a token budget is overshot by fleets on every shared store, and every seeded bug
  prove budget-use [--small]
                           how much of a token budget gets used in forty minutes (small: three), whatever others do, on
                           memory and on Redis, and every seeded bug
  prove sketch [--units N] N units (default 1000000000) of floods against limits in a sketch with exact counts beside, how
                           often they err, what a throttle sheds, and every seeded bug
  prove key-capacity [--small] [--keys N]
                           N keys (default 10000000) with one request each against budgets of 16 to 256 MiB (less for fewer
                           keys): who is denied early, what memory it takes, how long a check takes, and every seeded bug
  prove bid-price          what pricing earns beside the limits alone, that its duals are optimal, and every seeded bug
  prove inference [--small] [PART]
                           inferred ceilings where latencies hardly vary (steady) and where they have long tails (tails):
                           goodput beside the best fixed ceiling and three published rules, and every seeded bug
  prove slots [--small] [PART]
                           ceilings that are inferred, slots that are held, and one ceiling for a fleet
  prove admission [--small] [PART]
                           one call over all axes: every mix of axes and stores, fused and sequential, among faults, and a
                           gateway under load beside two baselines
  prove stores [--timelines N] [--from SEED] [--only NAME,NAME]
                           N timelines (default 100000) on every shared store, memory among them, and every seeded bug
  prove reload-room [--cases N] [--only NAME,NAME]
                           N timelines (default 200000) with changes of numbers in memory, one in fifty of them on every
                           other shared store, and every seeded bug
  prove fair-regions [--worlds N] [--timelines N]
                           what tenants of several regions get of one budget, in N worlds (default 100000); N timelines
                           (default 20000) of the pool on every shared store; and every seeded bug
  prove fleet [--seconds N]
                           fleets of node processes over a Redis of their own, N seconds of storm (default 120), and
                           every seeded fault
  prove failover [--rounds N]
                           N rounds (default 100) in which a Redis primary fails, for each mode of dealing with it
  prove isolated-callers [--small | --cases N [--no-server] | --replay ENGINE:SEED]
                           N schedules (default 10600) of shared types over several runtimes, of which one is dropped, idle,
                           blocked or cancels, on memory, Redis, PostgreSQL and a server, and every seeded bug; or one again
  prove label-truth [--rounds N | --small] [--engine postgres|redis]
                           N rounds (default 100) in which an engine loses charges, in every way and every mode: no decision
                           beyond the limit is labelled exact; and every seeded bug
  prove exhaustion [--seconds N | --small]
                           a PostgreSQL server whose commits hang for N seconds (default 60): connections, other
                           applications, recovery, and every seeded bug
  prove lease-sim [--seeds N] [--replay SEED]
                           N simulated fleets under faults (default 10000), and every seeded bug; or one of them told again
  prove lease-scale [--picture FILE]
                           what leasing costs and strands from eight nodes to ten thousand
  prove abuse [--small] [ATTACK]
                           what attacks on the server cost its other clients, and how much it grows under them
  prove envoy-hostile [--requests N]
                           N sets of random headers (default 100000) through a real Envoy, of a client whose limit is used up
  prove fair-service [--mixes N] [--seed N]
                           what honest principals get of the shipped program while others attack it by N random mixes of
                           attacks (default 200), over memory and Redis; shares by weight; what knowing callers costs
  prove fuzz [--small] [TARGET]
                           ten million inputs (small: a hundred thousand) for each reader of strangers' bytes: policy,
                           wire, descriptors, sketch
  prove wire-fuzz [--inputs N] [--seed S] [--from SESSION]
                           N mutated requests and frame sequences (default 1000000) over sockets to every listener of a
                           server: no crash, no hang, no leak; from a session of that seed on
  prove lease-model [--small]
                           every state of small worlds of nodes that lease, and a story for each assumption removed
  plots                    draw the pictures of the documents
  vectors [--check]        write our own golden vectors; with --check, fail if they have drifted
  proto [--check]          write the wire types from their .proto files; with --check, fail if they have drifted
  cycles                   fail if modules of different folders import each other
  locks                    fail if a workspace beside this one has a stale lock
  services up|down|status  real engines for the tests; `up` prints where they listen, for a shell to evaluate
  bench inproc             checks in process beside the peers; fails when a bar is missed
  bench sketch             limits in a sketch beside the peer that counts in one; fails when a bar is missed
  bench fair               a check among a hundred tenants that share a budget and among a hundred thousand
  bench budget             debits of a token budget in process beside a peer; fails when the bar is missed
  bench redis|postgres     decisions on a shared store beside what the engine does bare
  bench server             the service beside a bare echo and beside its own store
  bench lease              spends of a lease in process beside the peers, and batches on Redis beside single asks";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["ci", ref names @ ..] => ci::run(names),
        ["verify", "--list"] => {
            verify::list::print();
            Ok(())
        }
        ["verify", "all"] => verify::all(),
        ["verify" | "prove", name, ref rest @ ..] => verify::one(name, rest),
        ["plots", ref rest @ ..] => plots::run(rest),
        ["vectors"] => vectors::write(),
        ["vectors", "--check"] => vectors::check(),
        ["cycles"] => cycles::check(),
        ["locks"] => locks::check(),
        ["proto"] => proto::write(),
        ["proto", "--check"] => proto::check(),
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

//! What CI runs, in order. The first failure ends it and says what to rerun.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use throttlekit::{Clock, PreciseClock};

use crate::services::{self, Addresses};

/// A command with its name and the variables it needs.
struct Step {
    name: &'static str,
    env: &'static [(&'static str, &'static str)],
    command: &'static str,
}

const STEPS: [Step; 22] = [
    Step { name: "format", env: &[], command: "cargo fmt --all --check" },
    Step {
        name: "lints",
        env: &[],
        command: "cargo clippy --workspace --all-targets --all-features -- -D warnings",
    },
    Step { name: "tests", env: &[], command: "cargo nextest run --workspace --all-features --no-fail-fast" },
    Step { name: "doc tests", env: &[], command: "cargo test --doc --workspace --all-features" },
    Step {
        name: "loom",
        // A target of its own: other flags would rebuild everything else. Linking as one would cost minutes.
        env: &[
            ("RUSTFLAGS", "--cfg loom"),
            ("CARGO_TARGET_DIR", "target/loom"),
            ("CARGO_PROFILE_RELEASE_LTO", "off"),
            ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
        ],
        command: "cargo test -p throttlekit --features store --release --lib loom_",
    },
    Step {
        name: "docs",
        env: &[("RUSTDOCFLAGS", "-Dwarnings")],
        command: "cargo doc --no-deps --workspace --all-features",
    },
    Step { name: "vectors", env: &[], command: "cargo xtask vectors --check" },
    Step { name: "wire types", env: &[], command: "cargo xtask proto --check" },
    Step { name: "import cycles", env: &[], command: "cargo xtask cycles" },
    Step { name: "locks", env: &[], command: "cargo xtask locks" },
    Step { name: "laws, quickly", env: &[], command: "cargo xtask prove rate --cases 2000" },
    Step { name: "lease models, quickly", env: &[], command: "cargo xtask prove lease-model --small" },
    Step { name: "stores, quickly", env: &[], command: "cargo xtask prove stores --timelines 500" },
    Step { name: "long tails, quickly", env: &[], command: "cargo xtask prove inference --small tails" },
    Step { name: "key capacity, quickly", env: &[], command: "cargo xtask prove key-capacity --small" },
    Step { name: "reload room, quickly", env: &[], command: "cargo xtask prove reload-room --cases 1000" },
    Step {
        name: "slots, quickly",
        env: &[],
        command: "cargo xtask prove slots --small inference held models",
    },
    Step {
        name: "admission, quickly",
        env: &[],
        command: "cargo xtask prove admission --small matrix fused algebra price drill",
    },
    Step { name: "exhaustion, quickly", env: &[], command: "cargo xtask prove exhaustion --small" },
    Step {
        name: "labels, quickly",
        env: &[],
        command: "cargo xtask prove label-truth --small --engine redis",
    },
    Step { name: "budgets in use, quickly", env: &[], command: "cargo xtask prove budget-use --small" },
    Step { name: "fleets, quickly", env: &[], command: "cargo xtask prove lease-sim --seeds 200" },
];

const ENGINES_HINT: &str = "Tests find the engines after\n  eval \"$(cargo xtask services up)\"";

/// Runs every step, or those that are named, beside the real engines, and leaves them as it found them.
pub(crate) fn run(names: &[&str]) -> Result<()> {
    let steps: Vec<_> =
        STEPS.iter().filter(|step| names.is_empty() || names.contains(&&*step.short())).collect();
    let known = || STEPS.iter().map(Step::short).collect::<Vec<_>>().join(", ");
    ensure!(names.is_empty() || steps.len() == names.len(), "unknown step; there are {}", known());
    let were_up = services::recorded();
    let result = services::up().and_then(|addresses| run_steps(&steps, &addresses));
    let stopped = if were_up { Ok(()) } else { services::down() };
    result.and(stopped)
}

fn run_steps(steps: &[&Step], addresses: &Addresses) -> Result<()> {
    let clock = PreciseClock::new();
    let begun = clock.now();
    for step in steps {
        println!("── {}: {}", step.name, step.rerun());
        let at = clock.now();
        step.run(addresses)?;
        println!("── {}: {:.1} s", step.name, clock.now().since(at).as_secs_f64());
    }
    println!("── all of it: {:.1} s", clock.now().since(begun).as_secs_f64());
    Ok(())
}

impl Step {
    /// Its name on the command line.
    fn short(&self) -> String {
        self.name.trim_end_matches(", quickly").replace(' ', "-")
    }

    fn run(&self, addresses: &Addresses) -> Result<()> {
        let mut command = self.program()?;
        command.envs(self.env.iter().copied()).envs(addresses.env()).current_dir(root());
        let status = command.status().with_context(|| format!("cannot start: {}", self.command))?;
        if !status.success() {
            bail!("{} failed; rerun with\n  {}\n{ENGINES_HINT}", self.name, self.rerun());
        }
        Ok(())
    }

    /// A command of ours is this program: `cargo xtask` would build it again, with fewer features than the steps before it.
    fn program(&self) -> Result<Command> {
        let words = self.command.trim_start_matches("cargo ");
        let (program, words) = match words.strip_prefix("xtask ") {
            Some(own) => (env::current_exe().context("this program has no path")?, own),
            None => ("cargo".into(), words),
        };
        let mut command = Command::new(program);
        command.args(words.split(' '));
        Ok(command)
    }

    fn rerun(&self) -> String {
        let quoted = self.env.iter().map(|(name, value)| format!("{name}=\"{value}\" "));
        quoted.collect::<String>() + self.command
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

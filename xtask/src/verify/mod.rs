//! The verifications by name, and what all of them share: options, the optimized build, progress, seeded bugs, the `figure:`
//! line and the verdict.

pub(crate) mod list;
mod options;
pub(crate) mod parts;
mod run;
mod table;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub(crate) use options::Options;
pub(crate) use run::{Run, figure_of, hunt, in_parallel, in_threads, optimized, rounded, search};
use table::ALL;

use crate::model;

/// A check of guarantees.
pub(crate) struct Verification {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The options, as [`Options`] declares them.
    pub(crate) takes: &'static [&'static str],
    pub(crate) unoptimized: Unoptimized,
    pub(crate) run: Verify,
}

/// Verifies something. Returns the numbers of the figure; nothing where there is no figure, as after a replay.
pub(crate) type Verify = fn(&Options<'_>, &mut Run) -> Result<Value>;

/// When a build without optimization will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unoptimized {
    /// It waits for other processes.
    Always,
    Never,
    /// With `--small`.
    Small,
    /// Up to this many cases, and with `--small` or `--replay`.
    Cases(u64),
}

/// Runs the verification of this name.
pub(crate) fn one(name: &str, args: &[&str]) -> Result<()> {
    let mut known = ALL.iter().chain(&model::ALL);
    let named = known.find(|known| known.name == name);
    named.with_context(|| format!("unknown verification {name}\n{}", usage()))?.run(args)
}

/// Runs every verification at its full size. Names those that fail at the end.
pub(crate) fn all() -> Result<()> {
    let mut failed = Vec::new();
    for verification in &ALL {
        println!("── {}", verification.name);
        if let Err(error) = verification.run(&[]) {
            eprintln!("{error:#}");
            failed.push(verification.name);
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Returns the usage of every verification.
pub(crate) fn usage() -> String {
    let each = ALL.iter().map(|one| {
        let takes = options::usage(one.takes);
        format!("\n  verify {} {takes}\n{:27}{}", one.name, "", one.about)
    });
    format!("usage: cargo xtask verify NAME|all|--list\n{}", each.collect::<String>())
}

impl Verification {
    /// Runs it, in an optimized build where it is large, and prints its figure.
    pub(crate) fn run(&self, args: &[&str]) -> Result<()> {
        let options = Options::parse(&format!("verify {}", self.name), self.takes, args)?;
        if cfg!(debug_assertions) && !self.unoptimized.will_do(&options)? {
            return optimized(&[&["verify", self.name], args].concat());
        }
        let mut run = Run::begin(self.name);
        match (self.run)(&options, &mut run)? {
            Value::Null => run.verdict(),
            figure => run.end(figure),
        }
    }
}

impl Unoptimized {
    fn will_do(self, options: &Options<'_>) -> Result<bool> {
        Ok(match self {
            Self::Always => true,
            Self::Never => false,
            Self::Small => options.has("--small"),
            Self::Cases(max) => {
                let small = options.has("--small") || options.has("--replay");
                small || options.number("--cases", u64::MAX)? <= max
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ALL;

    #[test]
    fn every_verification_has_a_name_of_its_own() {
        let names: BTreeSet<_> = ALL.iter().map(|one| one.name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}

//! The parts that all verifications share: options, the optimized build, progress, seeded bugs, the `figure:`
//! line and the verdict.

mod options;
pub(crate) mod parts;
mod run;
mod services;

use anyhow::Result;
use serde_json::Value;
use throttlekit_conformance::bugs::SeededBug;

pub(crate) use options::{Options, usage};
pub use run::figure_of;
pub(crate) use run::{
    Run, beside_each_other, block_on, hunt, in_parallel, in_threads, optimized, progress, rounded, search,
};
pub(crate) use services::Services;
pub use services::StartServices;

/// A check of guarantees.
pub(crate) struct Verification {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The options, as [`Options`] declares them.
    pub(crate) takes: &'static [&'static str],
    pub(crate) unoptimized: Unoptimized,
    pub(crate) run: Verify,
}

/// Verifies something. Returns the numbers of the figure, or null where there is no figure, as after a
/// replay.
pub(crate) type Verify = fn(&Options<'_>, &mut Run) -> Result<Value>;

/// The conditions under which a build without optimization is enough.
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

impl Verification {
    /// Runs it, in an optimized build where it is large, and prints its figure.
    pub(crate) fn run(&self, args: &[&str], start: StartServices) -> Result<()> {
        let options = Options::parse(&format!("verify {}", self.name), self.takes, args)?;
        if cfg!(debug_assertions) && !self.unoptimized.will_do(&options)? {
            return optimized(&[&["verify", self.name], args].concat());
        }
        let mut run = Run::begin(self.name, Services::new(start));
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

/// Returns the names of these bugs.
pub(crate) fn names<B: SeededBug>(bugs: &[B]) -> Vec<&'static str> {
    bugs.iter().map(|bug| bug.name()).collect()
}

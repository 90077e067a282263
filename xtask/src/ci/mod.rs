//! `cargo xtask ci [STAGE…]`: what CI runs, in named stages. The first failure ends it and prints what to rerun.

mod stages;

use std::env;
use std::process::Command;

use anyhow::{Context, Result, bail};
use throttlekit::clock::{Clock, PreciseClock};

use crate::repository::root;
use crate::services::{self, Addresses};
use stages::{STAGES, Stage};

const ENGINES_HINT: &str = "Tests find the engines after\n  eval \"$(cargo xtask services up)\"";

/// Runs the named stages, in their order, or else all of a plain run; `--list` prints their names.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    if args == ["--list"] {
        print!("{}", listed());
        return Ok(());
    }
    let stages = chosen(args)?;
    let were_up = services::recorded();
    let result = run_stages(&stages);
    let stopped = if were_up || !services::recorded() { Ok(()) } else { services::down() };
    result.and(stopped)
}

fn listed() -> String {
    let line = |stage: &Stage| {
        let note = if stage.by_name_only { " (by name only)" } else { "" };
        format!("{:<22}{}{note}\n", stage.name, stage.rerun())
    };
    STAGES.iter().map(line).collect()
}

fn chosen(names: &[&str]) -> Result<Vec<&'static Stage>> {
    if let Some(unknown) = names.iter().find(|name| STAGES.iter().all(|stage| stage.name != **name)) {
        bail!("unknown stage {unknown:?}; `cargo xtask ci --list` prints all stages");
    }
    let chosen = |stage: &&Stage| {
        if names.is_empty() { !stage.by_name_only } else { names.contains(&stage.name) }
    };
    Ok(STAGES.iter().filter(chosen).collect())
}

fn run_stages(stages: &[&Stage]) -> Result<()> {
    let clock = PreciseClock::new();
    let mut engines = None;
    let mut seconds = Vec::new();
    let mut result = Ok(());
    for stage in stages {
        println!("── {}: {}", stage.name, stage.rerun());
        let begun = clock.now();
        result = run_one(stage, &mut engines);
        seconds.push((stage.name, clock.now().since(begun).as_secs_f64()));
        if result.is_err() {
            break;
        }
    }
    seconds.push(("total", seconds.iter().map(|(_, seconds)| seconds).sum()));
    println!("── seconds by stage");
    seconds.iter().for_each(|(name, seconds)| println!("{name:<22}{seconds:>8.1}"));
    result
}

/// Engines are started before the first stage that needs them, so that a failure of format or lints comes soon.
fn run_one(stage: &Stage, engines: &mut Option<Addresses>) -> Result<()> {
    if stage.engines && engines.is_none() {
        *engines = Some(services::up()?);
    }
    stage.run(engines.as_ref())
}

impl Stage {
    fn run(&self, engines: Option<&Addresses>) -> Result<()> {
        let mut command = self.program()?;
        command.envs(self.env.iter().copied()).envs(engines.into_iter().flatten().cloned());
        let status = command.current_dir(root()).status();
        let status = status.with_context(|| format!("cannot start: {}", self.command))?;
        if !status.success() {
            let hint = if self.engines { ENGINES_HINT } else { "" };
            bail!("{} failed; rerun with\n  {}\n{hint}", self.name, self.rerun());
        }
        Ok(())
    }

    /// A command of ours is this program: `cargo xtask` would build it again, with fewer features than other stages.
    fn program(&self) -> Result<Command> {
        let words = self.command.trim_start_matches("cargo ");
        let (program, words) = match words.strip_prefix("xtask ") {
            Some(own) => (env::current_exe().context("this program has no path")?, own),
            None => ("cargo".into(), words),
        };
        let mut command = Command::new(program);
        command.args(words.split_whitespace());
        Ok(command)
    }

    fn rerun(&self) -> String {
        let quoted = self.env.iter().map(|(name, value)| format!("{name}=\"{value}\" "));
        quoted.collect::<String>() + self.command
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::repository::manifests;

    #[test]
    fn a_plain_run_leaves_out_stages_that_run_by_name_only() {
        let names = |stages: Vec<&Stage>| stages.iter().map(|stage| stage.name).collect::<Vec<_>>();
        let plain = names(chosen(&[]).unwrap());
        assert!(plain.contains(&"test") && !plain.contains(&"deny"));
        assert_eq!(names(chosen(&["deny", "fmt"]).unwrap()), ["fmt", "deny"]);
    }

    #[test]
    fn unknown_stages_are_an_error() {
        let error = chosen(&["fmt", "lint"]).map(|_| ()).unwrap_err();
        assert!(error.to_string().starts_with("unknown stage \"lint\""), "{error}");
    }

    #[test]
    fn the_oldest_compiler_checks_every_library_crate() {
        let stage = STAGES.iter().find(|stage| stage.name == "msrv").unwrap();
        assert!(stage.command.starts_with(&format!("cargo +{}.0 ", manifests::LIBRARY_RUST)));
        let checked: Vec<_> = stage.command.split(" -p ").skip(1).collect();
        let mut libraries = manifests::libraries().unwrap();
        libraries.sort_unstable_by_key(|name| checked.iter().position(|checked| checked == name));
        assert_eq!(libraries, checked);
    }

    #[test]
    fn the_nightly_workflow_runs_every_verification_and_no_other() {
        let text = std::fs::read_to_string(root().join(".github/workflows/nightly.yml")).unwrap();
        let matrix = text.lines().skip_while(|line| line.trim() != "name:").skip(1);
        let listed = matrix.map_while(|line| line.trim_start().strip_prefix("- "));
        let named: BTreeSet<_> = listed.map(str::to_owned).collect();
        let known: BTreeSet<_> =
            throttlekit_verify_drivers::verification_names().map(str::to_owned).collect();
        assert_eq!(named, known);
    }

    /// Stages are named after `cargo xtask ci`, or in a matrix below `stages:`.
    #[test]
    fn workflows_run_every_stage_and_no_other() {
        let mut named = BTreeSet::new();
        for entry in std::fs::read_dir(root().join(".github/workflows")).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let mut in_matrix = false;
            for line in text.lines() {
                let listed = line.trim_start().strip_prefix("- ").filter(|_| in_matrix);
                in_matrix = listed.is_some() || line.trim_end().ends_with("stages:");
                let called = line.split_once("cargo xtask ci ").map(|(_, names)| names);
                let names = listed.or(called).unwrap_or_default();
                named.extend(names.split_whitespace().filter(|_| !names.contains('$')).map(str::to_owned));
            }
        }
        let known: BTreeSet<_> = STAGES.iter().map(|stage| stage.name.to_owned()).collect();
        assert_eq!(named, known);
    }
}

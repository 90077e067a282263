//! What attacks on the server cost everyone else. The attacks are those of its tests, with optimisation.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// Attacks a server in a process of its own, and fails if others were slowed down, it grew, or an attack did not take
/// place. The test bounds its own time.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args([
        "test",
        "--profile",
        "proof",
        "--quiet",
        "--package",
        "throttlekit-server",
        "--test",
        "network",
    ]);
    command.args(["--", "--ignored", "--exact", "figures::figures", "--nocapture"]);
    let (options, attacks): (Vec<&str>, Vec<&str>) = args.iter().partition(|arg| arg.starts_with('-'));
    match options[..] {
        [] => {}
        ["--small"] => {
            command.env("ABUSE_SMALL", "1");
        }
        _ => bail!("prove abuse takes --small and names of attacks, not {}", options.join(" ")),
    }
    command.env("ABUSE_ONLY", attacks.join(","));
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut figure = None;
    for line in BufReader::new(child.stdout.take().context("its output")?).lines() {
        let line = line?;
        if line.starts_with("figure: ") {
            figure = Some(line);
        } else {
            println!("{line}");
        }
    }
    let ended = child.wait()?;
    // Last, for whoever reads the last line.
    println!(
        "{}",
        figure.context(
            "the attacks did not come to their end; see above, and run it where nothing else runs"
        )?
    );
    ensure!(ended.success(), "not proved; see above");
    Ok(())
}

//! The engines' own benchmark programs.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs a program to its end and returns its output.
pub fn output(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(args)
        .output()
        .with_context(|| format!("{program} cannot be started; `cargo xtask services up` installs it"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{program} {} failed\n{text}{}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

/// Returns the number before a phrase on some line.
pub fn number_before(text: &str, phrase: &str) -> Result<f64> {
    let line = text.split(['\n', '\r']).rfind(|line| line.contains(phrase));
    let line = line.with_context(|| format!("no line says {phrase:?} in\n{text}"))?;
    let before = line.split(phrase).next().unwrap_or_default();
    let number = before.split([' ', ':', '=']).rfind(|word| !word.is_empty()).unwrap_or_default();
    number.parse().with_context(|| format!("{number:?} is no number, in {line:?}"))
}

/// Returns the number after a phrase on some line.
pub fn number_after(text: &str, phrase: &str) -> Result<f64> {
    let after = text.split(phrase).nth(1).with_context(|| format!("nothing says {phrase:?} in\n{text}"))?;
    let number = after.split_whitespace().next().unwrap_or_default();
    number.parse().with_context(|| format!("{number:?} is no number"))
}

//! Files that are passed to commands.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Result, bail};
use throttlekit_server::internals::access;
use throttlekit_server::policy::{self, Finding, PolicyError, PolicyFile};

/// Reads a file. The error names the file, the cause and the fix.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        let next = match error.kind() {
            ErrorKind::NotFound => ": check the path; see docs/reference/policy-file.md for an example",
            ErrorKind::PermissionDenied => ": grant read permission to the user who runs this",
            ErrorKind::IsADirectory => ": pass the path of a file",
            _ => "",
        };
        anyhow::anyhow!("{}: {error}{next}", path.display())
    })
}

/// Rejects files that a server cannot read repeatedly: a pipe blocks the reader, and a device has no end.
pub(crate) fn check_regular(path: &Path) -> Result<()> {
    if std::fs::metadata(path).is_ok_and(|file| !file.is_file() && !file.is_dir()) {
        bail!(
            "{}: not a regular file: the server reads it repeatedly; pass the path of a file",
            path.display()
        );
    }
    Ok(())
}

/// Loads a policy file and its warnings. Prints every error to standard error if the file is invalid.
pub(crate) fn policies(path: &Path) -> Result<(PolicyFile, Vec<Finding>)> {
    judged(path, policy::load)
}

/// Checks that every secret that a policy file refers to can be read here. Prints those that cannot to standard error.
pub(crate) fn secrets(path: &Path) -> Result<()> {
    judged(path, access::judge_secrets)
}

fn judged<T>(path: &Path, judge: impl Fn(&str) -> Result<T, Vec<PolicyError>>) -> Result<T> {
    let bytes = read(path)?;
    policy::text(&bytes).map_err(|error| vec![error]).and_then(judge).or_else(|errors| {
        errors.iter().for_each(|error| eprintln!("{error}"));
        let (count, s) = (errors.len(), if errors.len() == 1 { "" } else { "s" });
        bail!(
            "{}: {count} error{s}, see above; docs/reference/policy-file.md describes the format",
            path.display()
        )
    })
}

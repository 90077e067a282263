//! Files that are passed to commands.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
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
    let (bytes, mut errors) = (read(path)?, Errors::default());
    let judged = policy::text(&bytes).map_err(|error| vec![error]).and_then(judge);
    let kept = errors.keep(&path.display().to_string(), judged);
    errors.end("docs/reference/policy-file.md describes the format")?;
    kept.context("a file has a value or errors")
}

/// The content of a file, or of standard input.
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// Maximum number of files in one directory.
const FILES_MAX: usize = 1_000;

/// Reads files, the files of directories, and standard input for `-`, in this order.
pub(crate) fn inputs(paths: &[PathBuf]) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            // One byte more is refused with its reason.
            let (mut bytes, most) = (Vec::new(), policy::BYTES_MAX as u64 + 1);
            std::io::stdin().take(most).read_to_end(&mut bytes).context("cannot read standard input")?;
            inputs.push(Input { name: "standard input".into(), bytes });
            continue;
        }
        let files = if path.is_dir() { files_of(path)? } else { vec![path.clone()] };
        for file in files {
            inputs.push(Input { name: file.display().to_string(), bytes: read(&file)? });
        }
    }
    Ok(inputs)
}

/// Returns the YAML and JSON files of a directory by name, without hidden ones and those of directories in it.
fn files_of(directory: &Path) -> Result<Vec<PathBuf>> {
    let cannot = || format!("{}: cannot list the directory", directory.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_known = path.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json");
        if is_known && !is_hidden && path.is_file() {
            files.push(path);
        }
    }
    let name = directory.display();
    ensure!(
        !files.is_empty(),
        "{name}: no .yaml, .yml or .json file: pass the path of a file, or another directory"
    );
    ensure!(
        files.len() <= FILES_MAX,
        "{name}: {} files, at most {FILES_MAX} are read: pass some",
        files.len()
    );
    files.sort();
    Ok(files)
}

/// The errors of several files.
#[derive(Default)]
pub(crate) struct Errors {
    count: usize,
    /// Names of the files that have some.
    files: Vec<String>,
}

impl Errors {
    /// Prints the errors of a file to standard error, or returns the value.
    pub(crate) fn keep<T>(&mut self, name: &str, judged: Result<T, Vec<PolicyError>>) -> Option<T> {
        let errors = match judged {
            Ok(value) => return Some(value),
            Err(errors) => errors,
        };
        eprintln!("{name}:");
        errors.iter().for_each(|error| eprintln!("{error}"));
        self.count += errors.len();
        if self.files.last().is_none_or(|last| last != name) {
            self.files.push(name.to_owned());
        }
        None
    }

    /// Fails if there were errors, with the names of their files and the next step.
    pub(crate) fn end(&self, next: &str) -> Result<()> {
        let (files, s) = (self.files.join(", "), if self.count == 1 { "" } else { "s" });
        ensure!(self.count == 0, "{files}: {} error{s}, see above; {next}", self.count);
        Ok(())
    }
}

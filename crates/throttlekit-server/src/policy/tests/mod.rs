//! Tests of valid and malicious policy files.

mod any_file;
mod bad_files;
mod bombs;
mod built;
mod documented;
mod explained;
mod imported;
mod imported_limiters;
mod listed;
mod schema;

use std::sync::LazyLock;

use super::*;
use crate::engine::{Backend, Engine, EngineOptions};

/// Returns the error of a file that is rejected: line and column, path, message.
fn refused(text: &str) -> String {
    let errors = load(text).expect_err("the file is refused");
    let told = errors.iter().map(|error| {
        let place = error.place.map_or(String::new(), |place| format!("{}:{} ", place.line, place.column));
        let path = if error.path.is_empty() { String::new() } else { format!("{}: ", error.path) };
        format!("{place}{path}{}", error.message)
    });
    told.collect::<Vec<_>>().join("\n")
}

/// Returns the warnings of a file that is accepted.
fn warned(text: &str) -> String {
    let (_, warnings) = load(text).unwrap_or_else(|errors| panic!("{}", errors[0]));
    warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Runs a file with the memory store, as a server does.
fn starts(file: &PolicyFile) -> Result<(), String> {
    static BACKEND: LazyLock<Backend> = LazyLock::new(Backend::memory);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    Engine::start(EngineOptions::over(BACKEND.clone()), file.clone())
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Returns a file with one policy, `api`, of these lines.
fn api(lines: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    format!("version: 1\npolicies:\n  api:\n{lines}")
}

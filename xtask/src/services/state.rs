//! The record of `up` for later commands.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::server::Server;
use crate::repository::root;

/// The servers of each engine, by its name.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) engines: BTreeMap<String, Vec<Server>>,
}

impl State {
    /// Loads the record; empty if there is no file.
    pub(super) fn load() -> Result<Self> {
        let path = file()?;
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    pub(super) fn save(&self) -> Result<()> {
        let path = file()?;
        fs::create_dir_all(folder()?)?;
        fs::write(&path, serde_json::to_string_pretty(self)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Locks the record for a command that changes something: two at once would start everything twice.
pub(super) fn take_turn() -> Result<File> {
    let turn = File::create(target()?.join("services.lock"))?;
    turn.lock()?;
    Ok(turn)
}

/// Returns the directory that `down` removes.
pub(super) fn folder() -> Result<PathBuf> {
    Ok(target()?.join("services"))
}

/// Returns the directory of downloads, which are kept.
pub(super) fn cache() -> Result<PathBuf> {
    Ok(target()?.join("engines"))
}

fn file() -> Result<PathBuf> {
    Ok(folder()?.join("state.json"))
}

/// Returns the repository's own target directory, wherever cargo builds: each clone has its own servers.
fn target() -> Result<PathBuf> {
    let target = root().join("target");
    fs::create_dir_all(&target)?;
    Ok(fs::canonicalize(target)?)
}

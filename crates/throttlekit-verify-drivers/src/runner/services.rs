//! Real engines for the verifications that need them. `cargo xtask services` starts them.

use std::env;

use anyhow::{Context, Result};

/// Starts the engines of these names. Returns the environment variables that hold their addresses.
pub type StartServices = fn(&[&str]) -> Result<Vec<(&'static str, String)>>;

/// Engines that are started when they are needed.
#[derive(Clone, Copy)]
pub(crate) struct Services {
    start: StartServices,
}

impl Services {
    pub(super) fn new(start: StartServices) -> Self {
        Self { start }
    }

    /// Starts the engines of these names. Returns the environment variables that hold their addresses.
    pub(crate) fn up(self, names: &[&str]) -> Result<Vec<(&'static str, String)>> {
        (self.start)(names)
    }

    /// Returns the address of an engine: the value of the environment variable, if it is set. Starts the engine otherwise.
    pub(crate) fn address(self, name: &str, variable: &str) -> Result<String> {
        if let Ok(address) = env::var(variable) {
            return Ok(address);
        }
        let mut started = self.up(&[name])?.into_iter();
        let found = started.find(|(known, _)| *known == variable);
        found.map(|(_, address)| address).with_context(|| format!("{name} has no address in {variable}"))
    }
}

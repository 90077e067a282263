//! The statistics of Redis itself.

use anyhow::{Context, Result};
use redis::{Client, Connection};

/// Redis's own statistics of its commands, read on a connection of their own.
pub struct CommandStats(Connection);

impl CommandStats {
    pub fn of(url: &str) -> Result<Self> {
        Ok(Self(Client::open(url)?.get_connection()?))
    }

    /// Resets the statistics.
    pub fn reset(&mut self) -> Result<()> {
        Ok(redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut self.0)?)
    }

    /// Returns one field of one command, if it was called at all.
    pub fn field(&mut self, command: &str, field: &str) -> Result<Option<f64>> {
        let info: String = redis::cmd("INFO").arg("commandstats").query(&mut self.0)?;
        let Some(line) = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")))
        else {
            return Ok(None);
        };
        let value = line.split(',').find_map(|pair| pair.strip_prefix(&format!("{field}=")));
        let value = value.with_context(|| format!("commandstats have changed: no {field} in {line:?}"))?;
        value.parse().map(Some).with_context(|| format!("{field} is a number, not {value:?}"))
    }
}

//! Flags of the command line: `--name value`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};

/// The flags of one command, each taken once.
#[derive(Debug)]
pub struct Args(BTreeMap<String, String>);

impl Args {
    /// Reads pairs of names and values.
    pub fn read(words: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut words = words.into_iter();
        let mut flags = BTreeMap::new();
        while let Some(word) = words.next() {
            let name =
                word.strip_prefix("--").with_context(|| format!("{word}: expected a --flag"))?.to_owned();
            let value = words.next().with_context(|| format!("--{name}: its value is missing"))?;
            if flags.insert(name.clone(), value).is_some() {
                bail!("--{name} is given twice");
            }
        }
        Ok(Self(flags))
    }

    /// The value of a flag, if it is given.
    pub fn take<T: FromStr<Err: Display>>(&mut self, name: &str) -> Result<Option<T>> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|error| anyhow!("--{name} {value}: {error}"))
    }

    /// The value of a flag, or what it is unless given.
    pub fn or<T: FromStr<Err: Display>>(&mut self, name: &str, unless: T) -> Result<T> {
        Ok(self.take(name)?.unwrap_or(unless))
    }

    /// The value of a flag that has to be given.
    pub fn need<T: FromStr<Err: Display>>(&mut self, name: &str) -> Result<T> {
        self.take(name)?.with_context(|| format!("--{name} is missing"))
    }

    /// Nothing is left that nobody asked for.
    pub fn done(self) -> Result<()> {
        match self.0.keys().next() {
            Some(name) => bail!("--{name}: no such flag"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Args> {
        Args::read(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn flags_are_given_once_and_all_are_known() {
        let mut args = read("--port 80 --name x").unwrap();
        assert_eq!(args.or("port", 1_u16).unwrap(), 80);
        assert_eq!(args.or("other", 1_u16).unwrap(), 1);
        assert!(args.done().is_err(), "nobody asked for the name");
        assert!(read("--port").is_err() && read("port 80").is_err() && read("--a 1 --a 2").is_err());
        assert!(read("--port x").unwrap().need::<u16>("port").is_err());
        assert!(read("").unwrap().need::<u16>("port").is_err());
    }
}

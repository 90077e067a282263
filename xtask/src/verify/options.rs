//! The options of a verification: `--name VALUE` and `--name`.

use anyhow::{Context, Result, bail};

/// What was given on the command line.
pub(crate) struct Options<'a> {
    given: Vec<(&'a str, Option<&'a str>)>,
}

impl<'a> Options<'a> {
    /// Reads `args`. `known` lists what `what` takes: a name that ends with `=` takes a value.
    pub(crate) fn parse(what: &str, known: &[&str], args: &[&'a str]) -> Result<Self> {
        let (mut given, mut rest) = (Vec::new(), args.iter());
        while let Some(name) = rest.next() {
            if known.contains(name) {
                given.push((*name, None));
            } else if known.iter().any(|option| option.strip_suffix('=') == Some(*name)) {
                let value = rest.next().with_context(|| format!("{name} takes a value"))?;
                given.push((*name, Some(*value)));
            } else if known.is_empty() {
                bail!("{what} takes no options, not {}", args.join(" "));
            } else {
                bail!("{what} takes {}, not {name}", known.join(" ").replace('=', " N"));
            }
        }
        Ok(Self { given })
    }

    /// Returns whether a flag was given.
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.given.iter().any(|(name, _)| *name == flag)
    }

    /// Returns the number given by an option.
    pub(crate) fn number(&self, option: &str, default: u64) -> Result<u64> {
        let Some(value) = self.value(option) else { return Ok(default) };
        value.parse().with_context(|| format!("{option} {value}: expected an integer"))
    }

    /// Returns the names given by an option, which are separated by commas.
    pub(crate) fn names(&self, option: &str) -> Option<Vec<&'a str>> {
        self.value(option).map(|value| value.split(',').collect())
    }

    fn value(&self, option: &str) -> Option<&'a str> {
        self.given.iter().rev().find(|(name, _)| *name == option).and_then(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn options_have_values_defaults_and_flags() {
        let options = Options::parse("x", &["--cases=", "--small", "--only="], &["--cases", "7", "--small"]);
        let options = options.expect("known options");
        assert_eq!(options.number("--cases", 3).expect("a number"), 7);
        assert_eq!(options.number("--seed", 3).expect("a default"), 3);
        assert!(options.has("--small") && options.names("--only").is_none());
    }

    #[test]
    fn unknown_options_missing_values_and_wrong_numbers_are_errors() {
        assert!(Options::parse("x", &["--small"], &["--large"]).is_err());
        assert!(Options::parse("x", &[], &["--small"]).is_err());
        assert!(Options::parse("x", &["--cases="], &["--cases"]).is_err());
        let options = Options::parse("x", &["--cases="], &["--cases", "many"]).expect("a known option");
        assert!(options.number("--cases", 1).is_err());
    }
}

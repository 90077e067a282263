//! The options of a verification: `--name VALUE`, `--name`, and words.

use anyhow::{Context, Result, bail};

/// The parsed command line.
#[derive(Debug)]
pub(crate) struct Options<'a> {
    given: Vec<(&'a str, Option<&'a str>)>,
    words: Vec<&'a str>,
}

/// The declaration of an option: `--cases|--worlds=N` takes a value and has two names, of which the first is
/// used in the code. `--small` takes none. A declaration without a dash stands for any words.
type Declared<'a> = &'a str;

impl<'a> Options<'a> {
    /// Parses `args`, given the options that `what` takes.
    pub(crate) fn parse(what: &str, takes: &[Declared<'a>], args: &[&'a str]) -> Result<Self> {
        let (mut given, mut words, mut rest) = (Vec::new(), Vec::new(), args.iter());
        while let Some(arg) = rest.next() {
            match declared(takes, arg) {
                Some((name, true)) => {
                    let value = rest.next().with_context(|| format!("{arg} takes a value"))?;
                    given.push((name, Some(*value)));
                }
                Some((name, false)) => given.push((name, None)),
                None if !arg.starts_with('-') && takes.iter().any(|one| !one.starts_with('-')) => {
                    words.push(*arg);
                }
                None if takes.is_empty() => bail!("{what} takes no options, not {arg}"),
                None => bail!("{what} takes {}, not {arg}", usage(takes)),
            }
        }
        Ok(Self { given, words })
    }

    /// Returns `true` if an option was given.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.given.iter().any(|(name, _)| *name == option)
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

    /// Returns the value of an option, the last of them if there are several.
    pub(crate) fn value(&self, option: &str) -> Option<&'a str> {
        self.given.iter().rev().find(|(name, _)| *name == option).and_then(|(_, value)| *value)
    }

    /// Returns the words that belong to no option.
    pub(crate) fn words(&self) -> &[&'a str] {
        &self.words
    }
}

/// Returns these options as a line of usage.
pub(crate) fn usage(takes: &[Declared<'_>]) -> String {
    let shown = takes.iter().map(|one| {
        let (names, value) = one.split_once('=').unwrap_or((one, ""));
        let name = names.split('|').next().unwrap_or(names);
        format!("[{}]", format!("{name} {value}").trim_end())
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// Returns the first name of this option, and `true` if it takes a value.
fn declared<'a>(takes: &[Declared<'a>], arg: &str) -> Option<(&'a str, bool)> {
    takes.iter().filter(|one| one.starts_with('-')).find_map(|one| {
        let (names, takes_value) = one.split_once('=').map_or((*one, false), |(names, _)| (names, true));
        let mut names = names.split('|').peekable();
        let first = *names.peek()?;
        names.any(|name| name == arg).then_some((first, takes_value))
    })
}

#[cfg(test)]
mod tests {
    use super::{Options, usage};

    const TAKES: [&str; 4] = ["--cases|--worlds=N", "--small", "--only=NAME,NAME", "PART…"];

    #[test]
    fn options_have_values_defaults_and_flags() {
        let options = Options::parse("x", &TAKES, &["--cases", "7", "--small"]).expect("known options");
        assert_eq!(options.number("--cases", 3).expect("a number"), 7);
        assert_eq!(options.number("--seed", 3).expect("a default"), 3);
        assert!(options.has("--small") && options.names("--only").is_none());
    }

    #[test]
    fn an_option_may_have_another_name_and_words_are_kept() {
        let options = Options::parse("x", &TAKES, &["one", "--worlds", "7", "two"]).expect("known options");
        assert_eq!(options.number("--cases", 3).expect("a number"), 7);
        assert_eq!(options.words(), ["one", "two"]);
        assert_eq!(usage(&TAKES), "[--cases N] [--small] [--only NAME,NAME] [PART…]");
    }

    #[test]
    fn unknown_options_missing_values_and_wrong_numbers_are_errors() {
        assert!(Options::parse("x", &TAKES, &["--large"]).is_err());
        assert!(Options::parse("x", &["--small"], &["word"]).is_err());
        assert!(Options::parse("x", &[], &["--small"]).is_err());
        assert!(Options::parse("x", &TAKES, &["--cases"]).is_err());
        let options = Options::parse("x", &TAKES, &["--cases", "many"]).expect("a known option");
        assert!(options.number("--cases", 1).is_err());
    }
}

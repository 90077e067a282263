//! Seeded bugs: each is declared once, with a name and a description, and a check must find it.
//!
//! [`bugs!`](crate::bugs!) declares the bugs of one subject. [`Found`] is the outcome of looking for them.

use std::fmt;

/// A seeded bug. [`bugs!`](crate::bugs!) implements it.
pub trait SeededBug: Copy + 'static {
    /// All bugs of the same subject, in the order of their declaration.
    const ALL: &'static [Self];
    /// Returns the name: that of the variant, in snake case.
    fn name(self) -> &'static str;
    /// Returns one sentence that describes the bug.
    fn description(self) -> &'static str;
}

/// Declares an enum of seeded bugs, each with one sentence that describes it.
///
/// The enum has the constant `ALL` and the methods `name` (the variant in snake case) and `description`. Simulators declare
/// the faults that they inject in the same way.
///
/// ```
/// throttlekit_conformance::bugs! {
///     /// A seeded bug of a store.
///     pub enum StoreBug {
///         DenialChargesSome: "A denial charges the limits that would have allowed the request.",
///         PeekWrites: "A peek writes the state that it reads.",
///     }
/// }
///
/// assert_eq!(StoreBug::ALL.len(), 2);
/// assert_eq!(StoreBug::PeekWrites.name(), "peek_writes");
/// ```
#[macro_export]
macro_rules! bugs {
    ($(#[$meta:meta])* $vis:vis enum $kind:ident { $($name:ident: $what:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(clippy::enum_variant_names, reason = "a name says what is wrong, and much may be ignored")]
        $vis enum $kind {
            $(#[doc = $what] $name,)*
        }

        #[allow(dead_code, reason = "a private list may use only some of them")]
        impl $kind {
            /// All of them, in the order of their declaration.
            $vis const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the name: that of the variant, in snake case.
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => {
                        const PASCAL: &str = stringify!($name);
                        const SNAKE: &[u8] =
                            &$crate::bugs::snake_case::<{ $crate::bugs::snake_case_len(PASCAL) }>(PASCAL);
                        const NAME: &str = $crate::bugs::text(SNAKE);
                        NAME
                    })*
                }
            }

            /// Returns one sentence that describes it.
            $vis const fn description(self) -> &'static str {
                match self {
                    $(Self::$name => $what,)*
                }
            }
        }

        impl $crate::bugs::SeededBug for $kind {
            const ALL: &'static [Self] = Self::ALL;

            fn name(self) -> &'static str {
                Self::name(self)
            }

            fn description(self) -> &'static str {
                Self::description(self)
            }
        }
    };
}

/// The outcome of looking for seeded bugs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The names of the found bugs.
    pub found: Vec<&'static str>,
    /// The names of the missed bugs.
    pub missed: Vec<&'static str>,
}

impl Found {
    /// Looks for each of these bugs.
    pub fn of<B: SeededBug>(bugs: &[B], mut is_found: impl FnMut(B) -> bool) -> Self {
        let mut outcome = Self::default();
        bugs.iter().for_each(|bug| outcome.note(bug.name(), is_found(*bug)));
        outcome
    }

    /// Looks for every bug of one subject.
    pub fn all<B: SeededBug>(is_found: impl FnMut(B) -> bool) -> Self {
        Self::of(B::ALL, is_found)
    }

    /// Adds a bug.
    pub fn note(&mut self, name: &'static str, is_found: bool) {
        if is_found { self.found.push(name) } else { self.missed.push(name) }
    }

    /// Combines both outcomes.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.found.extend(other.found);
        self.missed.extend(other.missed);
        self
    }

    /// Returns the number of bugs that were looked for.
    pub fn total(&self) -> usize {
        self.found.len() + self.missed.len()
    }

    /// Returns one line with the names of all found bugs.
    pub fn line(&self) -> String {
        format!("seeded bugs found {}/{}: {}", self.found.len(), self.total(), self.found.join(", "))
    }

    /// Returns an error that names the missed bugs, if there are any.
    pub fn check(&self) -> Result<(), MissedBugs> {
        if self.missed.is_empty() {
            return Ok(());
        }
        Err(MissedBugs(self.missed.clone()))
    }
}

/// The names of seeded bugs that a check did not find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissedBugs(pub Vec<&'static str>);

impl fmt::Display for MissedBugs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seeded bugs not found: {}", self.0.join(", "))
    }
}

impl std::error::Error for MissedBugs {}

#[doc(hidden)]
pub const fn snake_case_len(pascal: &str) -> usize {
    let (bytes, mut len, mut at) = (pascal.as_bytes(), 0, 0);
    while at < bytes.len() {
        len += if at > 0 && bytes[at].is_ascii_uppercase() { 2 } else { 1 };
        at += 1;
    }
    len
}

#[doc(hidden)]
pub const fn snake_case<const LEN: usize>(pascal: &str) -> [u8; LEN] {
    let (bytes, mut snake, mut at, mut end) = (pascal.as_bytes(), [b'_'; LEN], 0, 0);
    while at < bytes.len() {
        if at > 0 && bytes[at].is_ascii_uppercase() {
            end += 1;
        }
        snake[end] = bytes[at].to_ascii_lowercase();
        end += 1;
        at += 1;
    }
    snake
}

#[doc(hidden)]
pub const fn text(snake: &[u8]) -> &str {
    match str::from_utf8(snake) {
        Ok(text) => text,
        Err(_) => panic!("a variant with a name in ASCII"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Found, MissedBugs};

    crate::bugs! {
        /// Two.
        enum Bug {
            OneTooMany: "It counts one too many.",
            Lost: "It is lost.",
        }
    }

    #[test]
    fn names_are_those_of_the_variants_in_snake_case() {
        let names: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        assert_eq!(names, ["one_too_many", "lost"]);
        assert_eq!(Bug::Lost.description(), "It is lost.");
    }

    #[test]
    fn an_outcome_lists_found_and_missed_bugs() {
        let outcome = Found::all(|bug: Bug| bug == Bug::Lost).merge(Found::of(&[Bug::Lost], |_| true));
        assert_eq!(outcome.line(), "seeded bugs found 2/3: lost, lost");
        assert_eq!(outcome.check(), Err(MissedBugs(vec!["one_too_many"])));
        assert_eq!(Found::of(&[Bug::Lost], |_| true).check(), Ok(()));
    }
}

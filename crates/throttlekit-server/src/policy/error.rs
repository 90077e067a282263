//! Errors in a file: the location, the cause and the fix.

use std::fmt;

/// A location in a file, as editors count: both from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

impl Place {
    /// Creates a place. A file is shorter than either number could be.
    pub(super) fn at(line: usize, column: usize) -> Self {
        let short = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { line: short(line), column: short(column) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// An error in a file. Displayed over several lines, with the line that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// Path in the structure of the file: `policies.api.rate[0].per`. Empty if the error concerns the whole file.
    pub path: String,
    /// Location in the text, if known.
    pub place: Option<Place>,
    /// Cause, and the fix.
    pub message: String,
    /// Excerpt of that line.
    excerpt: Option<Excerpt>,
}

/// The part of a line around a location.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    text: String,
    /// Number of characters before the location.
    before: usize,
}

/// Number of characters of a line that are shown before and after the location.
const SHOWN_EACH_SIDE: usize = 60;

impl PolicyError {
    /// Creates an error at this location of `source`.
    pub(super) fn at(source: &str, path: String, place: Option<Place>, message: String) -> Self {
        let excerpt = place.and_then(|place| Excerpt::of(source, place));
        Self { path, place, message, excerpt }
    }
}

impl Excerpt {
    fn of(source: &str, place: Place) -> Option<Self> {
        let line = source.lines().nth(place.line.checked_sub(1)? as usize)?;
        let before = place.column.saturating_sub(1) as usize;
        let skipped = before.saturating_sub(SHOWN_EACH_SIDE);
        let shown = line.chars().skip(skipped).take(before - skipped + SHOWN_EACH_SIDE);
        let text: String = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
        Some(Self { text: text.trim_end().to_owned(), before: before - skipped })
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        let Some(place) = self.place else { return Ok(()) };
        write!(f, "\n at {place}")?;
        let Some(excerpt) = &self.excerpt else { return Ok(()) };
        let number = place.line.to_string();
        let (margin, indent) = (number.len(), excerpt.before);
        write!(f, "\n {number} | {}\n {:margin$} | {:indent$}^", excerpt.text, "", "")
    }
}

impl std::error::Error for PolicyError {}

/// Returns the element of `known` that was probably meant by `name`, as the end of a sentence.
pub(super) fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = |known: &str| 1 + known.len() / 4;
    let worth = |known: &&str| {
        let longest = name.len().max(known.len());
        longest <= COMPARED_MAX && name.len().abs_diff(known.len()) <= 2 * near(known)
    };
    let nearest = known.into_iter().filter(worth).map(|known| (distance(name, known), known)).min();
    match nearest {
        Some((far, known)) if far <= near(known) => format!("; did you mean `{known}`?"),
        _ => String::new(),
    }
}

/// Maximum length of names that are compared, since the work is quadratic.
const COMPARED_MAX: usize = 40;

/// Returns the number of characters to insert, delete, replace or swap with their neighbor.
fn distance(a: &str, b: &str) -> usize {
    let lower = |text: &str| text.chars().flat_map(char::to_lowercase).collect::<Vec<_>>();
    let (a, b) = (lower(a), lower(b));
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            let swap = if swapped { rows[i - 2][j - 2] + 1 } else { usize::MAX };
            rows[i][j] = change.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(swap);
        }
    }
    rows[a.len()][b.len()]
}

/// Maximum length of a name that is shown in a path.
const NAME_SHOWN_MAX: usize = 128;

/// Formats a name as a step of a path: quoted if it could be read as more than one step.
pub(super) fn step(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '*' | '/' | ':' | '@');
    if (1..=NAME_SHOWN_MAX).contains(&name.len()) && name.chars().all(plain) {
        return name.to_owned();
    }
    let shown: String = name.chars().take(NAME_SHOWN_MAX).collect();
    format!("\"{}\"", shown.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_under_the_place() {
        let place = Some(Place { line: 2, column: 6 });
        let error = PolicyError::at("a: 1\nper: 1x\n", "per".into(), place, "invalid duration".into());
        assert_eq!(
            error.to_string(),
            "per: invalid duration\n at line 2, column 6\n 2 | per: 1x\n   |      ^"
        );
    }

    #[test]
    fn a_long_line_is_shown_around_the_place() {
        let source = format!("{}X{}", "a".repeat(5_000), "b".repeat(5_000));
        let error =
            PolicyError::at(&source, String::new(), Some(Place { line: 1, column: 5_001 }), "m".into());
        let shown = error.to_string();
        assert!(shown.len() < 400, "{shown}");
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[2].find('X'), lines[3].find('^'));
    }

    #[test]
    fn only_near_names_are_suggested() {
        let known = ["burst", "limit", "per"];
        assert_eq!(did_you_mean("burts", known), "; did you mean `burst`?");
        assert_eq!(did_you_mean("Limit", known), "; did you mean `limit`?");
        assert_eq!(did_you_mean("color", known), "");
        assert_eq!(did_you_mean("x", []), "");
    }
}

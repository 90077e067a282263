//! Loading a file: parse, check, try.

use super::check::{Finding, Report, Severity, check, too_many};
use super::error::{Place, PolicyError, step};
use super::model::PolicyFile;
use super::read::{Unread, is_within, read_all};
use super::tree::{self, Node, Value};

/// Parses a file: its syntax and size, not its meaning. Returns the first error.
pub fn parse(text: &str) -> Result<PolicyFile, PolicyError> {
    read_file(text).map(|(_, file)| file).map_err(|mut errors| errors.swap_remove(0))
}

/// Returns the file, or at least one error.
fn read_file(text: &str) -> Result<(Node, PolicyFile), Vec<PolicyError>> {
    let root = tree::parse(text).map_err(|error| vec![error])?;
    let (root, file) = read_all(text, root).map_err(|(root, unread)| with_meaning(text, &root, unread))?;
    match too_many(&file) {
        Some(found) => Err(vec![located(text, &root, found)]),
        None => Ok((root, file)),
    }
}

/// Adds the errors in the meaning of the policies that were read as a whole. What refers to other parts of the file is not
/// checked: those may be missing because of their errors.
fn with_meaning(text: &str, root: &Node, unread: Unread<PolicyFile>) -> Vec<PolicyError> {
    let Unread { mut errors, rest } = unread;
    let Some(file) = rest.filter(|file| too_many(file).is_none()) else { return errors };
    let PolicyFile { version, defaults, mut policies, .. } = file;
    policies.retain(|name, _| {
        let path = format!("policies.{}", step(name));
        !errors.iter().any(|error| is_within(&error.path, &path))
    });
    let findings = check(&PolicyFile { version, defaults, policies, ..PolicyFile::default() });
    let wrong = findings.into_iter().filter(|finding| finding.severity == Severity::Error);
    errors.extend(wrong.map(|finding| located(text, root, finding)));
    first_of(errors)
}

/// Maximum number of errors that are reported at once.
pub const ERRORS_MAX: usize = 100;

/// Parses a file, checks its meaning and tries each limit.
///
/// Returns the file with warnings, or every error.
pub fn load(text: &str) -> Result<(PolicyFile, Vec<Finding>), Vec<PolicyError>> {
    let (root, file) = read_file(text)?;
    let (errors, warnings): (Vec<_>, Vec<_>) =
        check(&file).into_iter().partition(|finding| finding.severity == Severity::Error);
    if errors.is_empty() {
        let placed = |found: Finding| Finding { place: place_of(&root, &found.path), ..found };
        return Ok((file, warnings.into_iter().map(placed).collect()));
    }
    Err(all_of(text, &root, errors))
}

/// Parses a file, and returns the errors of a further check with their locations in the text.
pub(crate) fn judge(
    text: &str,
    check: impl FnOnce(&PolicyFile, &mut Report),
) -> Result<(), Vec<PolicyError>> {
    let (root, file) = read_file(text)?;
    let mut report = Report::default();
    check(&file, &mut report);
    if report.findings.is_empty() { Ok(()) } else { Err(all_of(text, &root, report.findings)) }
}

/// Returns the first errors with their locations, and the number of further ones.
fn all_of(text: &str, root: &Node, errors: Vec<Finding>) -> Vec<PolicyError> {
    let more = errors.len().saturating_sub(ERRORS_MAX);
    let shown = errors.into_iter().take(ERRORS_MAX).map(|found| located(text, root, found)).collect();
    and_more(shown, more)
}

/// Returns the first errors, and the number of further ones.
pub(super) fn first_of(mut errors: Vec<PolicyError>) -> Vec<PolicyError> {
    let more = errors.len().saturating_sub(ERRORS_MAX);
    errors.truncate(ERRORS_MAX);
    and_more(errors, more)
}

fn and_more(mut shown: Vec<PolicyError>, more: usize) -> Vec<PolicyError> {
    if more > 0 {
        shown.push(PolicyError::at("", String::new(), None, format!("and {more} more")));
    }
    shown
}

/// Decodes the text of a file that was read from a disk or a socket.
pub fn text(bytes: &[u8]) -> Result<&str, PolicyError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let good = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        let line = good.matches('\n').count() + 1;
        let column = good.chars().rev().take_while(|c| *c != '\n').count() + 1;
        let message = "invalid UTF-8: save the file as UTF-8".to_owned();
        PolicyError::at("", String::new(), Some(Place::at(line, column)), message)
    })
}

/// Adds the location in the text to a finding.
pub(super) fn located(text: &str, root: &Node, found: Finding) -> PolicyError {
    let place = place_of(root, &found.path);
    PolicyError::at(text, found.path, place, found.message)
}

/// Returns the location of a path, or of its nearest ancestor that is present.
fn place_of(node: &Node, path: &str) -> Option<Place> {
    let (place, inner, rest) = match &node.value {
        Value::Scalar { .. } | Value::Removed => return None,
        Value::List(items) => {
            let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
            let item = items.get(index.parse::<usize>().ok()?)?;
            (item.at, item, rest)
        }
        Value::Mapping(pairs) => pairs.iter().find_map(|(key, value)| {
            let rest = path.strip_prefix(&step(&key.text))?;
            let whole = rest.is_empty() || rest.starts_with(['.', '[']);
            let place = if value.is_scalar() { value.at } else { key.at };
            whole.then_some((place, value, rest))
        })?,
    };
    // A single rate may be written without a list, and is a list of one all the same.
    let alone = matches!(inner.value, Value::Mapping(_));
    let rest = if alone { rest.strip_prefix("[0]").unwrap_or(rest) } else { rest };
    place_of(inner, rest.strip_prefix('.').unwrap_or(rest)).or(Some(place))
}

//! `cargo xtask prose`: sentence lengths of the pages that people learn from, and words to avoid, in
//! pages, doc comments and strings.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::repository::{root, tracked};

/// Words per sentence: the median and, in hundredths of the sentences, how many may be longer than [`LONG`].
const MEDIAN_MAX: usize = 18;
const LONG: usize = 30;
const LONG_SHARE_MAX: usize = 5;

/// Invented or old-fashioned words for things that have a standard term.
const REPLACED: &[&str] = &[
    "anew",
    "at the most",
    "desk",
    "desks",
    "drawer",
    "for want of",
    "mend",
    "mended",
    "mends",
    "of use",
    "parcel",
    "parcels",
    "planted",
    "purse",
    "purses",
    "so many",
    "storm",
    "storms",
    "struck off",
    "sent away",
    "till",
    "tills",
    "turned away",
    "two-tier",
    "under way",
    "unless stated",
    "unless told",
    "weather",
    "whereof",
    "whoever",
    "witness",
];

/// Terms that readers search for, each on the pages where the thing is described.
const TERMS: &[(&str, &[&str])] = &[
    (
        "circuit breaker",
        &["docs/guides/outages.md", "docs/operate/runbook.md", "docs/concepts/failure-modes.md"],
    ),
    ("connection pool", &["docs/operate/postgres.md"]),
    ("idempoten", &["docs/guides/llm-tokens.md", "docs/guides/reservations.md"]),
    ("timeout", &["docs/guides/outages.md", "docs/guides/rust-client.md"]),
    ("retry", &["docs/guides/protect-an-api.md", "docs/guides/rust-client.md"]),
    ("backoff", &["docs/guides/rust-client.md"]),
    ("default", &["docs/reference/policy-file.md", "docs/guides/concurrency.md"]),
];

/// Fails if a page for learners is hard to read, a page uses a word to avoid, or a term is missing.
pub(crate) fn check() -> Result<()> {
    let (mut problems, mut lengths) = (Vec::new(), Vec::new());
    for page in tracked(".md")?.iter().filter(|page| is_read(page)) {
        let text = fs::read_to_string(root().join(page))?;
        problems.extend(replaced(&text).into_iter().map(|found| format!("{}:{found}", page.display())));
        if is_for_learners(page) {
            let found = sentences(&text);
            problems.extend(hard(&found).map(|why| format!("{}: {why}", page.display())));
            lengths.extend(found);
        }
    }
    for file in tracked(".rs")?.iter().filter(|file| is_shown(file)) {
        let shown: String =
            fs::read_to_string(root().join(file))?.lines().map(|line| shown(line) + "\n").collect();
        problems.extend(replaced(&shown).into_iter().map(|found| format!("{}:{found}", file.display())));
    }
    for (term, pages) in TERMS {
        for page in *pages {
            let text = fs::read_to_string(root().join(page))?.to_lowercase();
            if !text.contains(term) {
                problems.push(format!("{page}: the term {term:?} is missing"));
            }
        }
    }
    problems.iter().for_each(|problem| println!("  {problem}"));
    let long = lengths.iter().filter(|words| **words > LONG).count();
    let figure = json!({
        "name": "prose", "sentences": lengths.len(), "median_words": median(&mut lengths.clone()),
        "long_percent": (long * 1000 / lengths.len().max(1)) as f64 / 10.0, "problems": problems.len(),
    });
    println!("figure: {figure}");
    ensure!(problems.is_empty(), "{} problems in the prose; they are listed above", problems.len());
    Ok(())
}

/// Pages that users read. Decisions and the list of renames name the words of their time.
fn is_read(page: &Path) -> bool {
    let kept = ["docs/contribute/decisions", "docs/contribute/renames.md", "CHANGELOG.md"];
    !kept.iter().any(|kept| page.starts_with(kept))
}

/// Sources whose documentation and texts users see.
fn is_shown(file: &Path) -> bool {
    let own = ["sim", "verify", "verify-drivers", "fuzz"].map(|name| format!("crates/throttlekit-{name}"));
    let is_source = file.components().any(|part| part.as_os_str() == "src");
    let is_test = file.to_string_lossy().contains("test");
    let is_ours = file.starts_with("crates") || file.starts_with("apps");
    is_ours && is_source && !is_test && !own.iter().any(|own| file.starts_with(own))
}

/// The doc comment or the strings of a line of code.
fn shown(line: &str) -> String {
    let line = line.trim_start();
    let comment = line.strip_prefix("///").or(line.strip_prefix("//!"));
    comment.map_or_else(|| line.split('"').skip(1).step_by(2).collect::<Vec<_>>().join(" x "), str::to_owned)
}

fn is_for_learners(page: &Path) -> bool {
    ["docs/start", "docs/guides", "docs/concepts", "README.md"].iter().any(|part| page.starts_with(part))
}

fn hard(lengths: &[usize]) -> Option<String> {
    let long = lengths.iter().filter(|words| **words > LONG).count();
    let median = median(&mut lengths.to_vec());
    let is_hard = median > MEDIAN_MAX || long * 100 > lengths.len() * LONG_SHARE_MAX;
    is_hard.then(|| format!("median sentence {median} words, {long} of {} over {LONG}", lengths.len()))
}

fn median(lengths: &mut [usize]) -> usize {
    lengths.sort_unstable();
    lengths.get(lengths.len() / 2).copied().unwrap_or_default()
}

/// Replaced words with their lines.
fn replaced(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.contains("://")) {
        let letters = |letter: char| if letter.is_alphanumeric() || letter == '-' { letter } else { ' ' };
        let spaced: String = outside_code(line).to_lowercase().chars().map(letters).collect();
        let words = format!(" {} ", spaced.split_whitespace().collect::<Vec<_>>().join(" "));
        let here = REPLACED.iter().filter(|word| words.contains(&format!(" {word} ")));
        found.extend(
            here.map(|word| format!("{}: {word:?} is a word to avoid: use the standard term", index + 1)),
        );
    }
    found
}

fn outside_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" x ")
}

/// The number of words of each sentence outside of code, tables and headings.
fn sentences(text: &str) -> Vec<usize> {
    let (mut lengths, mut words, mut fenced) = (Vec::new(), 0, false);
    for line in text.lines() {
        let line = line.trim_start();
        if line.starts_with("```") {
            fenced = !fenced;
        }
        let breaks =
            line.is_empty() || line.starts_with(['*', '-', '#', '|', '<', '!']) || line.starts_with("```");
        if breaks {
            lengths.push(std::mem::take(&mut words));
        }
        if fenced || line.starts_with(['#', '|', '<', '!', '`']) {
            continue;
        }
        for word in line.split_whitespace() {
            words += usize::from(word.contains(char::is_alphanumeric));
            if word.trim_end_matches(['*', ')', '"', '_']).ends_with(['.', '!', '?', ':', ';']) {
                lengths.push(std::mem::take(&mut words));
            }
        }
    }
    lengths.push(words);
    lengths.retain(|words| *words > 2);
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_counted_outside_of_code_and_tables() {
        let text = "# A long heading here\n\nOne two three. Four five\nsix seven!\n\n| a b c d |\n```\nnot this one here\n```\n* An item of five words";
        assert_eq!(sentences(text), [3, 4, 5]);
    }

    #[test]
    fn replaced_words_are_found_outside_of_code_and_addresses() {
        let found = replaced("a storm\n`storm`\nbrainstorms\nhttps://x.y/storm\nAt the\tmost three");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("1: \"storm\"") && found[1].starts_with("5: \"at the most\""));
    }

    #[test]
    fn doc_comments_and_strings_of_code_are_shown() {
        assert_eq!(shown("    /// A storm."), " A storm.");
        assert_eq!(shown(r#"bail!("one {x}", two, "three") // storm"#), "one {x} x three");
    }

    #[test]
    fn long_sentences_make_a_page_hard() {
        assert_eq!(hard(&[10; 40]), None);
        assert!(hard(&[20; 40]).is_some());
        assert!(hard(&[[10; 30].as_slice(), &[40; 3]].concat()).is_some());
    }
}

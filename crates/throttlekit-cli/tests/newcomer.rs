//! The README's first five minutes with the server, run as they are written: only the ports are others, so that
//! tests do not meet, and what is installed there is what was just built. Its Python is run by the tests of the Python
//! package.

use std::fs;
use std::path::Path;
use std::time::Duration;

use throttlekit::clock::{BootClock, Clock};

use crate::common::reader::{Reader, blocks};

const README: &str = include_str!("../../../README.md");
const HEADING: &str = "## As a service, for any language\n";
/// Tries until `top` shows what happened, 50 ms apart.
const TRIES_MAX: u32 = 400;

#[test]
fn the_readmes_first_five_minutes_are_true() {
    let began = BootClock.now();
    let mut reader = Reader::new();
    let section = README.split_once(HEADING).expect("the section is there").1;
    let section = section.split_once("\n## ").expect("another follows").0;
    let of = |language| -> Vec<String> {
        blocks(section)
            .into_iter()
            .filter(|block| block.language == language)
            .map(|block| block.text)
            .collect()
    };
    let [policies] = &of("yaml")[..] else { panic!("one policy file") };
    fs::write(reader.folder.path().join("policies.yaml"), policies).unwrap();
    let [install, start, ask, top] = &of("sh")[..] else { panic!("install, start, ask, top") };
    let crate_path = install.trim().strip_prefix("cargo install --path ").expect("how it is installed");
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).ends_with(crate_path), "{crate_path}");

    let (lint, serve) = start.trim().split_once('\n').expect("lint, then serve");
    let said = reader.types(lint);
    assert!(said.contains("api:\n  5 units per minute for each key"), "{said}");
    assert!(said.contains("2,000 tokens per calendar day"), "{said}");
    reader.serve(serve);

    let said = reader.types(ask);
    let answers: Vec<_> = said.lines().collect();
    assert_eq!(answers.len(), 6, "{said}");
    for (turn, answer) in answers[..5].iter().enumerate() {
        assert!(answer.contains(r#""allowed":true"#) && answer.ends_with(" 200"), "{answer}");
        assert!(answer.contains(&format!(r#""remaining":{},"#, 4 - turn)), "{answer}");
    }
    let last = answers[5];
    assert!(last.contains(r#""allowed":false"#) && last.ends_with(" 429"), "{last}");
    assert!(last.contains(r#""retry":"after""#) && !last.contains(r#""retry_after_ms":0,"#), "{last}");

    // Lists of keys follow decisions by a moment.
    let told = |said: &str| {
        said.contains(r#"policy name="api" kind=rate allowed=5 denied=1"#) && said.contains(r#"key="alice""#)
    };
    let mut said = String::new();
    let seen = (0..TRIES_MAX).any(|_| {
        said = reader.types(top);
        told(&said) || {
            std::thread::sleep(Duration::from_millis(50));
            false
        }
    });
    assert!(seen, "{said}");
    println!("the README's path took {} ms", BootClock.now().since(began).as_millis());
}

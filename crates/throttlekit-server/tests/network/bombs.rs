//! Policy files that are made to hurt whoever reads them.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

const MIB: usize = 1 << 20;

/// One of each kind, different from those before: a file that was judged is not judged again.
pub(crate) fn all() -> [String; 5] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mark = format!("# {} {}\n", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    [laughs(), "[".repeat(MIB - 100), wide(), wrong_to_the_end(), deep_lines()]
        .map(|text| text + "\n" + &mark)
}

/// Each name stands for eight of the one before.
fn laughs() -> String {
    "bcdefghij".chars().zip("abcdefghi".chars()).fold(
        String::from("a: &a [lol, lol]\n"),
        |mut text, (this, last)| {
            let _ = writeln!(text, "{this}: &{this} [{}]", vec![format!("*{last}"); 8].join(", "));
            text
        },
    )
}

/// Values upon values, as many as a file has room for.
fn wide() -> String {
    format!("version: [{}]", "1,".repeat(MIB / 2 - 100))
}

/// As many policies as are read, each of them wrong.
fn wrong_to_the_end() -> String {
    (0..10_000).fold(String::from("version: 1\npolicies:\n"), |mut text, number| {
        let _ = writeln!(text, "  p{number}: {{rate: {{limit: 0, per: 1s, algorithm: none}}}}");
        text
    })
}

fn deep_lines() -> String {
    (0..1_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect()
}

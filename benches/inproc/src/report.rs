//! Tables for people on stdout, progress on stderr, and one line of figures for machines at the end.

use serde_json::{Map, Value, json};

use crate::harness::median;
use crate::timing::{Row, median_of};

/// The results so far.
#[derive(Default)]
pub struct Report {
    figure: Map<String, Value>,
    missed: Vec<String>,
}

/// Prints the current step on stderr.
pub fn progress(what: &str) {
    eprintln!("… {what}");
}

impl Report {
    /// Prints one run of a section, and records its medians.
    pub fn section(&mut self, name: &str, title: &str, rows: &[Row]) {
        println!("\n{title}: ns per check, median (least), × the first row's median");
        for row in rows {
            print!("  {:<24}", row.name);
            for (view, sample) in &row.views {
                let to_anchor = sample.median() / median_of(rows, anchor(rows), *view);
                print!(
                    "{:>12} {:>7.1} ({:>6.1}) ×{to_anchor:<5.3}",
                    view.name(),
                    sample.median(),
                    sample.min()
                );
                self.keep(&format!("ns/{name}/{}/{}", row.name, view.name()), rounded(sample.median()));
            }
            println!("  {} batches", row.views.iter().map(|(_, sample)| sample.len()).min().unwrap_or(0));
        }
    }

    /// Checks a ratio against its threshold by the median of its runs.
    pub fn ratio(&mut self, name: &str, runs: &[f64], max: f64) {
        self.at_most(name, median(runs), max);
        if runs.len() > 1 {
            let all: Vec<String> = runs.iter().map(|ratio| format!("{ratio:.3}")).collect();
            println!("           the median of {} runs: {}", runs.len(), all.join(" "));
        }
    }

    /// Checks a number that may not exceed its threshold. A missing number counts as a failure.
    pub fn at_most(&mut self, name: &str, value: f64, max: f64) {
        let met = value <= max;
        println!("  {} {name}: {value:.3} ≤ {max}", if met { "met   " } else { "MISSED" });
        self.keep(name, rounded(value));
        if !met {
            self.missed.push(name.to_owned());
        }
    }

    /// Checks a condition that must hold.
    pub fn holds(&mut self, name: &str, met: bool) {
        println!("  {} {name}", if met { "met   " } else { "MISSED" });
        self.keep(name, json!(met));
        if !met {
            self.missed.push(name.to_owned());
        }
    }

    /// Prints a number that has no threshold, and records it.
    pub fn note(&mut self, name: &str, value: impl Into<Value>) {
        let value = value.into();
        println!("         {name}: {value}");
        self.keep(name, value);
    }

    /// Records nanoseconds per check that are printed elsewhere.
    pub fn keep_ns(&mut self, name: &str, ns: f64) {
        self.keep(&format!("ns/{name}"), rounded(ns));
    }

    fn keep(&mut self, name: &str, value: Value) {
        self.figure.insert(name.to_owned(), value);
    }

    /// Prints the verdict and the line of figures. Returns `true` if every threshold was met.
    pub fn end(self) -> bool {
        match self.missed.as_slice() {
            [] => println!("\nevery threshold that was measured is met"),
            missed => println!("\n{} missed:\n  {}", missed.len(), missed.join("\n  ")),
        }
        let met = self.missed.is_empty();
        let mut figure = self.figure;
        figure.insert("missed".to_owned(), json!(self.missed));
        println!("figure: {}", Value::Object(figure));
        met
    }
}

fn anchor(rows: &[Row]) -> &'static str {
    rows.first().map_or("", |row| row.name)
}

fn rounded(number: f64) -> Value {
    if number.is_finite() { json!((number * 1_000.0).round() / 1_000.0) } else { Value::Null }
}

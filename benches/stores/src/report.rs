//! Lines for people, and one line of figures for machines at the end.

use serde_json::{Map, Value, json};

#[derive(Default)]
pub struct Report {
    figure: Map<String, Value>,
    missed: Vec<String>,
}

impl Report {
    /// Prints and records a text.
    pub fn text(&mut self, name: &str, value: &str) {
        println!("         {name}: {value}");
        self.record_text(name, value);
    }

    /// Records a text that a table shows already.
    pub fn record_text(&mut self, name: &str, value: &str) {
        self.figure.insert(name.to_owned(), json!(value));
    }

    /// Prints and records a number that has no threshold.
    pub fn note(&mut self, name: &str, value: f64) {
        println!("         {name}: {}", round(value));
        self.record(name, value);
    }

    /// Records a number that a table shows already.
    pub fn record(&mut self, name: &str, value: f64) {
        self.figure.insert(name.to_owned(), json!(round(value)));
    }

    /// Checks a number that may not be smaller than its threshold.
    pub fn at_least(&mut self, name: &str, value: f64, threshold: f64) {
        self.judge(name, value, value >= threshold, &format!("≥ {threshold}"));
    }

    /// Checks a number that may not be larger than its threshold.
    pub fn at_most(&mut self, name: &str, value: f64, threshold: f64) {
        self.judge(name, value, value <= threshold, &format!("≤ {threshold}"));
    }

    /// Checks a count that must be exact.
    pub fn exactly(&mut self, name: &str, value: usize, threshold: usize) {
        self.judge(name, value as f64, value == threshold, &format!("= {threshold}"));
    }

    fn judge(&mut self, name: &str, value: f64, met: bool, threshold: &str) {
        println!("  {} {name}: {} {threshold}", if met { "met   " } else { "MISSED" }, round(value));
        self.record(name, value);
        if !met {
            self.missed.push(name.to_owned());
        }
    }

    /// Prints the verdict and the line of figures. Returns `true` if every threshold was met.
    pub fn end(mut self, name: &str) -> bool {
        let met = self.missed.is_empty();
        if !met {
            println!("missed: {}", self.missed.join(", "));
        }
        self.figure.insert("name".to_owned(), json!(name));
        self.figure.insert("missed".to_owned(), json!(self.missed));
        println!("figure: {}", Value::Object(self.figure));
        met
    }
}

pub fn round(number: f64) -> f64 {
    let scale = if number.abs() < 100.0 { 1_000.0 } else { 1.0 };
    (number * scale).round() / scale
}

//! Lines for people, and one line of figures for machines at the end.

use serde_json::{Map, Value, json};

#[derive(Default)]
pub struct Report {
    figure: Map<String, Value>,
    missed: Vec<String>,
}

impl Report {
    /// Tells a number that has no bar, and keeps it.
    pub fn note(&mut self, name: &str, value: f64) {
        println!("         {name}: {}", round(value));
        self.figure.insert(name.to_owned(), json!(round(value)));
    }

    /// Judges a number that may not be smaller than its bar.
    pub fn at_least(&mut self, name: &str, value: f64, bar: f64) {
        self.judge(name, value, value >= bar, &format!("≥ {bar}"));
    }

    /// Judges a number that may not be larger than its bar.
    pub fn at_most(&mut self, name: &str, value: f64, bar: f64) {
        self.judge(name, value, value <= bar, &format!("≤ {bar}"));
    }

    fn judge(&mut self, name: &str, value: f64, met: bool, bar: &str) {
        println!("  {} {name}: {} {bar}", if met { "met   " } else { "MISSED" }, round(value));
        self.figure.insert(name.to_owned(), json!(round(value)));
        if !met {
            self.missed.push(name.to_owned());
        }
    }

    /// Prints the verdict and the line of figures. True if every bar was met.
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

fn round(number: f64) -> f64 {
    let scale = if number.abs() < 10.0 { 1_000.0 } else { 1.0 };
    (number * scale).round() / scale
}

//! Token counts of a response.

use serde_json::{Value, json};
pub use throttlekit::outbound::Usage;

/// Names of the numbers in `usage`, as this API writes them.
#[derive(Clone, Copy, Debug)]
pub struct UsageFields {
    /// Input tokens.
    pub input: &'static str,
    /// Output tokens.
    pub output: &'static str,
}

impl UsageFields {
    /// Reads a usage.
    pub fn read(&self, usage: &Value) -> Option<Usage> {
        Usage::read(usage)
    }

    /// Writes a usage.
    pub fn write(&self, usage: Usage) -> Value {
        let Usage { input, output, total, .. } = usage;
        json!({ self.input: input, self.output: output, "total_tokens": total })
    }
}

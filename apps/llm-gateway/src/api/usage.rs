//! Token counts of a response.

use serde_json::{Value, json};

/// Number of tokens that a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub input: u64,
    /// Generated tokens.
    pub output: u64,
    /// All tokens. Some models count more here than input and output.
    pub total: u64,
}

impl Usage {
    /// Creates a usage whose total is the sum.
    pub fn of(input: u64, output: u64) -> Self {
        Self { input, output, total: input.saturating_add(output) }
    }
}

/// Names of the numbers in `usage`.
#[derive(Clone, Copy, Debug)]
pub struct UsageFields {
    /// Input tokens: the sum of these. The first is required.
    pub input: &'static [&'static str],
    /// Output tokens. Default: 0.
    pub output: &'static str,
}

const TOTAL: &str = "total_tokens";

impl UsageFields {
    /// Reads a usage.
    pub fn read(&self, usage: &Value) -> Option<Usage> {
        let counted = Usage::of(self.read_input(usage)?, self.read_output(usage).unwrap_or(0));
        Some(Usage { total: usage[TOTAL].as_u64().unwrap_or(counted.total), ..counted })
    }

    /// Reads the input tokens.
    pub fn read_input(&self, usage: &Value) -> Option<u64> {
        usage[self.input[0]].as_u64()?;
        Some(self.input.iter().filter_map(|name| usage[name].as_u64()).fold(0, u64::saturating_add))
    }

    /// Reads the output tokens.
    pub fn read_output(&self, usage: &Value) -> Option<u64> {
        usage[self.output].as_u64()
    }

    /// Writes a usage.
    pub fn write(&self, usage: Usage) -> Value {
        let Usage { input, output, total } = usage;
        json!({ self.input[0]: input, self.output: output, TOTAL: total })
    }
}

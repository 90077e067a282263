//! Hints of a cost in advance.

use throttlekit_proto::v1;

/// Hint of the cost of work before it is done, for policies that learn what to reserve. Default: nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CostHint {
    /// Tokens of the input, which are used in any case. They are reserved in addition to what is learned of the rest.
    pub input_tokens: u64,
    /// Maximum number of tokens that the work uses beyond its input, if there is one.
    pub max_tokens: Option<u64>,
    /// Kind of work, such as the name of a model, up to 128 bytes. Reservations are learned for each kind separately.
    pub class: String,
}

impl CostHint {
    /// Creates a hint of the class of the work.
    pub fn class(class: impl Into<String>) -> Self {
        Self { class: class.into(), ..Self::default() }
    }

    /// Sets the tokens of the input.
    pub fn input(self, tokens: u64) -> Self {
        Self { input_tokens: tokens, ..self }
    }

    /// Sets the maximum number of tokens beyond the input.
    pub fn at_most(self, tokens: u64) -> Self {
        Self { max_tokens: Some(tokens), ..self }
    }

    pub(crate) fn message(self) -> v1::CostHint {
        let signed = |tokens| i64::try_from(tokens).unwrap_or(i64::MAX);
        let (input_tokens, max_tokens) = (signed(self.input_tokens), self.max_tokens.map(signed));
        v1::CostHint { input_tokens, max_tokens, class: self.class }
    }
}

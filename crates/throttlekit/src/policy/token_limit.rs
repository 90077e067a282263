//! Limits of the tokens axis, as users write them.

use throttlekit_core::rate::{Budget, Limit, LimitError, Rate};

/// A limit of tokens, from a [`Budget`], a [`Rate`] or a [`Limit`].
///
/// A budget is debited as work streams: the debit that crosses its edge passes and counts in full. Everywhere else a
/// `Budget` is a hard quota.
#[derive(Clone, Debug)]
pub struct TokenLimit(pub(crate) Result<Limit, LimitError>);

impl From<Budget> for TokenLimit {
    fn from(budget: Budget) -> Self {
        Self(budget.tokens())
    }
}

impl From<Rate> for TokenLimit {
    fn from(rate: Rate) -> Self {
        Self(rate.try_into())
    }
}

impl From<Limit> for TokenLimit {
    fn from(limit: Limit) -> Self {
        Self(Ok(limit))
    }
}

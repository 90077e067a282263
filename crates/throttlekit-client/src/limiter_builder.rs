//! What can be chosen about a remote policy.

use throttlekit::{Limit, LimitError, OnOutage};

use crate::limiter::StandIn;
use crate::{Client, RemoteLimiter};

/// Describes a [`RemoteLimiter`].
#[derive(Debug)]
pub struct LimiterBuilder {
    client: Client,
    policy: String,
    limit: Option<Result<Limit, LimitError>>,
    on_outage: OnOutage,
}

impl LimiterBuilder {
    pub(crate) fn new(client: Client, policy: &str) -> Self {
        Self { client, policy: policy.into(), limit: None, on_outage: OnOutage::default() }
    }

    /// The policy's limit, as the server has it: needed for a local share of it, and told by the tower layer.
    pub fn limit<L: TryInto<Limit>>(mut self, limit: L) -> Self
    where
        LimitError: From<L::Error>,
    {
        self.limit = Some(limit.try_into().map_err(LimitError::from));
        self
    }

    /// What to answer while the server does not. Unless chosen, refusals.
    pub fn on_outage(mut self, choice: OnOutage) -> Self {
        self.on_outage = choice;
        self
    }

    /// The limiter, or why its limit is none.
    pub fn build(self) -> Result<RemoteLimiter, LimitError> {
        let limit = self.limit.transpose()?;
        let stand_in = StandIn::new(self.on_outage, limit.as_ref())?;
        Ok(RemoteLimiter::new(self.client, &self.policy, limit, stand_in))
    }
}

//! The builder of a remote policy.

use throttlekit::rate::LimitError;
use throttlekit::{Limit, OnOutage};

use crate::limiter::Fallback;
use crate::{Client, RemotePolicy};

/// Configures a [`RemotePolicy`].
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

    /// Sets the policy's limit, as configured on the server: required for a local share, and reported by the tower
    /// layer.
    pub fn limit<L: TryInto<Limit>>(mut self, limit: L) -> Self
    where
        LimitError: From<L::Error>,
    {
        self.limit = Some(limit.try_into().map_err(LimitError::from));
        self
    }

    /// Sets the fallback while the server is unreachable. Default: fail closed.
    pub fn on_outage(mut self, choice: OnOutage) -> Self {
        self.on_outage = choice;
        self
    }

    /// Builds the limiter. Returns an error if its limit is invalid.
    pub fn build(self) -> Result<RemotePolicy, throttlekit::BuildError> {
        let limit = self.limit.transpose()?;
        let stand_in = Fallback::new(self.on_outage, limit.as_ref())?;
        Ok(RemotePolicy::new(self.client, &self.policy, limit, stand_in))
    }
}

//! The builder of a remote policy.

use std::time::Duration;

use throttlekit::rate::LimitError;
use throttlekit::{BuildError, Limit, OnOutage};

use crate::fallback::Fallback;
use crate::{Client, RemotePolicy};

/// Configures a [`RemotePolicy`].
#[derive(Debug)]
pub struct RemotePolicyBuilder {
    client: Client,
    name: String,
    limit: Option<Result<Limit, LimitError>>,
    on_outage: OnOutage,
    wait: Duration,
}

impl RemotePolicyBuilder {
    pub(crate) fn new(client: Client, name: &str) -> Self {
        Self { client, name: name.into(), limit: None, on_outage: OnOutage::default(), wait: Duration::ZERO }
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
    ///
    /// It does not apply if the server responds that its own store is unavailable and the policy fails closed.
    pub fn on_outage(mut self, choice: OnOutage) -> Self {
        self.on_outage = choice;
        self
    }

    /// Sets the maximum time that [`admit`](RemotePolicy::admit) waits on the server until a call is allowed, in order
    /// ([`Call::priority`](throttlekit::Call::priority)). The policy on the server has to allow it (`wait`), and may
    /// allow less. Whole milliseconds. Default: zero, which decides at once.
    ///
    /// Not for [`check`](RemotePolicy::check), and of no effect on a policy that only has a rate and no `wait`.
    pub fn wait(mut self, most: Duration) -> Self {
        self.wait = most;
        self
    }

    /// Builds the policy. Returns an error if its limit is invalid, or missing for a local share.
    pub fn build(self) -> Result<RemotePolicy, BuildError> {
        let limit = self.limit.transpose()?;
        let fallback = Fallback::new(self.on_outage, limit.as_ref())?;
        Ok(RemotePolicy::new(self.client, &self.name, limit, fallback).waiting(self.wait))
    }
}

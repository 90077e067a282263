//! Builder of the client layer.

use std::sync::Arc;
use std::time::Duration;

use http::{request, response};

use super::builder::OutboundBuilder;
use super::handle::Outbound;
use super::layer::{OutboundLayer, Settings};
use super::retry::{NoRetries, Retries};
use crate::http::KeyExtractor;
use crate::{BuildError, Concurrency};

/// Builder of an [`OutboundLayer`]. `O` is the [`Outbound`], or its builder.
pub struct OutboundLayerBuilder<O = Outbound, C = NoRetries> {
    outbound: O,
    settings: Settings,
    retries: Retries<C>,
}

impl<O> OutboundLayerBuilder<O> {
    pub(super) fn new(outbound: O) -> Self {
        Self { outbound, settings: Settings::default(), retries: Retries::none() }
    }
}

impl<O, C> OutboundLayerBuilder<O, C> {
    /// Limits each key separately: a header with the API key, or whatever a closure finds in the head of a request, such as
    /// the model in its extensions. Requests without a key fail. Default: one key for all.
    pub fn key(mut self, key: impl KeyExtractor) -> Self {
        self.settings.key = Some(Box::new(key));
        self
    }

    /// Sets how the tokens of a request are estimated that has no [`EstimatedTokens`](super::EstimatedTokens). Default: a
    /// quarter of the bytes of its body.
    pub fn estimate(mut self, estimate: impl Fn(&request::Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.settings.estimate = Some(Box::new(estimate));
        self
    }

    /// Settles the tokens from the head of a response, such as a header with their number. `None` keeps the estimate.
    /// Default: from `usage` in the body.
    pub fn settle(
        mut self,
        settle: impl Fn(&response::Parts) -> Option<u64> + Send + Sync + 'static,
    ) -> Self {
        self.settings.settle = Some(Box::new(settle));
        self
    }

    /// Retries refused requests whose body can be cloned: `retry(|body: &Full<Bytes>| Some(body.clone()))`. A retry waits
    /// its turn again, after the pause that the refusal requires. Each request is retried at most
    /// [once](Self::max_retries), and at most one retry in ten requests is sent. Default: none.
    pub fn retry<B, F>(self, clone: F) -> OutboundLayerBuilder<O, F>
    where
        F: Fn(&B) -> Option<B> + Send + Sync + 'static,
    {
        let Self { outbound, settings, retries } = self;
        OutboundLayerBuilder { outbound, settings, retries: retries.with(clone) }
    }

    /// Sets the maximum number of retries of one request. Default: 1.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.retries.max = retries;
        self
    }

    fn built(
        settings: Settings,
        retries: Retries<C>,
        outbound: Outbound,
    ) -> Result<OutboundLayer<C>, BuildError> {
        if let Some(key) = &settings.key {
            key.validate()?;
        }
        Ok(OutboundLayer { outbound, settings: Arc::new(settings), retries: Arc::new(retries) })
    }
}

impl<C> OutboundLayerBuilder<Outbound, C> {
    /// Builds the layer. Fails if the key is invalid.
    pub fn build(self) -> Result<OutboundLayer<C>, BuildError> {
        let Self { outbound, settings, retries } = self;
        Self::built(settings, retries, outbound)
    }
}

impl<C> OutboundLayerBuilder<OutboundBuilder, C> {
    /// Limits the tokens of each key by the minute. Default: no limit.
    pub fn tokens_per_minute(self, tokens: u64) -> Self {
        self.with(|outbound| outbound.tokens_per_minute(tokens))
    }

    /// Limits the number of concurrent requests. Default: no limit.
    pub fn concurrency(self, limit: impl Into<Concurrency>) -> Self {
        self.with(|outbound| outbound.concurrency(limit))
    }

    /// Sets the longest that a request waits. Default: 60 s.
    pub fn max_wait(self, wait: Duration) -> Self {
        self.with(|outbound| outbound.max_wait(wait))
    }

    /// Builds the layer. Fails if a limit, a setting or the key is invalid.
    pub fn build(self) -> Result<OutboundLayer<C>, BuildError> {
        let Self { outbound, settings, retries } = self;
        Self::built(settings, retries, outbound.build()?)
    }

    fn with(self, set: impl FnOnce(OutboundBuilder) -> OutboundBuilder) -> Self {
        Self { outbound: set(self.outbound), ..self }
    }
}

debug_fields!([O, C] OutboundLayerBuilder<O, C>, |it| retries = it.retries);

//! `Outbound` as a reqwest middleware. Copy this file.

use http::{Extensions, Response};
use reqwest::{Body, Request};
use reqwest_middleware::{Error, Middleware, Next, Result};
use throttlekit::Call;
use throttlekit::outbound::{EstimatedTokens, Outbound};

/// Makes each request wait its turn, and learns from its response.
#[derive(Clone, Debug)]
pub(crate) struct Paced(pub(crate) Outbound);

#[async_trait::async_trait]
impl Middleware for Paced {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<reqwest::Response> {
        let key = request.url().host_str().unwrap_or_default().to_owned();
        let call = Call::by(&key).cost(estimate(&request, extensions));
        let permit = self.0.until_ready(call).await.map_err(Error::middleware)?;
        let response = Response::<Body>::from(next.run(request, extensions).await?);
        Ok(permit.hold(response).map(Body::wrap).into())
    }
}

/// Tokens of a response that does not state how long it may be.
const RESPONSE: u64 = 500;

/// Estimates the tokens of a request: those of its extensions, or else those of its body, as OpenAI's newest models count
/// them, and those of a response. The response's `usage` replaces the estimate.
pub(crate) fn estimate(request: &Request, extensions: &Extensions) -> u64 {
    let count = || {
        let text = request.body().and_then(Body::as_bytes).and_then(|bytes| str::from_utf8(bytes).ok());
        let vocabulary = tiktoken::get_encoding("o200k_base").expect("the vocabulary is built in");
        RESPONSE + text.map_or(0, |text| vocabulary.count(text) as u64)
    };
    extensions.get().map_or_else(count, |EstimatedTokens(tokens)| *tokens)
}

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

/// Estimates the tokens of a request: those of its extensions, or else a quarter of its bytes.
pub(crate) fn estimate(request: &Request, extensions: &Extensions) -> u64 {
    let bytes = request.body().and_then(Body::as_bytes).map_or(0, <[u8]>::len);
    extensions.get().map_or((bytes as u64).div_ceil(4).max(1), |EstimatedTokens(tokens)| *tokens)
}

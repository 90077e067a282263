//! `Outbound` below async-openai. Copy this file.

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_openai::middleware::HttpRequestFactory;
use http::{Extensions, Response};
use reqwest::Body;
use throttlekit::Call;
use throttlekit::outbound::Outbound;
use tower::service_fn;

use crate::paced::estimate;

/// Creates a client whose requests wait their turn.
pub(crate) fn client(
    config: OpenAIConfig,
    http: reqwest::Client,
    outbound: Outbound,
) -> Client<OpenAIConfig> {
    let send = move |request| send(outbound.clone(), http.clone(), request);
    Client::with_config(config).with_http_service(service_fn(send))
}

async fn send(
    outbound: Outbound,
    http: reqwest::Client,
    request: HttpRequestFactory,
) -> Result<reqwest::Response, OpenAIError> {
    let request = request.build().await?;
    let key = request.url().host_str().unwrap_or_default().to_owned();
    let call = Call::by(&key).cost(estimate(&request, &Extensions::new()));
    let permit = outbound.until_ready(call).await.map_err(|error| OpenAIError::Boxed(error.into()))?;
    let response = Response::<Body>::from(http.execute(request).await?);
    Ok(permit.hold(response).map(Body::wrap).into())
}

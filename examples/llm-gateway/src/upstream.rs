//! The way to the model.

use std::time::Duration;

use anyhow::{Context, Result};
use axum::body::Bytes;
use axum::http::{Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

/// For how long the model may think before it says its first word.
const HEAD_WITHIN: Duration = Duration::from_secs(60);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A client of the model, with its connections.
pub struct Upstream {
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
    authorization: Option<String>,
}

impl Upstream {
    /// At `http://host:port`, with our own key, if it takes one.
    pub fn new(url: &str, key: Option<&str>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_WITHIN));
        connector.set_nodelay(true);
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            url: format!("{}/v1/chat/completions", url.trim_end_matches('/')),
            authorization: key.map(|key| format!("Bearer {key}")),
        }
    }

    /// Sends a request. Dropping the response's body before its end closes the connection, which stops the model.
    pub async fn complete(&self, body: String) -> Result<Response<Incoming>> {
        let mut request = Request::post(&self.url).header(header::CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let sent = self.client.request(request.body(Full::from(body))?);
        timeout(HEAD_WITHIN, sent).await.context("it does not answer")?.context("it cannot be reached")
    }
}

//! The way to the model.

use std::time::Duration;

use anyhow::{Error, anyhow};
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
/// For how long where its first word comes when it knows the last.
const WHOLE_WITHIN: Duration = Duration::from_secs(600);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A client of the model, with its connections.
pub struct Upstream {
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
    authorization: Option<String>,
}

/// There is no answer.
#[derive(Debug)]
pub enum Unanswered {
    /// The model was not reached: it has done nothing.
    Unreached(Error),
    /// It was, and may have worked since.
    Broken(Error),
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
    pub async fn complete(&self, body: String, streams: bool) -> Result<Response<Incoming>, Unanswered> {
        let mut request = Request::post(&self.url).header(header::CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Full::from(body)).map_err(|error| Unanswered::Unreached(error.into()))?;
        let within = if streams { HEAD_WITHIN } else { WHOLE_WITHIN };
        match timeout(within, self.client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if error.is_connect() => {
                Err(Unanswered::Unreached(Error::from(error).context("it cannot be reached")))
            }
            Ok(Err(error)) => Err(Unanswered::Broken(Error::from(error).context("it broke off"))),
            Err(_) => Err(Unanswered::Broken(anyhow!("it does not answer"))),
        }
    }
}
